"""Manifests: the digests of every entry of a tree, in a file of text.

A manifest is made of sections, one for each directory, in the order of a walk
that takes names as bytes; a section has a line for each entry, in the order of
their names. So it is the same bytes whoever read what, it can be read as a
stream, and any directory is found in it by bisection, without an index.

`docs/manifest.rst` has the format. In short:

    pcmanifest 1 ALGORITHM
    root KIND DIGEST SIZE MTIME CTIME PATH
    dir PATH
    KIND DIGEST SIZE MTIME CTIME NAME      ... the entries of PATH
    . COUNT DIGEST CHECK                   ends the section
    end ENTRIES BYTES CHECK

Each rank writes the sections of the directories that it completes to records of
its own (`SectionWriter`); these are put in order by whoever keeps them, and rank 0
makes one file of them (`assemble`).
"""

from __future__ import annotations

import mmap
import os
import re
from binascii import a2b_qp
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple, Protocol

import xxhash

from pcircle.fs.directories import join_path
from pcircle.signature.algorithms import Algorithm, algorithm
from pcircle.signature.digests import unpack_beside
from pcircle.signature.runs import COUNT, pack_entry
from pcircle.trusted import reading

VERSION = b"1"
_LONGEST_BYTES = 16 << 20  # of a line
_SEARCHED_BYTES = 1 << 20  # what a search of a directory or a name touches, at the most
_SEEN_BYTES = 32 << 20
_ODD = re.compile(rb"[^!-$&-~]")  # what is not printable ASCII, or is the percent sign
_ENTRY = re.compile(rb"([fdlpscb]) ([0-9a-f]+) ([0-9]{1,20}) (-?[0-9]{1,28}) (-?[0-9]{1,28}) (.*)")
_ESCAPED = [b"%%%02X" % byte if _ODD.match(bytes([byte])) else bytes([byte]) for byte in range(256)]
_NO_NAMES = (b"", b".", b"..")


def escape(name: bytes) -> bytes:
    """A name as it stands in a manifest: other bytes than printable ASCII are `%XX`."""
    if _ODD.search(name) is None:
        return name
    return b"".join([_ESCAPED[byte] for byte in name])


def unescape(text: bytes) -> bytes:
    """The name that `escape` made a text of. ValueError if it made it of none."""
    if _ODD.search(text) is None:
        return text
    name = _unescaped(text)
    if escape(name) != text:
        raise ValueError("a name is not escaped properly")
    return name


def _unescaped(text: bytes) -> bytes:
    """As `unescape`, of what `escape` is known to have made.

    But for the sign these are the codes of mail, which Python reads at once, not byte by byte.
    """
    return a2b_qp(text.replace(b"=", b"=3D").replace(b"%", b"="))


class Entry(NamedTuple):
    """An entry. `digest` are raw bytes, times in nanoseconds; a directory's size is all below."""

    name: bytes
    kind: bytes
    digest: bytes
    size: int
    modified_ns: int
    changed_ns: int

    def line(self) -> bytes:
        """Its line in a manifest."""
        return b"%b %b %d %d %d %b\n" % (
            self.kind,
            self.digest.hex().encode(),
            self.size,
            self.modified_ns,
            self.changed_ns,
            escape(self.name),
        )


def unpack(name: bytes, packed: bytes, digest_bytes: int) -> Entry:
    """An entry as it comes to `Visitor`."""
    at = 2 + len(name)
    end = at + 1 + digest_bytes
    return Entry(name, packed[at : at + 1], packed[at + 1 : end], *unpack_beside(packed, end))


def parse(line: bytes, digest_bytes: int) -> Entry:
    """The entry of a line. ValueError if it is none."""
    match = _ENTRY.fullmatch(line)
    if match is None:
        raise ValueError("not an entry line")
    kind, digest, size, modified, changed, name = match.groups()
    if len(digest) != 2 * digest_bytes:
        raise ValueError("a digest has the wrong length")
    return Entry(
        unescape(name), kind, bytes.fromhex(digest.decode()), int(size), int(modified), int(changed)
    )


# ---- writing ---------------------------------------------------------------------------------


class Records(Protocol):
    """Where a rank's sections go: records with text, sorted by their paths in the end."""

    def begin(self) -> None:
        """A record begins."""

    def put(self, data: bytes) -> None:
        """More of its text. OSError."""

    def end(self, path: bytes) -> None:
        """It is complete, and belongs to this path. OSError."""


