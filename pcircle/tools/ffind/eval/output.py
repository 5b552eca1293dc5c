"""The output of a search: formats of -printf, -ls, -json and -csv, sort keys, and streams.

`FindOutput` gathers the output of one thread of a rank in order and sends it to rank 0. Rank 0
writes text to standard output, standard error, or a file of -fprint. If there is a sort order
(`SortKeys`), the text of each entry is a record, and --top retains only the first records. Events
(-quit and -limit) are placed in the text where they happened. Rank 0 uses them to decide which text
is written, so a limit is exact even if ranks have found more entries.
"""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from collections.abc import Callable, Sequence

import msgspec

from pcircle.cli.listing import Modes, groups, users
from pcircle.core.encoding import show
from pcircle.core.units import DAY_S, NS_PER_S, format_time
from pcircle.fs.status import birth_ns
from pcircle.jobs.action_log import NOTICE_BYTES
from pcircle.tools.ffind.eval.checks import fs_type
from pcircle.tools.ffind.eval.entry import FIELDS, TIMES, FindEntry, Status
from pcircle.tools.ffind.language.formats import FormatPiece, parse_format
from pcircle.tools.ffind.plan import Order
from pcircle.walk.attributes import LETTERS

Text = Callable[[FindEntry], bytes]
Of = Callable[[FindEntry, Status], bytes]

_HALF_A_YEAR_S = 180 * DAY_S
_SLOP_S = 3600
MODES, USERS, GROUPS = Modes(), users(), groups()
WITH_NS = "STX@+"
_MISSING = b""
_NAMES = {
    ord("\\"): b"\\\\", ord("\n"): b"\\n", ord("\b"): b"\\b", ord("\r"): b"\\r",
    ord("\t"): b"\\t", ord("\f"): b"\\f", ord(" "): b"\\ ", ord('"'): b'\\"',
}  # fmt: skip
_PLAIN = bytes(sorted(set(range(33, 127)) - set(_NAMES)))
CSV_HEAD = b"path,kind,size,blocks,mtime,ctime,atime,mode,user,group,links,inode\r\n"


def printf(text: bytes, *, quoted: bool) -> Text:
    """Return a function that formats an entry; if `quoted`, names are safe on a terminal."""
    pieces, _ = parse_format(text, [])
    parts = [_piece(piece, quoted=quoted) for piece in pieces]
    if len(parts) == 1:
        return parts[0]
    return lambda entry: b"".join([part(entry) for part in parts])


def _piece(piece: FormatPiece, *, quoted: bool) -> Text:
    if not piece.letter:
        text = piece.text
        return lambda entry: text
    if piece.kind:
        return _padded(piece.flags, _time_text(piece.letter, piece.kind))
    if piece.letter == "d":
        form = f"%{piece.flags}d".encode()
        return lambda entry: form % entry.depth
    if piece.letter == "m":
        return _octal(piece.flags)
    if piece.letter == "S":
        form = f"%{piece.flags}g".encode()
        return _looked_up(lambda entry, status: form % _sparseness(status))
    if piece.letter in _OF_NAME:
        plain = _OF_NAME[piece.letter]
        if quoted and piece.letter != "H":
            return _padded(piece.flags, lambda entry: show(plain(entry)).encode())
        return _padded(piece.flags, plain)
    if piece.letter == "y":
        return _padded(piece.flags, _kind)
    found = _looked_up(_OF_STATUS[piece.letter])
    if quoted and piece.letter == "l":
        return _padded(piece.flags, lambda entry: show(found(entry)).encode())
    return _padded(piece.flags, found)


def _padded(flags: str, text: Text) -> Text:
    if not flags:
        return text
    form = f"%{flags}s".encode()
    return lambda entry: form % text(entry)


def _looked_up(text: Of) -> Text:
    """Return a function that returns no text for entries that cannot be looked up."""

    def made(entry: FindEntry) -> bytes:
        status = entry.look() if entry.st is None else entry.st
        return _MISSING if status is False else text(entry, status)

    return made


def _octal(flags: str) -> Text:
    """Return an octal format as in C: with `#`, the number has a leading 0."""
    plain = f"%{flags.replace('#', '')}o".encode()

    def text(entry: FindEntry, status: Status) -> bytes:
        mode = status.st_mode & 0o7777
        if "#" not in flags or not mode:
            return plain % mode
        digits = b"0%o" % mode
        width, _, precision = flags.lstrip("-+ #0").partition(".")
        digits = digits.rjust(int(precision or 0), b"0")
        if "-" in flags:
            return digits.ljust(int(width or 0))
        is_zeroed = "0" in flags[: len(flags) - len(flags.lstrip("-+ #0"))] and "." not in flags
        return digits.rjust(int(width or 0), b"0" if is_zeroed else b" ")

    return _looked_up(text)


