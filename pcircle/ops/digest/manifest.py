"""Manifests: text files that contain the digest of every entry of a tree.

A manifest contains one section per directory, in the order of a walk that compares names as bytes.
A section contains one line per entry, ordered by name. Therefore the file is the same for any
number of ranks and can be read as a stream. Any directory can be found by bisection, without an
index.

`docs/manifest.rst` defines the format. In short:

    pcmanifest 1 ALGORITHM
    root KIND DIGEST SIZE MTIME CTIME PATH
    dir PATH
    KIND DIGEST SIZE MTIME CTIME NAME      ... the entries of PATH
    . COUNT DIGEST CHECK                   ends the section
    end ENTRIES BYTES CHECK

A manifest with checksums of whole files has version 2, `pcmanifest 2 ALGORITHM CHECKSUM`, and the
lines of regular files have another word before NAME.

Each rank writes the sections of the directories that it completes as separate records
(`SectionWriter`). The record store sorts them, and rank 0 concatenates them into one file
(`write_manifest`).
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from binascii import a2b_qp
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias

import xxhash

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.directories import close_open, join_path
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.fs.safe_open import reading
from pcircle.ops.digest.checksums import NAMES, digest_bytes
from pcircle.ops.digest.digests import TRAILER_BYTES, Algorithm, get_algorithm, unpack_trailer
from pcircle.ops.digest.signer import COUNT, pack_entry

_MAX_LINE_BYTES = 16 << 20
_LOOKUP_BYTES = 1 << 20  # upper bound for the bytes that a bisection touches
_MAX_MAPPED_BYTES = 32 << 20
_NEEDS_ESCAPE = re.compile(rb"[^!-$&-~]")  # space, `%`, and anything but printable ASCII
_ENTRY = re.compile(
    rb"([fdlpscb]) ([0-9a-f]+) ([0-9]{1,20}) (-?[0-9]{1,28}) (-?[0-9]{1,28})"
    rb"(?: ([0-9a-f]+))? ([^ ]*)"
)
_ESCAPED = [
    b"%%%02X" % byte if _NEEDS_ESCAPE.match(bytes([byte])) else bytes([byte]) for byte in range(256)
]
_INVALID_NAMES = (b"", b".", b"..")
MAGIC = b"pcmanifest "
_MAX_LOADED = 4096  # maximum number of entries to load into a dictionary

FindEntry: TypeAlias = "Callable[[bytes], ManifestEntry | None]"


def is_manifest(path: bytes) -> bool:
    """Return whether the file at `path` starts with the magic of a manifest."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        fd = os.open(path, OPEN_FILE & ~os.O_NOFOLLOW)
        try:
            return os.read(fd, len(MAGIC)) == MAGIC
        finally:
            close_open(fd)
    except OSError:  # for example, a file in /proc that has no data yet
        return False


def escape(name: bytes) -> bytes:
    """Escape a name for a manifest: `%`, space, and all but printable ASCII become `%XX`."""
    if _NEEDS_ESCAPE.search(name) is None:
        return name
    return b"".join([_ESCAPED[byte] for byte in name])


def unescape(text: bytes) -> bytes:
    """Reverse `escape`. Raises ValueError if `text` is not in the form that `escape` produces."""
    if _NEEDS_ESCAPE.search(text) is None:
        return text
    name = _unescape_valid(text)
    if escape(name) != text:
        raise ValueError("a name is not escaped properly")
    return name


def _unescape_valid(text: bytes) -> bytes:
    """Reverse `escape` without validation.

    Apart from the escape character, the encoding is quoted-printable, which the standard library
    decodes quickly.
    """
    return a2b_qp(text.replace(b"=", b"=3D").replace(b"%", b"="))


class ManifestEntry(NamedTuple):
    """An entry of a manifest, with the binary digest and with times in nanoseconds.

    The size of a directory is the total size of the files below it. `checksum` is the binary digest
    of the whole content of a file, if the manifest records it.
    """

    name: bytes
    kind: bytes
    digest: bytes
    size: int
    modified_ns: int
    changed_ns: int
    checksum: bytes = b""

    def line(self) -> bytes:
        """Return the line of the entry in a manifest."""
        return b"%b %b %d %d %d %b%b\n" % (
            self.kind,
            self.digest.hex().encode(),
            self.size,
            self.modified_ns,
            self.changed_ns,
            b"%b " % self.checksum.hex().encode() if self.checksum else b"",
            escape(self.name),
        )


