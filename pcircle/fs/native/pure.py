"""The functions of the C module `_native` in Python, with the same arguments, results and rules.

A result contains one 64-bit number, the *outcome*, for each name. It is the value of the function,
``-1 - errno``, or `NOT_PLAIN` if nothing was done and the caller must decide. It is `UNTRIED` if
`until_ns` (a time of `time.monotonic_ns`) had passed or a signal had arrived. Names are bytes
without a slash, relative to open directories. TypeError and ValueError are raised before anything
is changed.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, chain, islice, pairwise, repeat
from operator import attrgetter
from time import monotonic_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.core.encoding import to_scan
from pcircle.fs.directories import close_open
from pcircle.fs.native.interface import (
    AS_IS,
    AS_NUMBERS,
    ASK_LISTS,
    COLUMNS,
    KEEP_ATTRIBUTES,
    KEEP_LISTS,
    KEEP_MODE,
    KEEP_OWNER,
    KEEP_TIMES,
    MAX_FILE_BYTES,
    NOT_PLAIN,
    OF_BODY,
    OF_NAME,
    RIGHT,
    UNTRIED,
)
from pcircle.threads.workers import OperationTimeout

if TYPE_CHECKING:
    from pcircle.fs.native.libc import StatusRows

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_ATTRIBUTES = KEEP_LISTS | KEEP_ATTRIBUTES | ASK_LISTS
_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_NO_ATTRIBUTE = errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS
_NS = 1_000_000_000
_NUMBER_BYTES = 8
_KINDS = 16  # kinds of entries (DT_*) are less
_DIRECTORY, _REGULAR = stat.S_IFDIR >> 12, stat.S_IFREG >> 12
_OTHER_NAMES = "st_blocks", "st_blksize", "st_rdev", "st_atime_ns", "st_mtime_ns", "st_ctime_ns"
_OTHER_FIELDS = attrgetter(*_OTHER_NAMES)  # one call takes less time than six
_NOTHING = os.stat_result((0,) * 10, dict.fromkeys(_OTHER_NAMES, 0))
_ONLY_KIND = os.stat_result(
    (stat.S_IFDIR, 0, 0, 1, 0, 0, 0, 0, 0, 0), dict.fromkeys(_OTHER_NAMES, 0)
)
"""The row of a directory that was not looked up, so that only its kind is known."""
_ALL = 1  # the value of `looks` with which subdirectories are looked up, too
_SMALL = 256  # entries between two readings of the clock in a large directory
_OWN_BYTES = 32 << 10  # smaller files are read without the shared buffer, which saves an object

_own = threading.local()


def copy_files(
    sources: int | list[int],
    targets: int | list[int],
    names: list[bytes],
    flags: int,
    creation_bits: int,
    keep: int,
    inode_flags: int,
    ignored: bytes,
    max_links: int,
    max_bytes: int,
    max_range_bytes: int,
    source_device: int,
    owner: int,
    group: int,
    until_ns: int,
    contents_bytes: int,
    /,
) -> tuple[bytes, bytes]:
    """Copy plain files; return the size of each.

    `sources` and `targets` are open directories: one for all names, or one for each name. A plain
    file is a regular file on `source_device` with at most `max_links` names and `max_bytes` bytes.
    It has no holes, contains as many bytes as its status reports, and has no attributes to preserve
    except owner, mode and times. It is opened with `flags`. A larger file of up to
    `max_range_bytes` is plain, too, if copy_file_range(2) can copy it. A copy is created with the
    bits `creation_bits` of its mode, and with 0600 if modes are preserved. Then it is given owner,
    mode and times, in this order. If new files have the `owner` and `group` (-1: unknown) of the
    source, the copy is created with its final mode. The target directory must then be inaccessible
    to other users and have no default ACL. `ignored` contains the NUL-terminated names of
    attributes that copies do not get.

    If `contents_bytes` is not 0, the contents of all files are returned as well, one after another;
    undefined bytes may follow. Files are not tried if their contents may not fit. In this case
    `contents_bytes` must be more than `max_bytes`, and `max_range_bytes` must be 0.

    No files are tried after the first one that is not plain or fails; its copy is removed.
    """
    _refuse_sizes(max_bytes, max_range_bytes, contents_bytes)
    attributes = frozenset(os.fsdecode(ignored).split("\0"))
    rules = flags, creation_bits, keep, inode_flags, attributes, max_links
    how = _How(*rules, (max_bytes, max_range_bytes), source_device, (owner, group))
    right_modes: set[tuple[int, int]] = set()
    contents: list[bytes] = []
    left = contents_bytes
    source_fds, target_fds = _holders(sources, names), _holders(targets, names)

    def copy(place: int, name: bytes) -> int:
        nonlocal left
        data = _copied(name, source_fds[place], target_fds[place], how, right_modes)
        if data is None or isinstance(data, int):
            return NOT_PLAIN if data is None else data
        if contents_bytes:
            contents.append(bytes(data))
            left -= len(data)
        return len(data)

    enough = (lambda: left <= max_bytes) if contents_bytes else None
    result = _for_each(copy, names, until_ns, enough, all_of_them=False)
    return result, b"".join(contents)


def _refuse_sizes(max_bytes: int, max_range_bytes: int, contents_bytes: int) -> None:
    if not 0 <= max_bytes <= MAX_FILE_BYTES or max_range_bytes < 0:
        raise ValueError("max_bytes, max_range_bytes")
    if contents_bytes and (contents_bytes <= max_bytes or max_range_bytes):
        raise ValueError("max_bytes, max_range_bytes, contents_bytes")


class _How(msgspec.Struct, frozen=True):
    """The arguments of `copy_files` that apply to all files."""

    flags: int
    creation_bits: int
    keep: int
    inode_flags: int
    ignored: frozenset[str]
    max_links: int
    max_bytes: tuple[int, int]
    device: int
    owner: tuple[int, int]  # and group of new files


def _copied(
    name: bytes,
    source_fd: int,
    target_fd: int,
    how: _How,
    right_modes: set[tuple[int, int]],
) -> bytes | memoryview | int | None:
    """Copy one file; return its content, or None if the file is not plain.

    The content is valid until the next call. If the kernel copied the file, return its size
    instead. `right_modes` contains pairs of a directory and a mode with which a file was created
    correctly there. The kernel treats all files of such a pair alike, so only the first one is
    checked.
    """
    fd = os.open(name, how.flags, dir_fd=source_fd)
    try:
        source = os.fstat(fd)
        if not _is_plain(fd, source, how):
            return None
        mode = source.st_mode
        right = how.owner == (source.st_uid, source.st_gid) and not mode & _SPECIAL_BITS
        owned = right or not how.keep & KEEP_OWNER or os.geteuid() in (0, source.st_uid)
        if not owned:  # ordinary users cannot give files away, so the caller must decide
            return None
        min_mode = 0o600 if how.keep & KEEP_MODE else 0
        made_with = mode & 0o777 if right else mode & how.creation_bits | min_mode
        out = os.open(name, _CREATE, made_with, dir_fd=target_fd)
        data: bytes | memoryview | int | None = None
        try:
            if source.st_size > how.max_bytes[0]:
                data = _moved_range(fd, out, source)
            else:
                data = _moved(fd, out, source.st_size)
            if data is not None and how.keep & (KEEP_MODE | KEEP_OWNER | KEEP_TIMES):
                whole, data = data, None
                if right and (target_fd, mode) not in right_modes:
                    right = _is_as(out, source)
                    if right:
                        right_modes.add((target_fd, mode))
                _settle(out, source, how.keep, made_right=right)
                data = whole
        finally:
            try:
                if data is None:
                    _discard(out, target_fd, name)
            finally:
                try:
                    os.close(out)
                except OSError:  # not all data was written
                    with suppress(OSError):
                        os.unlink(name, dir_fd=target_fd)
                    raise
        return data
    finally:
        close_open(fd)


def _is_plain(fd: int, source: os.stat_result, how: _How) -> bool:
    size = source.st_size
    if not stat.S_ISREG(source.st_mode) or source.st_nlink > how.max_links:
        return False
    if size > max(how.max_bytes) or size > source.st_blocks * 512 or source.st_dev != how.device:
        return False
    if how.keep & _ATTRIBUTES and _has_attributes(fd, how.keep, how.ignored):
        return False
    return not (how.inode_flags and _has_flags(fd, how.inode_flags))


def _has_flags(fd: int, flags: int) -> bool:
    from pcircle.fs.attributes.xattrs import read_flags  # slow to import, and rarely needed

    return bool(read_flags(fd, flags))


def _moved(fd: int, out: int, size: int) -> bytes | memoryview | None:
    """Copy the content of a file and return it; None if its size is not as reported.

    One byte more than expected is read, in order to detect growth.
    """
    if size < _OWN_BYTES:
        data: bytes | memoryview = os.read(fd, size + 1)
    else:
        room = _room()[: size + 1]
        data = room[: os.readv(fd, [room])]
    if len(data) != size or (size and os.write(out, data) != size):
        return None
    return data


def _moved_range(fd: int, out: int, source: os.stat_result) -> int | None:
    """Let the kernel copy a whole file; return its size, or None if it changed.

    Raises OSError.
    """
    done, size = 0, source.st_size
    while done < size:
        count = os.copy_file_range(fd, out, size - done, done, done)
        if not count:
            return None
        done += count
    now = os.fstat(fd)
    before = size, source.st_mtime_ns, source.st_ctime_ns
    return size if before == (now.st_size, now.st_mtime_ns, now.st_ctime_ns) else None


def make_directories(
    sources: list[int],
    target_fd: int,
    names: list[bytes],
    modes: list[int],
    flags: int,
    keep: int,
    inode_flags: int,
    ignored: bytes,
    until_ns: int,
    /,
) -> tuple[bytes, bytes]:
    """Create directories and open them with `flags`; return 0 for each, and the descriptors.

    `sources` contains the descriptors of the source directories. A directory is not plain if its
    source has attributes to preserve, as in `copy_files`. If a directory was created but cannot be
    opened, its descriptor is replaced by ``-1 - errno``.
    """
    attributes = frozenset(os.fsdecode(ignored).split("\0"))
    if not len(sources) == len(modes) == len(names):
        raise TypeError("sources and modes must be lists of one for each name")
    opened = array("q", [UNTRIED]) * len(names)

    def make(place: int, name: bytes) -> int:
        source = sources[place]
        if keep & _ATTRIBUTES and _has_attributes(source, keep, attributes):
            return NOT_PLAIN
        if keep & ASK_LISTS and _has_attribute(source, _DEFAULT):
            return NOT_PLAIN
        if inode_flags and _has_flags(source, inode_flags):
            return NOT_PLAIN
        os.mkdir(name, modes[place], dir_fd=target_fd)
        try:
            opened[place] = os.open(name, flags, dir_fd=target_fd)
        except OSError as error:
            opened[place] = -1 - (error.errno or 0)
        return 0

    outcomes = _for_each(make, names, until_ns)
    return outcomes, opened.tobytes()


def settle_open(fds: list[int], sources: bytes, keep: int, owner: int, group: int, /) -> bytes:
    """Give open copies the owner, mode and times of their sources; return 0 for each.

    The attributes are set in this order. `sources` is a table of `COLUMNS` with a row for each
    copy. The present owner and group of all copies are `owner` and `group` (-1: unknown), and are
    not set if a source has the same. A copy that an ordinary user would have to give away is not
    plain.
    """
    row_bytes = _NUMBER_BYTES * len(COLUMNS)
    count, remainder = divmod(len(sources), row_bytes)
    if len(fds) != count or remainder:
        raise TypeError("fds must be a list of one for each row")
    column = memoryview(sources).cast("q").tolist()
    outcomes = array("q", bytes(_NUMBER_BYTES * count))
    for place, fd in enumerate(fds):
        row = dict(zip(COLUMNS, column[place::count], strict=True))
        bits = keep
        if (owner, group) == (row["uid"], row["gid"]):
            bits &= ~KEEP_OWNER
        if bits & KEEP_OWNER and os.geteuid() not in (0, row["uid"]):
            outcomes[place] = NOT_PLAIN
            continue
        try:
            if bits & KEEP_OWNER:
                os.chown(fd, row["uid"], row["gid"])
            if bits & KEEP_MODE:
                os.chmod(fd, row["mode"] & 0o7777)
            if bits & KEEP_TIMES:
                times = [_NS * row[name] + row[f"{name}_ns"] for name in ("atime", "mtime")]
                os.utime(fd, ns=(times[0], times[1]))
        except OSError as error:
            outcomes[place] = -1 - (error.errno or 0)
    return outcomes.tobytes()


def unlink_names(fd: int, names: list[bytes], directories: bool, until_ns: int, /) -> bytes:
    """Remove empty directories, or entries of all other kinds; return 0 for each."""
    remove = os.rmdir if directories else os.unlink

    def unlink(place: int, name: bytes) -> int:
        remove(name, dir_fd=fd)
        return 0

    return _for_each(unlink, names, until_ns)


def stat_names(fds: int | list[int], names: list[bytes], until_ns: int, /) -> tuple[bytes, bytes]:
    """Look up names without following links; return 0 for each, and a table of `COLUMNS`.

    The names are in one directory, or each is in its own; ``.`` and ``..`` are permitted. The row
    of a name that could not be looked up consists of zeros.
    """
    holders = _holders(fds, names)
    rows: list[os.stat_result | None] = [None] * len(names)

    def look(place: int, name: bytes) -> int:
        rows[place] = os.stat(name, dir_fd=holders[place], follow_symlinks=False)
        return 0

    return _for_each(look, names, until_ns, dots=True), table(rows)


def stat_open(fds: list[int], /) -> tuple[bytes, bytes]:
    """Look up open files like `stat_names`."""
    if not isinstance(fds, list):
        raise TypeError("fds must be a list")
    outcomes = array("q", bytes(_NUMBER_BYTES * len(fds)))
    rows: list[os.stat_result | None] = [None] * len(fds)
    for place, fd in enumerate(fds):
        try:
            rows[place] = os.fstat(fd)
        except OSError as error:
            outcomes[place] = -1 - (error.errno or 0)
    return outcomes.tobytes(), table(rows)


def list_directory(fd: int, max_names: int, until_ns: int, /) -> tuple[list[bytes], bytes] | None:
    """Return the names in a directory and their kinds (DT_*); None if there are too many.

    Kinds that the directory does not store are looked up; a kind is 0 if that fails or `until_ns`
    has passed. The directory is read from its beginning; if the result is None, it is rewound.
    Raises OSError.
    """
    os.lseek(fd, 0, os.SEEK_SET)
    return _listed(fd, max_names)


def scan_directories(
    fds: int | list[int],
    names: list[bytes],
    flags: int,
    device: int,
    kinds: int,
    max_each: int,
    max_all: int,
    looks: int,
    keeps: bool,
    max_parents: int,
    beneath: bool,
    sorts: bool,
    until_ns: int,
    /,
) -> tuple[bytes, list[int], bytes, bytes, bytes, bytes, bytes]:
    """List small directories; return the number of entries in each, and the entries.

    They are all in one parent directory, or each is in its own. A directory is opened with `flags`.
    It is plain if it is on `device` (-1: any; its own status is then not looked up) and has at most
    `max_each` entries, all of `kinds`. This is a mask with bit 1 << DT_* for each kind. If `looks`
    is not 0, the entries are looked up as well; if that fails for one, the directory is not plain.
    If `looks` is 2, subdirectories are not looked up: their rows contain the mode S_IFDIR, one link
    and zeros. `until_ns` may pass while a directory of more than 256 entries is being looked up.
    This directory then counts as not tried or, if it is the first one, as not plain. Directories
    whose entries may not fit in `max_all` are not tried. With `beneath`, directories on another
    mount fail, and so do all directories if the kernel has no openat2 (before Linux 5.6). With
    `sorts`, the entries of each directory are sorted by name.

    Return the outcomes and, for the plain directories in order: the descriptors; a table of their
    status from before they were read; the NUL-terminated names of all entries; the 64-bit end
    position of each directory's names in that text; the kinds of all entries; and, if looked up,
    their table. With `keeps`, all directories are kept open. Otherwise up to `max_parents`
    directories with subdirectories are kept open, and the descriptors of the others are -1 or
    missing at the end of the list.
    """
    if not 0 <= max_each <= max_all <= 1 << 20 or max_parents < 0:
        raise ValueError("max_each, max_all, max_parents")
    found = _ScanResult(kinds, (max_each, max_all, max_parents), until_ns, looks=looks, sorts=sorts)
    opens = _libc().open_beneath if beneath else os.open
    holders = _holders(fds, names)

    def scan(place: int, name: bytes) -> int:
        inner = opens(name, flags, dir_fd=holders[place])
        return found.add_open(inner, device, keeps=keeps)

    try:
        outcomes = _for_each(scan, names, until_ns, found.is_full)
    except BaseException:
        found.close()
        raise
    fds = found.fds if keeps or found.parents else []
    return outcomes, fds, *found.result()


def read_files(
    fds: int | list[int],
    names: list[bytes],
    flags: int,
    max_bytes: int,
    contents_bytes: int,
    until_ns: int,
    /,
) -> tuple[bytes, bytes]:
    """Read small files; return the size of each, and the contents.

    A plain file is a regular file of at most `max_bytes` that contains as many bytes as its status
    reports and, unless it is empty, has blocks. It is opened with `flags`. The contents follow each
    other, and undefined bytes may follow them. Files are not tried if their contents may not fit
    in `contents_bytes`, which must be more than `max_bytes`.
    """
    if not 0 <= max_bytes <= MAX_FILE_BYTES or contents_bytes <= max_bytes:
        raise ValueError("max_bytes")
    holders = _holders(fds, names)
    contents: list[bytes] = []
    left, room = contents_bytes, _room()

    def read(place: int, name: bytes) -> int:
        nonlocal left
        inner = os.open(name, flags, dir_fd=holders[place])
        try:
            status = os.fstat(inner)
            size = status.st_size
            if stat.S_IFMT(status.st_mode) != stat.S_IFREG or size > max_bytes:
                return NOT_PLAIN
            if size and not status.st_blocks:  # the data may be on tape
                return NOT_PLAIN
            # A time limit for file operations applies to readv, but not to read.
            if os.readv(inner, [room[: size + 1]]) != size:
                return NOT_PLAIN
            contents.append(bytes(room[:size]))
        finally:
            close_open(inner)
        left -= size
        return size

    result = _for_each(read, names, until_ns, lambda: left <= max_bytes)
    return result, b"".join(contents)


def ask_attributes(
    fds: int | list[int],
    names: list[bytes],
    keep: int,
    inode_flags: int,
    ignored: bytes,
    until_ns: int,
    /,
) -> bytes:
    """Return 1 for each entry that has attributes to preserve, otherwise 0.

    Links are not followed. Attributes and ACLs are looked up as in `copy_files`; for ``.`` and
    ``..``, so are default ACLs and `inode_flags`. The value is also 1 if a look-up fails.
    """
    holders = _holders(fds, names)
    attributes = frozenset(os.fsdecode(ignored).split("\0"))

    def ask(place: int, name: bytes) -> int:
        fd = holders[place]
        path = b"/proc/self/fd/%d/%b" % (fd, name)
        if name in (b".", b".."):
            if inode_flags and _has_flags(fd, inode_flags):
                return 1
            if keep & ASK_LISTS and _has_attribute(path, _DEFAULT):
                return 1
        return _has_attributes(path, keep, attributes)

    return _for_each(ask, names, until_ns, dots=True)


def change_names(
    fds: int | list[int],
    names: list[bytes],
    mode: int,
    uid: int,
    gid: int,
    until_ns: int,
    /,
) -> bytes:
    """Set the owner and group, and then the mode, of entries; return 0 for each.

    The value -1 leaves an attribute unchanged. Links are not followed. If a mode is set and the
    kernel has no fchmodat2 (before Linux 6.6), the outcome is ``-1 - ENOSYS``.
    """
    holders = _holders(fds, names)
    is_owner_set = (uid, gid) != (-1, -1)
    change_mode = _libc().change_mode if mode >= 0 else None

    def change(place: int, name: bytes) -> int:
        fd = holders[place]
        if is_owner_set:
            os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)
        if change_mode is not None:
            change_mode(fd, name, mode)
        return 0

    return _for_each(change, names, until_ns)


def format_entries(
    table: bytes,
    names: bytes,
    counts: list[int],
    order: list[int] | None,
    fields: Sequence[bytes | tuple[int, int, Any]],
    total: int,
    total_text: Callable[[int], bytes] | None,
    /,
) -> list[bytes]:
    """Format entries as bodies of text, one body for each number of entries in `counts`.

    `table` is empty or has a row for each of the NUL-terminated `names`. Entries appear in this
    order or, if given, in that of the positions in `order`, which may omit entries.

    The text of an entry consists of all `fields`. A field is bytes, or a tuple of a source, an
    alignment and a conversion. If the source is a column, the conversion of its numbers is None for
    decimal numbers, or a function that returns the text of a number. For times, it is a tuple
    (recent, distant, from_s, from_ns, until_s, until_ns). `recent` and `distant` return the
    template for a second. A time is recent if it is later than the first limit and not later than
    the second. In a template, ``%09d`` stands for the nanoseconds and ``%%`` for ``%``. For
    `OF_NAME`, the text is the name. For `OF_EACH` and `OF_BODY`, the conversion lists the text for
    each row or each body. Aligned fields are padded to the widest text in a body. If `total` is a
    column (-1: none), a body begins with the result of `total_text` for its sum.
    """
    texts = names.split(b"\0")
    if texts.pop():
        raise ValueError("names must end with a NUL")
    if table and len(table) != _NUMBER_BYTES * len(COLUMNS) * len(texts):
        raise ValueError("the table must have a row for each name")
    places: Sequence[int] = range(len(texts)) if order is None else order
    if sum(counts) != len(places) or min([*counts, *places], default=0) < 0:
        raise ValueError("counts, order")
    aligns, made = [], []
    for field in fields:
        if isinstance(field, bytes):
            aligns.append(AS_IS)
            made.append([field] * len(places))
            continue
        place, align, change = field
        if place == OF_BODY:
            found = list(chain.from_iterable(map(repeat, change, counts)))
        else:
            column = texts if place == OF_NAME else change
            if place >= 0:
                column = _texts_of(table, place, change)
            found = [column[at] for at in places]
        aligns.append(align)
        made.append(found)
    blocks = _column(table, total) if total >= 0 and table else [0] * len(texts)
    bodies = []
    for begin, end in pairwise(accumulate(counts, initial=0)):
        columns = [
            _aligned(align, column[begin:end]) for align, column in zip(aligns, made, strict=True)
        ]
        body = b"".join(map(b"".join, zip(*columns, strict=True)))
        if total >= 0 and total_text is not None:
            body = total_text(sum(blocks[at] for at in places[begin:end])) + body
        bodies.append(body)
    return bodies


def _column(table: bytes, place: int) -> list[int]:
    """Return the numbers of a column of a table."""
    is_plain = COLUMNS[place] in ("inode", "device", "rdev")
    numbers = memoryview(table).cast("Q" if is_plain else "q")
    count = len(numbers) // len(COLUMNS)
    return numbers[place * count : (place + 1) * count].tolist()


def _texts_of(table: bytes, place: int, change: Any) -> list[bytes]:
    """Return the text of a field for each number of a column."""
    column = _column(table, place)
    if change is None:
        return [b"%d" % number for number in column]
    if not isinstance(change, tuple):
        return list(map(change, column))
    recent, distant, *bounds = change
    first, last = tuple(bounds[:2]), tuple(bounds[2:])
    texts = []
    for at in zip(column, _column(table, place + 1), strict=True):
        template = (recent if first < at <= last else distant)(at[0])
        texts.append(template % (at[1:] * template.replace(b"%%", b"").count(b"%09d")))
    return texts


def _aligned(align: int, texts: list[bytes]) -> list[bytes]:
    """Pad each text to the width of the widest."""
    if align == AS_IS:
        return texts
    width = max(map(len, texts), default=0)
    return [
        text.rjust(width)
        if align == RIGHT or (align == AS_NUMBERS and text.isdigit())
        else text.ljust(width)
        for text in texts
    ]


def _for_each(
    act: Callable[[int, bytes], int],
    names: list[bytes],
    until_ns: int,
    enough: Callable[[], bool] | None = None,
    *,
    all_of_them: bool = True,
    dots: bool = False,
) -> bytes:
    """Act on positions and names in order until `until_ns` has passed or `enough` returns true.

    Unless `all_of_them` is true, stop after the first negative outcome. The names ``.`` and ``..``
    are permitted only with `dots`.
    """
    _refuse_names(names, dots=dots)
    outcomes = array("q", [UNTRIED]) * len(names)
    for place, name in enumerate(names):
        try:
            outcome = act(place, name)
        except OSError as error:
            outcome = -1 - (error.errno or 0)
        outcomes[place] = outcome
        if monotonic_ns() > until_ns or (enough is not None and enough()):
            break
        if outcome < 0 and not all_of_them:
            break
    return outcomes.tobytes()


def _refuse_names(names: list[bytes], *, dots: bool) -> None:
    if not isinstance(names, list):
        raise TypeError("names must be a list of bytes")
    if set(map(type, names)) - {bytes}:
        raise TypeError("names must be a list of bytes")
    text = b"\0%b\0" % b"\0".join(names)  # all names are tested at once
    is_refused = b"/" in text or b"\0\0" in text or text.count(b"\0") > len(names) + 1
    if not dots:
        is_refused = is_refused or b"\0.\0" in text or b"\0..\0" in text
    if names and is_refused:
        raise ValueError("not the name of an entry of a directory")


def _room() -> memoryview:
    """Return this thread's buffer, which is allocated on first use."""
    try:
        room: memoryview = _own.room
    except AttributeError:
        from pcircle.core.buffers import aligned

        room = _own.room = aligned(MAX_FILE_BYTES + 1)
    return room