def side_by_side(
    a: Iterator[Entry], b: Iterator[Entry]
) -> Iterator[tuple[Entry | None, Entry | None]]:
    """The entries of a directory in two manifests, by name."""
    was, now = next(a, None), next(b, None)
    while was is not None or now is not None:
        if now is None or (was is not None and was.name < now.name):
            yield was, None
            was = next(a, None)
        elif was is None or now.name < was.name:
            yield None, now
            now = next(b, None)
        else:
            yield was, now
            was, now = next(a, None), next(b, None)


class SectionWriter:
    """Writes one rank's sections, each into a record of its own. OSError."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._check = xxhash.xxh3_64()

    def begin(self, path: bytes) -> None:
        """The section of a directory begins."""
        self._records.begin()
        self._check = xxhash.xxh3_64()
        self._put(_heading(path))

    def add(self, entries: Iterable[Entry]) -> None:
        """Entries of it, in the order of their names."""
        self._put(b"".join([entry.line() for entry in entries]))

    def end(self, path: bytes, count: int, digest: bytes) -> None:
        """The section is complete."""
        check = self._check.hexdigest().encode()
        self._put(b". %d %b %b\n" % (count, digest.hex().encode(), check))
        self._records.end(path)

    def _put(self, lines: bytes) -> None:
        self._check.update(lines)
        self._records.put(lines)


def _heading(path: bytes) -> bytes:
    return b"dir %b\n" % (escape(path) or b".")


def key_of(path: bytes) -> bytes:
    """What directories are sorted by."""
    return path.replace(b"/", b"\0")


def assemble(
    sections: Iterable[bytes],
    out: BinaryIO,
    name: str,
    root: Entry,
    entries: Callable[[], int],
) -> None:
    """Write a manifest of its sections' text, in order, with what comes before and after. OSError.

    How many `entries` it has is asked when all sections are written.
    The check at its end is of all that is before, so this is one process's work.
    """
    check = xxhash.xxh3_128()

    def put(data: bytes) -> None:
        check.update(data)
        out.write(data)

    put(b"pcmanifest %b %b\n" % (VERSION, name.encode()))
    put(b"root " + root.line())
    for data in sections:
        put(data)
    put(b"end %d %d " % (entries(), root.size))
    out.write(check.hexdigest().encode() + b"\n")


# ---- reading ---------------------------------------------------------------------------------


class Damaged(ValueError):
    """A manifest that can't be believed; the text says in which line."""


