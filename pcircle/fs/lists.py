"""Lists of paths below the roots, to which a job is restricted.

A list may name millions of paths in any order. Rank 0 sorts it, in bounded memory, into a file in
which all paths below a directory are contiguous. Therefore the item of a directory needs only the
beginning and end of its range. Only rank 0 has the file, so only it can process items with a range.
It processes the few directories with large ranges, and divides the other ranges into portions that
contain their own text and that any rank can process.

In that file a path consists of its components, separated by NUL, and ends with a slash. Neither
byte occurs in a name, so sorting the bytes sorts the tree. An additional NUL at the end means that,
if the path is a directory, everything below it is selected. Two mean that it must be a directory,
and three mean both.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO

import msgspec
import xxhash
from msgspec.structs import replace

from pcircle.core.encoding import text_of
from pcircle.core.errors import StoppedEarly, require
from pcircle.core.writing import write_all
from pcircle.fs.scan import Block, PathListSlice
from pcircle.fs.sorting import RUN_BYTES, TOGETHER, sorted_records

_SORT_BYTES = RUN_BYTES
_PORTION_BYTES = 64 << 10
_PORTION_NAMES = 512
_SLASH, _NUL = b"/", b"\0"
_MUST = _NUL + _NUL


def record_of(path: bytes, *, whole: bool | None = False, strict: bool = False) -> bytes:
    """Return the record of a path below a root.

    With `whole`, or if the path ends with a slash and `whole` is not None, the record selects the
    whole subtree. With `strict`, a path with a trailing slash must be a directory. Raises
    ValueError if the path is not below the root.
    """
    if path.startswith(_SLASH):
        raise ValueError("it is absolute; expected a relative path")
    if _NUL in path:
        raise ValueError("it contains NUL")
    parts = [part for part in path.split(_SLASH) if part not in (b"", b".")]
    if b".." in parts:
        raise ValueError("it contains '..'")
    has_slash = path.endswith((_SLASH, b"/."))
    if whole is not None:
        whole = whole or has_slash
    must = _MUST if strict and has_slash and parts else b""
    return _NUL.join(parts) + must + _NUL * bool(whole)


class RootSelection(msgspec.Struct, frozen=True):
    """The selected part of a root: a range of the list, or None for everything."""

    root: int
    listed: PathListSlice | None


class Lists:
    """The sorted lists of some roots; `parts` contains each root's selected part.

    `digest` identifies their content. The constructor raises OSError.
    """

    def __init__(self, stream: IO[bytes], parts: Sequence[RootSelection]) -> None:
        size = stream.tell()
        stream.flush()
        self._text = mmap.mmap(stream.fileno(), size, prot=mmap.PROT_READ) if size else b""
        self.parts = parts
        digest = xxhash.xxh3_128(repr(parts).encode())
        digest.update(self._text)
        self.digest: bytes = digest.digest()

    def of(self, root: int) -> Lists:
        """Return the lists restricted to one root."""
        restricted = Lists.__new__(Lists)
        parts = [part for part in self.parts if part.root == root]
        vars(restricted).update(vars(self), parts=parts)
        return restricted

    def close(self) -> None:
        """Release the space of the lists; they must not be read afterwards."""
        if isinstance(self._text, mmap.mmap):
            self._text.close()
            self._text = b""

    def records(self, listed: PathListSlice) -> Iterator[bytes]:
        """Yield the records of a range in order, as `record_of` returns them."""
        at = listed.begin
        while at < listed.end:
            stop = self._text.find(_SLASH, at, listed.end)
            yield self._text[at:stop]
            at = stop + 1

    def cut(self, listed: PathListSlice, max_bytes: int) -> tuple[PathListSlice, PathListSlice]:
        """Split a range after about `max_bytes` bytes; the second range may be empty."""
        change = msgspec.structs.replace
        if listed.end - listed.begin <= max_bytes:
            return listed, change(listed, begin=listed.end)
        at = self._text.find(_SLASH, listed.begin + max_bytes, listed.end) + 1
        return change(listed, end=at), change(listed, begin=at)

    def below(self, listed: PathListSlice) -> Iterator[NameRecords]:
        """Yield the records of a range, grouped by name in its directory."""
        return groups(self._text, listed.begin, listed.end, listed.skip)

    def portions(self, listed: PathListSlice) -> Iterator[NameRecords | bytes]:
        """Divide a range: yield directories with large ranges, and text for the others."""
        pending = 0
        text: list[bytes] = []
        names = 0
        for group in self.below(listed):
            length = group.end - group.begin
            if length > _PORTION_BYTES and group.deeper and not group.whole:
                yield group
                continue
            text.append(group.text())
            names += 1
            pending += length
            if names == _PORTION_NAMES or pending >= _PORTION_BYTES:
                yield b"".join(text)
                text.clear()
                names = pending = 0
        if text:
            yield b"".join(text)

    def shares(
        self, listed: PathListSlice, weight: float
    ) -> Iterator[tuple[float, NameRecords | bytes]]:
        """Yield the portions of a range, each with its share of `weight`."""
        whole = listed.end - listed.begin
        for part in self.portions(listed):
            length = len(part) if isinstance(part, bytes) else part.end - part.begin
            yield weight * length / whole, part


def sort(lists: Iterable[tuple[int, Iterable[bytes]]]) -> Lists:
    """Sort the records of each root; the roots must be in ascending order of their numbers.

    Raises StoppedEarly if no space is left.
    """
    try:
        return _sort(lists)
    except OSError as error:
        text = "cannot write the list to the temporary directory"
        raise StoppedEarly(f"{text}: {error.strerror}") from error


def _sort(lists: Iterable[tuple[int, Iterable[bytes]]]) -> Lists:
    import tempfile  # slow to import, and few runs have a list

    parts = []
    end = 0
    with tempfile.TemporaryFile(prefix="pcircle-list-", buffering=0) as stream:
        for root, records in lists:
            begin, last = end, b""
            found = _once(sorted_records(records, _SORT_BYTES))
            while batch := list(islice(found, TOGETHER)):
                last = batch[-1]
                end += write_all(stream.fileno(), _SLASH.join(batch) + _SLASH)
            parts.append(
                RootSelection(root, None if last == _NUL else PathListSlice(b"", begin, end))
            )
        return Lists(stream, tuple(parts))


def _once(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield sorted records, except duplicates and paths in completely selected subtrees."""
    last = None
    whole: bytes | None = None
    for record in records:
        if record == last or (whole is not None and record.startswith(whole)):
            continue
        last = record
        if record == _NUL:
            yield record
            return  # the whole root
        path = record.rstrip(_NUL)
        if len(record) - len(path) not in (0, len(_MUST)):
            whole = path + _NUL
        yield record