def unpack_entry(name: bytes, packed: bytes, digest_bytes: int) -> ManifestEntry:
    """Convert a packed entry with a trailer, in the form that an `EntriesCallback` receives."""
    at = 2 + len(name)
    end = at + 1 + digest_bytes
    kind = packed[at : at + 1]
    checksum = packed[end + TRAILER_BYTES :] if kind == b"f" else b""
    return ManifestEntry(name, kind, packed[at + 1 : end], *unpack_trailer(packed, end), checksum)


def parse_entry(line: bytes, digest_bytes: int) -> ManifestEntry:
    """Parse an entry line. Raises ValueError if it is malformed."""
    match = _ENTRY.fullmatch(line)
    if match is None:
        raise ValueError("not an entry line")
    kind, digest, size, modified, changed, checksum, name = match.groups()
    if len(digest) != 2 * digest_bytes:
        raise ValueError("a digest has the wrong length")
    digests = [bytes.fromhex((text or b"").decode()) for text in (digest, checksum)]
    times = int(modified), int(changed)
    return ManifestEntry(unescape(name), kind, digests[0], int(size), *times, digests[1])


# ---- writing ---------------------------------------------------------------------------------


class SectionRecords(Protocol):
    """The store for the sections of a rank; it sorts them by path at the end."""

    def begin(self) -> None:
        """Start a record."""

    def put(self, data: bytes) -> None:
        """Append text to the record. Raises OSError."""

    def end(self, path: bytes) -> None:
        """Finish the record and assign it to a path. Raises OSError."""


def pair_entries(
    a: Iterator[ManifestEntry], b: Iterator[ManifestEntry]
) -> Iterator[tuple[ManifestEntry | None, ManifestEntry | None]]:
    """Pair the entries of a directory in two manifests by name."""
    old, new = next(a, None), next(b, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old.name < new.name):
            yield old, None
            old = next(a, None)
        elif old is None or new.name < old.name:
            yield None, new
            new = next(b, None)
        else:
            yield old, new
            old, new = next(a, None), next(b, None)


class SectionWriter:
    """Writes the sections of a rank, each as a separate record. Raises OSError."""

    def __init__(self, records: SectionRecords) -> None:
        self._records = records
        self._check = xxhash.xxh3_64()

    def begin(self, path: bytes) -> None:
        """Start the section of a directory."""
        self._records.begin()
        self._check = xxhash.xxh3_64()
        self._put(_heading(path))

    def add(self, entries: Iterable[ManifestEntry]) -> None:
        """Append entries, ordered by name."""
        self._put(b"".join([entry.line() for entry in entries]))

    def end(self, path: bytes, count: int, digest: bytes) -> None:
        """Finish the section."""
        check = self._check.hexdigest().encode()
        self._put(b". %d %b %b\n" % (count, digest.hex().encode(), check))
        self._records.end(path)

    def _put(self, lines: bytes) -> None:
        self._check.update(lines)
        self._records.put(lines)


def _heading(path: bytes) -> bytes:
    """Return the first line of the section of a directory."""
    return b"dir %b\n" % (escape(path) or b".")


def sort_key(path: bytes) -> bytes:
    """Return the sort key of a directory's path."""
    return path.replace(b"/", b"\0")


def write_manifest(
    sections: Iterable[bytes],
    out: BinaryIO,
    name: str,
    root: ManifestEntry,
    entries: Callable[[], int],
    checksum: str = "",
) -> None:
    """Write a manifest from the text of its sections, given in order. Raises OSError.

    `name` and `checksum` are the algorithms of the digests and of the checksums. `entries` returns
    the total number of entries and is called after the last section. The checksum at the end covers
    everything before it, so one process writes the whole file.
    """
    check = xxhash.xxh3_128()

    def put(data: bytes) -> None:
        check.update(data)
        out.write(data)

    words = ["2", name, checksum] if checksum else ["1", name]
    put(b"pcmanifest %b\n" % " ".join(words).encode())
    put(b"root " + root.line())
    for data in sections:
        put(data)
    put(b"end %d %d " % (entries(), root.size))
    out.write(check.hexdigest().encode() + b"\n")


# ---- reading ---------------------------------------------------------------------------------


class DamagedManifestError(ValueError):
    """The manifest is corrupt; the message contains the line number."""