class Manifest:
    """A manifest, open for reading. OSError; Damaged if it does not begin as one.

    Only its beginning is looked at: `verify` reads all of it.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._seen_bytes = 0
        with open(reading(path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            self._text: mmap.mmap | bytes = (
                mmap.mmap(stream.fileno(), size, prot=mmap.PROT_READ) if size else b""
            )
        head = self._line_at(0)
        words = head.split(b" ")
        if len(words) != 3 or words[0] != b"pcmanifest":
            raise Damaged("line 1: not an fsum manifest")
        if not words[1].isdigit() or not words[2].isalnum():
            raise Damaged("line 1: version or algorithm missing")
        if words[1] != VERSION:
            raise Damaged(f"line 1: unsupported version {words[1][:20].decode()}")
        try:
            self.algorithm = algorithm(words[2][:20].decode())
        except ValueError as error:
            raise Damaged(f"line 1: {error}") from None
        line = self._line_at(len(head) + 1)
        try:
            if not line.startswith(b"root "):
                raise ValueError("not the line of the root")
            self.root = parse(line[5:], self.algorithm.size)
            if not self.root.name.startswith(b"/") or b"\0" in self.root.name:
                raise ValueError("the path of the root is not absolute")
        except ValueError as error:
            raise Damaged(f"line 2: {error}") from None
        self._begin = len(head) + len(line) + 2

    def _line_at(self, at: int) -> bytes:
        end = self._text.find(b"\n", at)
        return self._text[at : end if end >= 0 else len(self._text)]

    # ---- all of it -------------------------------------------------------------

    def verify(self) -> None:
        """Read it to its end. OSError; Damaged, with the line, if it is not as it was written.

        Digests of directories are made anew of what is listed in them, up to the root, so
        that who knows the root's knows all of it.
        """
        reader = _Verifier(self._text, self.algorithm, self.root, self._seen)
        with open(reading(self._path), "rb") as stream:
            number = 0
            while line := stream.readline(_LONGEST_BYTES):
                number += 1
                try:
                    reader.take(number, line)
                except ValueError as error:
                    raise Damaged(f"line {number}: {error}") from None
        if not reader.ended:
            raise Damaged(f"line {number + 1}: it is cut short")

    # ---- one directory ---------------------------------------------------------

    def section(self, path: bytes) -> Section | None:
        """The section of a directory, found by bisection; None if there is none."""
        wanted = key_of(path)
        low, high = self._begin, len(self._text)
        while low < high:
            begin = self._section_from((low + high) // 2, low)
            if begin < 0 or begin >= high:
                high = (low + high) // 2
                continue
            line = self._line_at(begin)
            key = _key_in(line)
            if key == wanted:
                return self._section_at(begin + len(line) + 1)
            if key < wanted:
                low = begin + len(line) + 1
            else:
                high = begin
        return None

    def sections(self) -> Iterator[tuple[bytes, Section]]:
        """All sections, in their order, each with the key of its path."""
        at = self._begin
        while self._text[at : at + 4] == b"dir ":
            line = self._line_at(at)
            section = self._section_at(at + len(line) + 1)
            yield _key_in(line), section
            at = section.after

    def _section_from(self, at: int, least: int) -> int:
        """Where the next section begins; -1 if there is none."""
        if at <= least and self._text[least : least + 4] == b"dir ":
            return least
        found = self._text.find(b"\ndir ", max(at - 1, least - 1))
        return found + 1 if found >= 0 else -1

    def _section_at(self, begin: int) -> Section:
        end = begin
        if self._text[begin : begin + 2] != b". ":  # it is not empty
            end = self._text.find(b"\n. ", begin) + 1
        words = self._line_at(end).split(b" ")
        digest = bytes.fromhex(words[2].decode())
        self._seen(_SEARCHED_BYTES)
        return Section(self._text, begin, end, int(words[1]), digest, self._seen)

    def _seen(self, count: int) -> None:
        """So many bytes were read: from time to time let go of the memory that they are mapped to.

        They stay in the system's cache, but do not count as this process's.
        """
        self._seen_bytes += count
        if self._seen_bytes > _SEEN_BYTES and isinstance(self._text, mmap.mmap):
            self._text.madvise(mmap.MADV_DONTNEED)
            self._seen_bytes = 0


def _key_in(line: bytes) -> bytes:
    """The key of a section's heading, as `_heading` made it: a path may be long."""
    path = _unescaped(line[4:])
    return b"" if path == b"." else key_of(path)