def names_itself(listed: PathListSlice, lists: Lists | None) -> bool:
    """Return whether a range selects its directory itself."""
    return first_of(listed, lists) in (None, b"", _NUL)


def first_of(listed: PathListSlice, lists: Lists | None) -> bytes | None:
    """Return the first record of a directory, relative to it; None if there is none."""
    if listed.is_range:
        return next(require(lists).records(listed))[listed.skip :]
    return listed.text[: listed.text.find(_SLASH)] if listed.text else None


class NameRecords(msgspec.Struct, frozen=True):
    """The records of one name in a directory: a range of `data`.

    The first `skip` bytes of each record are the path of the directory. `whole` means that
    everything below the name is selected, `deeper` that paths below it are selected, and `must`
    that it must be a directory.
    """

    data: bytes | mmap.mmap
    begin: int
    end: int
    skip: int
    name: bytes
    whole: bool
    deeper: bool
    must: bool = False

    def text(self) -> bytes:
        """Return the text of the records, relative to the directory."""
        if not self.skip:
            return self.data[self.begin : self.end]
        records = self.data[self.begin : self.end - 1].split(_SLASH)
        return b"".join([record[self.skip :] + _SLASH for record in records])

    def listed(self) -> PathListSlice:
        """Return the records as a range, relative to the name."""
        return PathListSlice(b"", self.begin, self.end, self.skip + len(self.name) + 1)

    def inner(self) -> PathListSlice | None:
        """Return the paths selected below the name, as text; None if everything is selected."""
        if self.whole:
            return None
        if not self.deeper:
            return PathListSlice()
        return PathListSlice(replace(self, skip=self.skip + len(self.name) + 1).text())


def groups(data: bytes | mmap.mmap, begin: int, end: int, skip: int = 0) -> Iterator[NameRecords]:
    """Yield the records of a range, grouped by their first name.

    Records of the directory itself, which come first, are skipped.
    """
    at = begin
    while at < end:
        stop = data.find(_SLASH, at, end)
        if stop - at <= skip or data[at + skip : stop] == _NUL:
            at = stop + 1
            continue
        name, separator, below = data[at + skip : stop].partition(_NUL)
        must = below in (_NUL, _MUST)
        deeper, whole = bool(separator), bool(separator) and below in (b"", _MUST)
        after = stop + 1
        if not whole:
            within = data[at : at + skip] + name + _NUL
            after = _end_of(data, within, after, end)
            first = data.find(_SLASH, stop + 1, after) if after > stop + 1 else -1
            whole = not deeper and first > 0 and data[stop + 1 : first] == within
            deeper = deeper or after > stop + 1
        yield NameRecords(data, at, after, skip, name, whole, deeper, must)
        at = after


def _end_of(data: bytes | mmap.mmap, prefix: bytes, begin: int, end: int) -> int:
    """Return the end of the sorted records that begin with `prefix`."""
    size = len(prefix)
    low, step = begin, 256
    while low < end and data[low : low + size] == prefix:
        # Double or halve the step, because there may be millions of records below a name.
        if low + step < end:
            ahead = data.find(_SLASH, low + step, end) + 1
            if ahead < end and data[ahead : ahead + size] == prefix:
                low, step = ahead, 2 * step
                continue
        if step > 256:
            step //= 2
            continue
        low = data.find(_SLASH, low, end) + 1
    return low


class SelectedBlock(Block):
    """A block of the names that a list selects in one directory."""

    __slots__ = ()

    def __init__(self, directory_fd: int, text: bytes, *, follow: bool) -> None:
        super().__init__()
        self.last = True
        for group in groups(text, 0, len(text)):
            name = text_of(group.name)
            self.below[name] = group.inner()
            if group.must or (group.deeper and not group.whole):
                self.directories.append(name)
            else:
                self._kind(directory_fd, group.name, follow=follow).append(name)

    def _kind(self, directory_fd: int, name: bytes, *, follow: bool) -> list[str]:
        try:
            mode = os.stat(name, dir_fd=directory_fd, follow_symlinks=follow).st_mode
        except OSError:
            return self.files  # opening it reports the error
        if stat.S_ISDIR(mode):
            return self.directories
        if stat.S_ISLNK(mode):
            return self.links
        return self.files if stat.S_ISREG(mode) else self.specials