def _sparseness(status: Status) -> float:
    if not status.st_size:
        return float("inf") if status.st_blocks else 1.0
    return 512.0 * status.st_blocks / status.st_size


def _directory_of(entry: FindEntry) -> bytes:
    path = entry.path
    stripped = path.rstrip(b"/")
    if len(stripped) < 2:
        # find 4.9 keeps trailing slashes of a one-character PATH: %h of `d/` is `d`.
        stripped = path
    before, slash, _ = stripped.rpartition(b"/")
    return before if slash else b"."


def base_of(entry: FindEntry) -> bytes:
    """Return the last component of the path, with one slash if a PATH ends with slashes."""
    if not entry.fixed:
        return entry.name
    stripped = entry.fixed.rstrip(b"/")
    if not stripped:
        return b"/"
    slash = entry.fixed[len(stripped) : len(stripped) + 1]
    return stripped[stripped.rfind(b"/") + 1 :] + slash


def _kind(entry: FindEntry) -> bytes:
    letter = entry.kind or entry.letter()
    return letter.replace("?", "U").encode()


def _target_kind(entry: FindEntry, status: Status) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        try:
            status = os.stat(entry.name, dir_fd=entry.fd)
        except (FileNotFoundError, NotADirectoryError):
            return b"N"
        except OSError as error:
            import errno

            if error.errno == errno.ELOOP:
                return b"L"
            entry.fail("look up", error)
            return b"?"
    return LETTERS.get(stat.S_IFMT(status.st_mode), "U").encode()


def _link_target(entry: FindEntry, status: Status) -> bytes:
    if not stat.S_ISLNK(status.st_mode):
        return b""
    try:
        return entry.target()
    except OSError as error:
        entry.fail("read link", error)
        return b""


def _context(entry: FindEntry, status: Status) -> bytes:
    try:
        found = os.getxattr(entry.opened, "security.selinux", follow_symlinks=entry.follow)
    except OSError as error:
        entry.fail("read the security context of", error)
        return b""
    return found.rstrip(b"\0")