class _Verifier:
    """Takes in the lines of a manifest one by one. ValueError if one should not be there.

    A section ends with the digest that its directory has where it is listed, and all
    directories have sections. Which comes next is read from the sections above it
    themselves, as it may be one of millions.
    """

    def __init__(
        self,
        text: mmap.mmap | bytes,
        algorithm: Algorithm,
        root: Entry,
        seen: Callable[[int], None],
    ) -> None:
        self.ended = False
        self._seen = seen
        self._text = text
        self._algorithm = algorithm
        self._root = root
        self._at = 0
        self._whole = xxhash.xxh3_128()
        self._section = xxhash.xxh3_64()
        self._digest = algorithm.new()  # of a directory
        self._wanted = b""
        self._path = b""
        self._inside = False
        self._name = b""
        self._begin = 0  # of its entries
        self._count = 0
        self._directories = 0
        self._entries = 1
        due = [root._replace(name=b"")] if root.kind == b"d" else []
        self._due = [(b"", iter(due))]

    def take(self, number: int, line: bytes) -> None:
        """The next line."""
        if not line.endswith(b"\n"):
            raise ValueError("it is cut short")
        if self.ended:
            raise ValueError("data after the end")
        if number <= 2:  # these were looked at when the manifest was opened
            pass
        elif self._inside and line.startswith(b". "):
            self._end_section(line)
        elif self._inside:
            self._entry(line)
        elif line.startswith(b"dir "):
            self._begin_section(line)
        elif line.startswith(b"end "):
            self._end(line)
        else:
            raise ValueError("it belongs to no section")
        self._whole.update(line)
        self._at += len(line)

    def _begin_section(self, line: bytes) -> None:
        due = self._next_due()
        if due is None:
            raise ValueError("its directory is not listed, or listed twice")
        if line != _heading(due[0]):
            raise ValueError("expected the section of another directory")
        self._path, self._wanted = due
        self._name, self._count, self._directories, self._inside = b"", 0, 0, True
        self._begin = self._at + len(line)
        self._section = xxhash.xxh3_64(line)
        self._digest = self._algorithm.new()
        self._digest.update(b"dir\0")

    def _next_due(self) -> tuple[bytes, bytes] | None:
        """The directory whose section comes next, and its digest."""
        while self._due:
            path, entries = self._due[-1]
            entry = next(entries, None)
            if entry is not None:
                return (join_path(path, entry.name) if entry.name else b""), entry.digest
            self._due.pop()
        return None

    def _entry(self, line: bytes) -> None:
        entry = parse(line[:-1], self._algorithm.size)
        name = entry.name
        if name <= self._name and self._count:
            raise ValueError("names are not in order")
        if name in _NO_NAMES or b"/" in name or b"\0" in name:
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
        if words[2] != digest.hex().encode() or digest != self._wanted:
            raise ValueError("the directory's digest is not that of its entries")
        if self._directories:
            section = Section(self._text, self._begin, self._at, self._count, digest, self._seen)
            self._due.append((self._path, section.directories()))
        self._entries += self._count
        self._inside = False

    def _end(self, line: bytes) -> None:
        if self._next_due() is not None:
            raise ValueError("the section of a directory is missing")
        words = line[:-1].split(b" ")
        self._whole.update(line[: -1 - len(words[-1])])
        if len(words) != 4 or words[3] != self._whole.hexdigest().encode():
            raise ValueError("checksum mismatch")
        if words[1:3] != [b"%d" % self._entries, b"%d" % self._root.size]:
            raise ValueError("the number of entries or bytes is wrong")
        self.ended = True


class Section:
    """The entries of one directory in a manifest, and its digest."""

    def __init__(
        self,
        text: mmap.mmap | bytes,
        begin: int,
        end: int,
        count: int,
        digest: bytes,
        seen: Callable[[int], None],
    ) -> None:
        self.count = count
        self.digest = digest
        self._text = text
        self._begin = begin
        self._end = end
        self._digest_bytes = len(digest)
        self._seen = seen  # is told how much was read

    def __iter__(self) -> Iterator[Entry]:
        at = told = self._begin
        while at < self._end:
            stop = self._text.find(b"\n", at)
            yield parse(self._text[at:stop], self._digest_bytes)
            at = stop + 1
            if at - told > _SEARCHED_BYTES or at >= self._end:
                self._seen(at - told)
                told = at

    @property
    def after(self) -> int:
        """Where the next one begins."""
        return self._text.find(b"\n", self._end) + 1

    def text(self) -> Iterator[bytes]:
        """All of it as it stands, in pieces."""
        at, after = self._text.rfind(b"dir ", 0, self._begin), self.after
        while at < after:
            yield self._text[at : min(at + _SEARCHED_BYTES, after)]
            at += _SEARCHED_BYTES
            self._seen(_SEARCHED_BYTES)

    def directories(self) -> Iterator[Entry]:
        """Those of them that are directories."""
        at = told = self._begin - 1  # of the newline before
        while (at := self._text.find(b"\nd ", at, self._end)) >= 0:
            stop = self._text.find(b"\n", at + 1)
            yield parse(self._text[at + 1 : stop], self._digest_bytes)
            at = stop
            if at - told > _SEARCHED_BYTES:
                self._seen(at - told)
                told = at

    def find(self, name: bytes) -> Entry | None:
        """The entry of a name, by bisection."""
        low, high = self._begin, self._end
        self._seen(_SEARCHED_BYTES)
        while low < high:
            middle = self._text.rfind(b"\n", low, (low + high) // 2) + 1 or low
            stop = self._text.find(b"\n", middle)
            found = _unescaped(self._text[middle:stop].split(b" ", 5)[5])
            if found == name:
                return parse(self._text[middle:stop], self._digest_bytes)
            if found < name:
                low = stop + 1
            else:
                high = middle
        return None