def _has_attribute(file: int | bytes, name: str) -> bool:
    """Return whether an open file, or a path, has or may have this attribute."""
    try:
        os.getxattr(file, name, follow_symlinks=isinstance(file, int))
    except OSError as error:
        return error.errno not in _NO_ATTRIBUTE
    return True


def _has_attributes(file: int | bytes, keep: int, ignored: frozenset[str]) -> bool:
    """Return whether an open file, or a path, has attributes to preserve."""
    if keep & ASK_LISTS and _has_attribute(file, _ACCESS):
        return True
    if not keep & (KEEP_LISTS | KEEP_ATTRIBUTES):
        return False
    try:
        names = set(os.listxattr(file, follow_symlinks=isinstance(file, int)))
    except OSError as error:
        return error.errno not in _NO_ATTRIBUTE
    any_list = not names.isdisjoint((_ACCESS, _DEFAULT))
    return any_list or bool(keep & KEEP_ATTRIBUTES and names - ignored)


def _is_as(out: int, source: os.stat_result) -> bool:
    """Return whether an open copy has the mode, owner and group of its source."""
    made = os.fstat(out)
    expected = source.st_mode, source.st_uid, source.st_gid
    return (made.st_mode, made.st_uid, made.st_gid) == expected


def _settle(out: int, source: os.stat_result, keep: int, *, made_right: bool) -> None:
    """Give an open copy its owner, mode and times."""
    if not made_right:
        if keep & KEEP_OWNER:
            os.chown(out, source.st_uid, source.st_gid)
        if keep & KEEP_MODE:
            os.chmod(out, source.st_mode & 0o7777)
    if keep & KEEP_TIMES:
        os.utime(out, ns=(source.st_atime_ns, source.st_mtime_ns))