_OF_NAME: dict[str, Text] = {
    "p": lambda entry: entry.path,
    "P": lambda entry: entry.below,
    "f": base_of,
    "h": _directory_of,
    "H": lambda entry: entry.start,
}
_OF_STATUS: dict[str, Of] = {
    "a": lambda entry, status: _ctime_text(status.st_atime_ns),
    "c": lambda entry, status: _ctime_text(status.st_ctime_ns),
    "t": lambda entry, status: _ctime_text(status.st_mtime_ns),
    "b": lambda entry, status: b"%d" % status.st_blocks,
    "k": lambda entry, status: b"%d" % ((status.st_blocks + 1) // 2),
    "D": lambda entry, status: b"%d" % status.st_dev,
    "F": lambda entry, status: fs_type(status.st_dev),
    "g": lambda entry, status: GROUPS[status.st_gid],
    "G": lambda entry, status: b"%d" % status.st_gid,
    "u": lambda entry, status: USERS[status.st_uid],
    "U": lambda entry, status: b"%d" % status.st_uid,
    "i": lambda entry, status: b"%d" % status.st_ino,
    "n": lambda entry, status: b"%d" % status.st_nlink,
    "s": lambda entry, status: b"%d" % status.st_size,
    "l": _link_target,
    "M": lambda entry, status: MODES[status.st_mode],
    "Y": _target_kind,
    "Z": _context,
}

# ---- times ---------------------------------------------------------------------------------------


def _ctime_text(time_ns: int) -> bytes:
    second, ns = divmod(time_ns, NS_PER_S)
    try:
        day, year = format_time("%a %b %e %H:%M:%S|%Y", second, padded=False).split("|")
    except (OverflowError, OSError):
        return b"%d.%09d0" % (second, ns)
    return f"{day}.{ns:09d}0 {int(year):04d}".encode()


def _time_text(letter: str, kind: str) -> Text:
    if letter == "B":

        def born(entry: FindEntry) -> bytes:
            born_ns = birth_ns(entry.name, entry.fd, follow=entry.follow)
            return b"" if born_ns is None else time_text(born_ns, kind)

        return born
    time_of = FIELDS[TIMES["m" if letter == "T" else letter.lower()]]
    return _looked_up(lambda entry, status: time_text(time_of(status), kind))


def time_text(time_ns: int, kind: str) -> bytes:
    """Format a time by its `kind`: a letter of strftime, or `@` or `+` as in find."""
    second, ns = divmod(time_ns, NS_PER_S)
    fraction = f".{ns:09d}0" if kind in WITH_NS else ""
    pattern = "%Y-%m-%d+%T" if kind == "+" else f"%{kind}"
    try:
        text = str(second) if kind == "@" else format_time(pattern, second, padded=False)
    except (OverflowError, OSError):  # the year is out of range
        text = str(second)
    # In the C locale, every format with a fraction ends with seconds.
    return os.fsencode(text + fraction)


# ---- lists ---------------------------------------------------------------------------------------


def escaped(name: bytes) -> bytes:
    """Escape a name as -ls does."""
    if not name.translate(None, _PLAIN):
        return name
    return b"".join(
        _NAMES.get(byte) or (b"%c" % byte if 32 < byte < 127 else b"\\%03o" % byte) for byte in name
    )


def long_line(now_ns: int) -> Text:
    """Return a function for lines of -ls, whose columns have minimum widths."""
    now_s = now_ns // NS_PER_S

    def text(entry: FindEntry, status: Status) -> bytes:
        mode = status.st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            size = b"%3d, %3d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
        else:
            size = b"%8d" % status.st_size
        name = escaped(entry.path)
        if stat.S_ISLNK(mode):
            name += b" -> " + escaped(_link_target(entry, status))
        return b"%9d %6d %b %3d %-8b %-8b %b %b %b\n" % (
            status.st_ino,
            (status.st_blocks + 1) // 2,
            MODES[mode],
            status.st_nlink,
            USERS[status.st_uid],
            GROUPS[status.st_gid],
            size,
            _listed_time(status.st_mtime_ns // NS_PER_S, now_s),
            name,
        )

    return _looked_up(text)


def _listed_time(second: int, now_s: int) -> bytes:
    is_recent = now_s - _HALF_A_YEAR_S <= second <= now_s + _SLOP_S
    pattern = "%b %e %H:%M" if is_recent else "%b %e  %Y"
    try:
        return format_time(pattern, second, padded=False).encode()
    except (OverflowError, OSError):  # the year is out of range
        return b"%d" % second


class JsonLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of -json. Paths that are not UTF-8 are in `path_b64`; times are in nanoseconds."""

    kind: str
    size: int
    blocks: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    mode: str
    user: str
    group: str
    uid: int
    gid: int
    links: int
    inode: int
    path: str | None = None
    path_b64: str | None = None
    target: str | None = None


def json_line() -> Text:
    """Return a function for lines of JSON."""
    encode = msgspec.json.Encoder().encode

    def text(entry: FindEntry, status: Status) -> bytes:
        path = entry.path
        plain = coded = None
        try:
            plain = path.decode()
        except UnicodeDecodeError:
            coded = b64encode(path).decode()
        target = _link_target(entry, status) if stat.S_ISLNK(status.st_mode) else None
        line = JsonLine(
            LETTERS.get(stat.S_IFMT(status.st_mode), "?"),
            status.st_size,
            status.st_blocks,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_atime_ns,
            f"{status.st_mode & 0o7777:04o}",
            show(USERS[status.st_uid]),
            show(GROUPS[status.st_gid]),
            status.st_uid,
            status.st_gid,
            status.st_nlink,
            status.st_ino,
            plain,
            coded,
            None if target is None else show(target),
        )
        return encode(line) + b"\n"

    return _looked_up(text)


def csv_line() -> Text:
    """Return a function for lines of CSV that match `CSV_HEAD`, with escaped paths."""

    def text(entry: FindEntry, status: Status) -> bytes:
        path = show(entry.path).replace('"', '""').encode()
        times = (status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns)
        return b'"%b",%b,%d,%d,%b,%04o,%b,%b,%d,%d\r\n' % (
            path,
            LETTERS.get(stat.S_IFMT(status.st_mode), "?").encode(),
            status.st_size,
            status.st_blocks,
            b",".join(b"%d.%09d" % divmod(time_ns, NS_PER_S) for time_ns in times),
            status.st_mode & 0o7777,
            show(USERS[status.st_uid]).encode(),
            show(GROUPS[status.st_gid]).encode(),
            status.st_nlink,
            status.st_ino,
        )

    return _looked_up(text)


# ---- sort keys -----------------------------------------------------------------------------------

# Sort keys are bytes that sort in the requested order. Paths are compared byte by byte, as by
# ``sort -z`` in the C locale. All keys end with the path, so keys are unique.

_WIDTH = 12  # bytes: a time in nanoseconds needs 94 bits
_OFFSET = 1 << 95
_INVERTED = bytes(255 - byte for byte in range(256))

_TEXT_KEYS: dict[str, Text] = {
    "path": lambda entry: entry.path,
    "name": lambda entry: entry.basename,
    "ext": lambda entry: os.path.splitext(entry.basename)[1],
    "user": _looked_up(lambda entry, status: USERS[status.st_uid]),
    "group": _looked_up(lambda entry, status: GROUPS[status.st_gid]),
}


class SortKeys(msgspec.Struct, frozen=True):
    """Computes the sort keys of entries; `top` limits the number of entries."""

    key: Callable[[FindEntry], bytes]
    top: int | None = None


def ordered(order: Order) -> SortKeys:
    """Return the object that computes the sort keys of an order."""
    parts = [_key_part(field) for field in (*order.fields, "path")]
    return SortKeys(lambda entry: b"".join([part(entry) for part in parts]), order.top)


def _key_part(field: str) -> Callable[[FindEntry], bytes]:
    name = field.removeprefix("-")
    is_down = name != field
    if name in FIELDS or name == "depth":
        number = _number_key(name)
        if is_down:
            return lambda entry: (_OFFSET - number(entry)).to_bytes(_WIDTH, "big")
        return lambda entry: (_OFFSET + number(entry)).to_bytes(_WIDTH, "big")
    text = _TEXT_KEYS[name]
    if is_down:
        # In this order, a longer text must sort before its prefix. The terminator does not occur in
        # the text, because no name contains NUL.
        return lambda entry: text(entry).translate(_INVERTED) + b"\xff"
    return lambda entry: text(entry) + b"\0"


def _number_key(name: str) -> Callable[[FindEntry], int]:
    if name == "depth":
        return lambda entry: entry.depth
    of = FIELDS[name]

    def number(entry: FindEntry) -> int:
        status = entry.look() if entry.st is None else entry.st
        return 0 if status is False else of(status)

    return number


# ---- output --------------------------------------------------------------------------------------

QUIT = -1


class StreamText(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Text for a stream, or an event: the number of a limit, or `QUIT`."""

    stream: int
    text: bytes
    event: int = 0


class SortRecords(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """Records of a key and text, to be sorted on rank 0."""

    records: tuple[tuple[bytes, bytes], ...]


class LinkedFiles(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """Hard-linked files: the device, inode and blocks of each file."""

    files: tuple[tuple[int, int, int], ...]


class FindOutput:
    """The output of one thread. `flush` sends pending output to rank 0."""

    def __init__(self, ordered: SortKeys | None = None) -> None:
        self._ordered = ordered
        self._pending: list[StreamText] = []
        self._texts: list[bytes] = []
        self._stream = 0
        self._size = 0
        self._here: list[bytes] = []  # the text of the current entry, in pieces
        self._records: list[tuple[bytes, bytes]] = []
        self._links: list[tuple[int, int, int]] = []
        self.flush: Callable[[], None] = lambda: None

    def add(self, stream: int, text: bytes) -> None:
        """Add text for a stream."""
        if self._ordered is not None and stream == 0:
            self._here.append(text)
            return
        if stream != self._stream:
            self.settle()
            self._stream = stream
        self._texts.append(text)
        self._size += len(text)
        if self._size > NOTICE_BYTES:
            self.flush()

    def settle(self) -> None:
        """End the current piece of text."""
        if self._texts:
            self._pending.append(StreamText(self._stream, b"".join(self._texts)))
            self._texts = []

    def event(self, number: int) -> None:
        """Add an event after the text so far."""
        self.settle()
        self._pending.append(StreamText(0, b"", number))

    def linked(self, device: int, inode: int, blocks: int) -> None:
        """Add a hard-linked file."""
        self._links.append((device, inode, blocks))
        if len(self._links) >= 1024:
            self.flush()

    def entry_done(self, entry: FindEntry) -> None:
        """Complete the record of an entry."""
        ordered = self._ordered
        if ordered is None or not self._here:
            return
        self._records.append((ordered.key(entry), b"".join(self._here)))
        self._here = []
        if ordered.top is None:
            self._size += len(self._records[-1][1]) + len(self._records[-1][0])
            if self._size > NOTICE_BYTES:
                self.flush()
        elif len(self._records) >= 2 * ordered.top + 64:
            self.best()

    def best(self) -> None:
        """Retain only the records that can be in the top list."""
        if self._ordered is not None and self._ordered.top is not None:
            self._records.sort()
            del self._records[self._ordered.top :]

    def take(self, *, all_: bool) -> Sequence[StreamText | LinkedFiles | SortRecords]:
        """Return the output to send now, including the records of a top list if `all_` is set."""
        self.settle()
        found: list[StreamText | LinkedFiles | SortRecords] = [*self._pending]
        self._pending, self._size = [], 0
        if self._links:
            found.append(LinkedFiles(tuple(self._links)))
            self._links = []
        if self._records and (all_ or (self._ordered is not None and self._ordered.top is None)):
            self.best()
            found.append(SortRecords(tuple(self._records)))
            self._records = []
        return found