class Manifest:
    """A manifest that is open for reading, with its `text`.

    `checksum` is the algorithm of its checksums, if any.

    Opening it raises OSError, or DamagedManifestError if the beginning is malformed. Only the
    beginning is checked; `verify` checks the whole file.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._read_bytes = 0
        self._finder: tuple[bytes, FindEntry] | None = None
        with open(reading(path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            self.text: mmap.mmap | bytes = (
                mmap.mmap(stream.fileno(), size, prot=mmap.PROT_READ) if size else b""
            )
        head = self._line_at(0)
        words = head.split(b" ")
        if len(words) < 3 or words[0] != b"pcmanifest":
            raise DamagedManifestError("line 1: not an fsum manifest")
        if not words[1].isdigit() or not words[2].isalnum():
            raise DamagedManifestError("line 1: version or algorithm missing")
        if words[1] not in (b"1", b"2"):
            raise DamagedManifestError(f"line 1: unsupported version {words[1][:20].decode()}")
        self.checksum: str = b" ".join(words[3:])[:20].decode("ascii", "replace")
        self.checksum_bytes: int = digest_bytes(self.checksum) if self.checksum in NAMES else 0
        if len(words) != int(words[1]) + 2 or (self.checksum and not self.checksum_bytes):
            raise DamagedManifestError("line 1: invalid checksum algorithm")
        try:
            self.algorithm: Algorithm = get_algorithm(words[2][:20].decode())
        except ValueError as error:
            raise DamagedManifestError(f"line 1: {error}") from None
        line = self._line_at(len(head) + 1)
        try:
            if not line.startswith(b"root "):
                raise ValueError("expected the line for the root")
            self.root: ManifestEntry = parse_entry(line[5:], self.algorithm.size)
            if not self.root.name.startswith(b"/") or b"\0" in self.root.name:
                raise ValueError("the root path is not absolute")
            _check_checksum(self.root, self.checksum_bytes)
        except ValueError as error:
            raise DamagedManifestError(f"line 2: {error}") from None
        self._begin = len(head) + len(line) + 2

    def _line_at(self, at: int) -> bytes:
        end = self.text.find(b"\n", at)
        return self.text[at : end if end >= 0 else len(self.text)]

    # ---- all of it -------------------------------------------------------------

    def verify(self) -> None:
        """Check the whole file.

        Raises OSError, or DamagedManifestError with the line number if the file is damaged. The
        digests of directories are recomputed from their entries up to the root. The digest of the
        root therefore authenticates the names, types and digests of all entries. Sizes, times and
        checksums are protected only against accidental damage.
        """
        reader = _Verifier(self)
        with open(reading(self._path), "rb") as stream:
            number = 0
            while line := stream.readline(_MAX_LINE_BYTES):
                number += 1
                try:
                    reader.take(number, line)
                except ValueError as error:
                    raise DamagedManifestError(f"line {number}: {error}") from None
        if not reader.ended:
            raise DamagedManifestError(f"line {number + 1}: it is truncated")

    # ---- one directory ---------------------------------------------------------

    def section(self, path: bytes) -> ManifestSection | None:
        """Find the section of a directory by bisection; return None if there is none."""
        sought = sort_key(path)
        low, high = self._begin, len(self.text)
        while low < high:
            begin = self._find_section((low + high) // 2, low)
            if begin < 0 or begin >= high:
                high = (low + high) // 2
                continue
            line = self._line_at(begin)
            key = _parse_heading(line)
            if key == sought:
                return self._read_section(begin + len(line) + 1)
            if key < sought:
                low = begin + len(line) + 1
            else:
                high = begin
        return None

    def entries(self, path: bytes) -> Iterator[ManifestEntry]:
        """Yield the entries of a directory in order, or no entries if the directory is unknown."""
        return iter(self.section(path) or ())

    def entry(self, path: bytes) -> ManifestEntry | None:
        """Return the entry with this path, or None if there is none."""
        above, _, name = path.rpartition(b"/")
        return self.finder(above)(name) if path else self.root

    def finder(self, path: bytes) -> FindEntry:
        """Return a function that finds the entries of a directory by name; not thread-safe."""
        if self._finder is None or self._finder[0] != path:
            section = self.section(path)
            if section is not None and section.count > _MAX_LOADED:
                self._finder = path, section.find
            else:
                self._finder = path, {entry.name: entry for entry in section or ()}.get
        return self._finder[1]

    def sections(self) -> Iterator[tuple[bytes, ManifestSection]]:
        """Yield the sort key and the section of each directory, in order."""
        at = self._begin
        while self.text[at : at + 4] == b"dir ":
            line = self._line_at(at)
            section = self._read_section(at + len(line) + 1)
            yield _parse_heading(line), section
            at = section.after

    def _find_section(self, at: int, least: int) -> int:
        """Return the offset of the next section, or -1 if there is none."""
        if at <= least and self.text[least : least + 4] == b"dir ":
            return least
        found = self.text.find(b"\ndir ", max(at - 1, least - 1))
        return found + 1 if found >= 0 else -1

    def _read_section(self, begin: int) -> ManifestSection:
        end = begin
        if self.text[begin : begin + 2] != b". ":  # the section is not empty
            end = self.text.find(b"\n. ", begin) + 1
        words = self._line_at(end).split(b" ")
        digest = bytes.fromhex(words[2].decode())
        self.count_read(_LOOKUP_BYTES)
        return ManifestSection(self, begin, end, int(words[1]), digest)

    def count_read(self, count: int) -> None:
        """Count bytes that were read, and regularly unmap the pages that they occupy.

        The pages stay in the page cache of the system, but no longer count as memory of this
        process.
        """
        self._read_bytes += count
        if self._read_bytes > _MAX_MAPPED_BYTES and isinstance(self.text, mmap.mmap):
            self.text.madvise(mmap.MADV_DONTNEED)
            self._read_bytes = 0


def read_manifest(path: bytes) -> Manifest:
    """Read and verify a manifest; raise UsageError if it is unreadable or damaged."""
    try:
        manifest = Manifest(path)
        manifest.verify()
    except DamagedManifestError as error:
        raise UsageError(f"'{show(path)}' is damaged or not a manifest: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read '{show(path)}': {error.strerror}") from None
    return manifest


def _parse_heading(line: bytes) -> bytes:
    """Return the sort key of a directory from a line that `_heading` returned."""
    path = _unescape_valid(line[4:])
    return b"" if path == b"." else sort_key(path)


def _check_checksum(entry: ManifestEntry, checksum_bytes: int) -> None:
    """Raise ValueError unless files have checksums of this length, and other entries none."""
    if len(entry.checksum) != (checksum_bytes if entry.kind == b"f" else 0):
        raise ValueError("a checksum is missing or has the wrong length")


class _Verifier:
    """Checks the lines of a manifest one by one. Raises ValueError for an invalid line.

    A section must end with the digest that the section of the parent contains for its directory,
    and every directory must have a section. The verifier finds the next expected directory by
    reading the sections of the parents again, because there may be too many directories to store.
    """

    def __init__(self, manifest: Manifest) -> None:
        root = manifest.root
        self.ended = False
        self._manifest = manifest
        self._algorithm = manifest.algorithm
        self._at = 0
        self._whole = xxhash.xxh3_128()
        self._section = xxhash.xxh3_64()
        self._digest = self._algorithm.new()  # hasher of the current directory
        self._expected = b""
        self._path = b""
        self._inside = False
        self._name = b""
        self._begin = 0  # offset of the current section's entries
        self._count = 0
        self._directories = 0
        self._entries = 1
        pending = [root._replace(name=b"")] if root.kind == b"d" else []
        self._pending = [(b"", iter(pending))]

    def take(self, number: int, line: bytes) -> None:
        """Check the next line."""
        if not line.endswith(b"\n"):
            raise ValueError("it is truncated")
        if self.ended:
            raise ValueError("data after the end")
        if number <= 2:  # checked when the manifest was opened
            pass
        elif self._inside and line.startswith(b". "):
            self._end_section(line)
        elif self._inside:
            self._check_entry(line)
        elif line.startswith(b"dir "):
            self._begin_section(line)
        elif line.startswith(b"end "):
            self._check_end(line)
        else:
            raise ValueError("it belongs to no section")
        self._whole.update(line)
        self._at += len(line)

    def _begin_section(self, line: bytes) -> None:
        pending = self._next_pending()
        if pending is None:
            raise ValueError("its directory is not listed, or listed twice")
        if line != _heading(pending[0]):
            raise ValueError("a section belongs to a different directory than expected")
        self._path, self._expected = pending
        self._name, self._count, self._directories, self._inside = b"", 0, 0, True
        self._begin = self._at + len(line)
        self._section = xxhash.xxh3_64(line)
        self._digest = self._algorithm.new()
        self._digest.update(b"dir\0")

    def _next_pending(self) -> tuple[bytes, bytes] | None:
        """Return the path and digest of the directory whose section must come next, or None."""
        while self._pending:
            path, entries = self._pending[-1]
            entry = next(entries, None)
            if entry is not None:
                return (join_path(path, entry.name) if entry.name else b""), entry.digest
            self._pending.pop()
        return None

    def _check_entry(self, line: bytes) -> None:
        entry = parse_entry(line[:-1], self._algorithm.size)
        _check_checksum(entry, self._manifest.checksum_bytes)
        name = entry.name
        if name <= self._name and self._count:
            raise ValueError("names are not in order")
        if name in _INVALID_NAMES or b"/" in name or b"\0" in name:
            raise ValueError("not a valid entry name")
        self._name = name
        self._count += 1
        self._directories += entry.kind == b"d"
        self._section.update(line)
        self._digest.update(pack_entry(name, entry.kind, entry.digest))

    def _end_section(self, line: bytes) -> None:
        check = self._section.hexdigest().encode()
        words = line[:-1].split(b" ")
        if len(words) != 4 or words[1] != b"%d" % self._count or words[3] != check:
            raise ValueError("checksum mismatch in the section that ends here")
        self._digest.update(COUNT.pack(self._count))
        digest = self._digest.digest()
        if words[2] != digest.hex().encode() or digest != self._expected:
            raise ValueError("the directory's digest does not match its entries")
        if self._directories:
            section = ManifestSection(self._manifest, self._begin, self._at, self._count, digest)
            self._pending.append((self._path, section.directories()))
        self._entries += self._count
        self._inside = False

    def _check_end(self, line: bytes) -> None:
        if self._next_pending() is not None:
            raise ValueError("the section of a directory is missing")
        words = line[:-1].split(b" ")
        self._whole.update(line[: -1 - len(words[-1])])
        if len(words) != 4 or words[3] != self._whole.hexdigest().encode():
            raise ValueError("checksum mismatch")
        if words[1:3] != [b"%d" % self._entries, b"%d" % self._manifest.root.size]:
            raise ValueError("the number of entries or bytes is wrong")
        self.ended = True


class ManifestSection:
    """The entries of one directory in a manifest, and the directory's digest."""

    def __init__(self, manifest: Manifest, begin: int, end: int, count: int, digest: bytes) -> None:
        self.count = count
        self.digest = digest
        self._text = manifest.text
        self._begin = begin
        self._end = end
        self._digest_bytes = len(digest)
        self._count_read = manifest.count_read

    def __iter__(self) -> Iterator[ManifestEntry]:
        at = reported = self._begin
        while at < self._end:
            stop = self._text.find(b"\n", at)
            yield parse_entry(self._text[at:stop], self._digest_bytes)
            at = stop + 1
            if at - reported > _LOOKUP_BYTES or at >= self._end:
                self._count_read(at - reported)
                reported = at

    @property
    def after(self) -> int:
        """The offset of the next section."""
        return self._text.find(b"\n", self._end) + 1

    def text(self) -> Iterator[bytes]:
        """Yield the text of the section in pieces."""
        at, after = self._text.rfind(b"dir ", 0, self._begin), self.after
        while at < after:
            yield self._text[at : min(at + _LOOKUP_BYTES, after)]
            at += _LOOKUP_BYTES
            self._count_read(_LOOKUP_BYTES)

    def directories(self) -> Iterator[ManifestEntry]:
        """Yield the entries that are directories."""
        at = reported = self._begin - 1  # include the newline before the first entry
        while (at := self._text.find(b"\nd ", at, self._end)) >= 0:
            stop = self._text.find(b"\n", at + 1)
            yield parse_entry(self._text[at + 1 : stop], self._digest_bytes)
            at = stop
            if at - reported > _LOOKUP_BYTES:
                self._count_read(at - reported)
                reported = at

    def find(self, name: bytes) -> ManifestEntry | None:
        """Find an entry by name with bisection; return None if there is none."""
        low, high = self._begin, self._end
        self._count_read(_LOOKUP_BYTES)
        while low < high:
            middle = self._text.rfind(b"\n", low, (low + high) // 2) + 1 or low
            stop = self._text.find(b"\n", middle)
            found = _unescape_valid(self._text[middle:stop].rpartition(b" ")[2])
            if found == name:
                return parse_entry(self._text[middle:stop], self._digest_bytes)
            if found < name:
                low = stop + 1
            else:
                high = middle
        return None