def _discard(out: int, directory_fd: int, name: bytes) -> None:
    """Remove an incomplete file, unless its name refers to another file by now."""
    with suppress(OSError):
        made = os.fstat(out)
        now = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if (made.st_dev, made.st_ino) == (now.st_dev, now.st_ino):
            os.unlink(name, dir_fd=directory_fd)


class _ScanResult:
    """The directories that `scan_directories` has listed so far, and their entries."""

    def __init__(
        self, allowed: int, limits: tuple[int, int, int], until_ns: int, *, looks: int, sorts: bool
    ) -> None:
        self._allowed = bytes(kind for kind in range(_KINDS) if allowed & 1 << kind)
        self._until_ns = until_ns
        self._max_each, self._max_all, self._max_parents = limits
        self.parents = 0
        self._looks, self._sorts = looks, sorts
        self.fds: list[int] = []
        self.own: list[os.stat_result | None] = []
        self.text = bytearray()
        self.ends = array("q")
        self.kinds = bytearray()
        self.rows: list[os.stat_result] = []
        self._buffer = _status_rows()
        self._row = 0  # the number of rows in the buffer
        self._tables: list[bytes] = []

    def add_open(self, fd: int, device: int, *, keeps: bool) -> int:
        """Add an open directory, and close it unless it is kept; return the outcome."""
        is_kept = False
        try:
            status = os.fstat(fd) if device >= 0 else None
            is_on_device = status is None or status.st_dev == device
            count = self._add(fd) if is_on_device else NOT_PLAIN
            if count >= 0:
                self.own.append(status)
                is_kept = self._is_parent(count) or keeps
                self.fds.append(fd if is_kept else -1)
            return count
        finally:
            if not is_kept:
                close_open(fd)

    def _add(self, fd: int) -> int:
        """Add the entries of an open directory; return their number, `NOT_PLAIN` or `UNTRIED`.

        Raises OSError.
        """
        found = _listed(fd, self._max_each)
        if found is None or not self._are_allowed(found[1]):
            return NOT_PLAIN
        names, kinds = found
        if names:
            if self._sorts:
                names, kinds = _sorted(names, kinds)
            if self._looks:
                looked_up = self._look(fd, names, kinds)
                if isinstance(looked_up, int):
                    return looked_up
                kinds = looked_up
            self.text += b"\0".join(names) + b"\0"
            self.kinds += kinds
        self.ends.append(len(self.text))
        return len(names)

    def _look(self, fd: int, names: list[bytes], kinds: bytes) -> bytes | int:
        """Look up the entries of a directory.

        Return their kinds, or why the directory is not added: `NOT_PLAIN` or `UNTRIED`.
        """
        if self._row + len(names) > _SMALL:
            self._pack()
        before = self._row, len(self._tables), len(self.rows)
        seen = b""
        reason = 0
        for begin in range(0, len(names), _SMALL):
            if begin and monotonic_ns() > self._until_ns:
                reason = UNTRIED if self.own else NOT_PLAIN
                break
            part = slice(begin, begin + _SMALL)
            if self._buffer is None:
                found = self._look_by_name(fd, names[part], kinds[part])
            else:
                found = self._look_in_buffer(self._buffer, fd, names[part], kinds[part])
            if found is None or not self._are_allowed(found):  # an entry was replaced or removed
                reason = NOT_PLAIN
                break
            seen += found
        if reason:
            self._row = before[0]
            del self._tables[before[1] :], self.rows[before[2] :]
        return reason or seen

    def _look_in_buffer(
        self, buffer: StatusRows, fd: int, names: list[bytes], kinds: bytes
    ) -> bytes | None:
        """Look up at most `_SMALL` entries; return their kinds, or None if a look-up fails."""
        if self._row + len(names) > _SMALL:
            self._pack()
        first, self._row = self._row, self._row + len(names)
        rows: Sequence[int] = range(first, self._row)
        if self._looks == _ALL or _DIRECTORY not in kinds:
            is_done = buffer.look(fd, names, rows)
        else:
            buffer.set_directories(first, kinds)
            others = [place for place, kind in enumerate(kinds) if kind != _DIRECTORY]
            is_done = buffer.look(fd, [names[at] for at in others], [rows[at] for at in others])
        if not is_done:
            return None
        found = buffer.kinds(first, len(names))
        if self._looks != _ALL and found != kinds:
            buffer.set_directories(first, found)
        return found

    def _look_by_name(self, fd: int, names: list[bytes], kinds: bytes) -> bytes | None:
        """Do the same without statx."""
        rows: list[os.stat_result] = []
        try:
            for name, kind in zip(names, kinds, strict=True):
                row = _ONLY_KIND
                if self._looks == _ALL or kind != _DIRECTORY:
                    row = os.stat(name, dir_fd=fd, follow_symlinks=False)
                is_one = self._looks != _ALL and stat.S_ISDIR(row.st_mode)
                rows.append(_ONLY_KIND if is_one else row)
        except OSError:
            return None
        self.rows += rows
        return bytes([row.st_mode >> 12 for row in rows])

    def _pack(self) -> None:
        """Append the rows of the buffer to the tables."""
        if self._buffer is not None and self._row:
            self._tables.append(self._buffer.table(self._row))
        self._row = 0

    def _table(self) -> bytes:
        """Return the table of all entries that were looked up."""
        if self._buffer is None:
            return table(self.rows)
        self._pack()
        parts = []
        for column in range(len(COLUMNS)):
            for part in self._tables:
                size = len(part) // len(COLUMNS)
                parts.append(part[column * size : (column + 1) * size])
        return b"".join(parts)

    def _is_parent(self, count: int) -> bool:
        """Return whether the last directory, of `count` entries, is kept as a parent; count it."""
        is_one = self._max_parents > 0 and _DIRECTORY in self.kinds[len(self.kinds) - count :]
        self.parents += is_one
        return is_one

    def is_full(self) -> bool:
        """Return whether another directory may exceed a limit."""
        if 0 < self._max_parents == self.parents:
            return True
        return len(self.kinds) + self._max_each > self._max_all

    def result(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Return the result of `scan_directories` except for outcomes and descriptors."""
        text, ends = bytes(self.text), self.ends.tobytes()
        return table(self.own), text, ends, bytes(self.kinds), self._table()

    def close(self) -> None:
        """Close the directories that are kept open."""
        for fd in self.fds:
            if fd >= 0:
                os.close(fd)

    def _are_allowed(self, kinds: bytes) -> bool:
        return not kinds.translate(None, self._allowed)


def _sorted(names: list[bytes], kinds: bytes) -> tuple[list[bytes], bytes]:
    """Sort names with their kinds."""
    if len(set(kinds)) == 1:
        return sorted(names), kinds
    pairs = sorted(zip(names, kinds, strict=True))
    return [name for name, _ in pairs], bytes([kind for _, kind in pairs])


def _holders(fds: int | list[int], names: list[bytes]) -> list[int]:
    """Return the directory descriptor of each name."""
    if isinstance(fds, int):
        return [fds] * len(names)
    if len(fds) != len(names):
        raise TypeError("fds must be an int, or a list of one for each name")
    return fds


def table(rows: Sequence[os.stat_result | None]) -> bytes:
    """Return a table of rows; a row that is None consists of zeros."""
    if not rows:
        return b""
    found = [row or _NOTHING for row in rows]
    # All of a status but six fields are its items. They are integers, also the times.
    mode, inode, device, links, uid, gid, size, *seconds = zip(*found, strict=True)
    blocks, block_size, rdev, *times = zip(*map(_OTHER_FIELDS, found), strict=True)
    columns: list[Sequence[int]]
    columns = [mode, links, uid, gid, size, blocks, block_size, inode, device, rdev]
    for time_s, time_ns in zip(seconds, times, strict=True):
        columns += [time_s, [ns % _NS for ns in time_ns]]
    pack = struct.Struct(f"{len(rows)}q").pack
    parts = []
    for column in columns:
        try:
            parts.append(pack(*column))
        except struct.error:  # inode numbers may use all 64 bits
            parts.append(struct.pack(f"{len(rows)}Q", *column))
    return b"".join(parts)


def _libc() -> ModuleType:
    from pcircle.fs.native import libc  # ctypes is slow to import

    return libc


def _status_rows() -> StatusRows | None:
    """Return this thread's rows; None if there are none, or if calls of `os` have a time limit."""
    if OperationTimeout.limit_s is not None:
        return None
    try:
        found: StatusRows | None = _libc().status_rows()
    except ImportError:  # Python was built without ctypes
        return None
    return found


def _listed(fd: int, max_names: int) -> tuple[list[bytes], bytes] | None:
    """Read an open directory, which has not been read: names and kinds; None if there are too many.

    Raises OSError.
    """
    with os.scandir(to_scan(fd)) as scan:
        entries: list[os.DirEntry[Any]] = list(islice(scan, max_names + 1))
    return None if len(entries) > max_names else (_names(entries), _kinds(entries))


def _names(entries: list[os.DirEntry[Any]]) -> list[bytes]:
    names = [entry.name for entry in entries]
    if not names or isinstance(names[0], bytes):
        return names
    return os.fsencode("\0".join(names)).split(b"\0")  # faster than one by one


def _kinds(entries: list[os.DirEntry[Any]]) -> bytes:
    """Return the kinds of entries (DT_*); 0 where unknown."""
    try:
        return bytes(
            [
                _REGULAR if entry.is_file(follow_symlinks=False) else _kind(entry)
                for entry in entries
            ]
        )
    except OSError:  # the kind of an entry cannot be looked up
        return bytes(map(_kind, entries))


def _kind(entry: os.DirEntry[Any]) -> int:
    """Return the kind of an entry (DT_*); 0 if unknown."""
    try:
        if entry.is_file(follow_symlinks=False):
            return stat.S_IFREG >> 12
        if entry.is_dir(follow_symlinks=False):
            return stat.S_IFDIR >> 12
        if entry.is_symlink():
            return stat.S_IFLNK >> 12
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12
    except OSError:
        return 0
