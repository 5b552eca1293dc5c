"""A manifest made of an older one and of what was looked at since: all else is taken over.

Of each directory in which something is known to be new the entries are merged with those of its old
section, and its digest is computed anew; so are those above, the deepest first. Other sections are
copied as they stand. Memory grows with the directories that have changed, not with entries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import groupby, islice
from typing import BinaryIO, NamedTuple

from pcircle.fs.sorting import Sorter
from pcircle.signature.manifest import (
    Entry,
    Manifest,
    Section,
    SectionWriter,
    assemble,
    key_of,
    parse,
)
from pcircle.signature.runs import COUNT, pack_entry
from pcircle.writing import discard

_END = b"/"  # in no record: names have none, and paths are keys
_APART = b"\0\0"
_TOGETHER = 1024
_READ_BYTES = 256 << 10
_GONE, _ENTRY, _DIRECTORY = b"!", b"+", b"d"  # the first one comes before the second
_STAYS = b"\0" + _ENTRY + b"d "  # behind the name of what is a directory


class _Changed(NamedTuple):
    """A directory in which something is new: where that stands; its old section, if that holds."""

    begin: int
    end: int
    old: Section | None


class _Sum(NamedTuple):
    """What is known of a changed directory when all that is in it is."""

    digest: bytes
    size: int
    entries: int


class _Lines:
    """Takes what a `SectionWriter` writes. See `Records`."""

    def __init__(self) -> None:
        self._text: list[bytes] = []

    def begin(self) -> None:
        """See `Records`."""

    def put(self, data: bytes) -> None:
        """See `Records`."""
        self._text.append(data)

    def end(self, path: bytes) -> None:
        """See `Records`: nothing is kept by path."""

    def taken(self) -> bytes:
        """What was written since this was asked last."""
        text, self._text = self._text, []
        return b"".join(text)


class Renewal:
    """What is known anew, in any order, then `write`. OSError without space for it."""

    def __init__(self, old: Manifest) -> None:
        self._old = old
        self._size = old.algorithm.size
        self._sorter = Sorter()
        self._void: list[bytes] = []  # keys below which no old section holds
        self._index: dict[bytes, _Changed] = {}
        self._sums: dict[bytes, _Sum] = {}
        self._events = tempfile.TemporaryFile(prefix="pcircle-manifest-")  # noqa: SIM115
        self._times = old.root.modified_ns, old.root.changed_ns

    def gone(self, path: bytes, *, whole: bool) -> None:
        """What the old manifest has of a path is void, with `whole` also what it has below."""
        above, _, name = path.rpartition(b"/")
        if path:
            self._add(above, name, _GONE)
        if whole:
            self._void.append(key_of(path))

    def directory(self, path: bytes, modified_ns: int, changed_ns: int) -> None:
        """A directory that is there."""
        if path:
            above, _, name = path.rpartition(b"/")
            entry = Entry(name, b"d", bytes(self._size), 0, modified_ns, changed_ns)
            self._add(above, name, _ENTRY + entry.line()[:-1])
        else:
            self._times = modified_ns, changed_ns
        self._add(path, b"", _DIRECTORY)

    def entry(self, above: bytes, entry: Entry) -> None:
        """An entry of a directory that is there, no directory itself."""
        self._add(above, entry.name, _ENTRY + entry.line()[:-1])

    def _add(self, directory: bytes, name: bytes, event: bytes) -> None:
        self._sorter.add(b"%b%b%b\0%b" % (key_of(directory), _APART, name, event))

    def close(self) -> None:
        """Give the space back."""
        self._sorter.close()
        discard(self._events)

    def write(self, out: BinaryIO) -> None:
        """Write the new manifest. OSError."""
        self._arrange()
        for key in sorted(self._index, reverse=True):
            self._sums[key] = self._sum(key)
        old, count = self._old.root, [1]
        root = old._replace(modified_ns=self._times[0], changed_ns=self._times[1])
        if b"" in self._sums:
            root = root._replace(digest=self._sums[b""].digest, size=self._sums[b""].size)
        assemble(self._texts(count), out, self._old.algorithm.name, root, lambda: count[0])

    def _arrange(self) -> None:
        """Put in order what is new, and find the old sections of what has changed."""
        void = _Void(self._void)
        records = self._sorter.sorted()
        at = 0
        for key, group in groupby(records, lambda record: record.partition(_APART)[0]):
            begin, is_there = at, False
            old = None if void.covers(key) else self._old.section(key.replace(b"\0", b"/"))
            events = (record.partition(_APART)[2] for record in group)
            for name, some in groupby(events, lambda event: event.partition(b"\0")[0]):
                for event in some:
                    at += self._events.write(event + _END)
                is_there = is_there or event == b"\0" + _DIRECTORY
                was = None if old is None or not name else old.find(name)
                if was is not None and was.kind == b"d" and not event.startswith(_STAYS, len(name)):
                    inner = key + b"\0" + name if key else name  # it is no directory any more
                    self._void.append(inner)
                    void.add(inner)
            if is_there:  # else nothing is there any more of which an entry could be gone
                self._index[key] = _Changed(begin, at, old)

    def _sum(self, key: bytes) -> _Sum:
        digest, size, count = self._old.algorithm.new(), 0, 0
        digest.update(b"dir\0")
        for entry in self._merged(key):
            digest.update(pack_entry(entry.name, entry.kind, entry.digest))
            size += entry.size if entry.kind in (b"f", b"d") else 0
            count += 1
        digest.update(COUNT.pack(count))
        return _Sum(digest.digest(), size, count)

    def _merged(self, key: bytes) -> Iterator[Entry]:
        """The entries of a changed directory, by name."""
        old = iter(self._index[key].old or ())
        was = next(old, None)
        for name, new in self._news(key):
            while was is not None and was.name < name:
                yield self._summed(key, was)
                was = next(old, None)
            if was is not None and was.name == name:
                was = next(old, None)
            if new is not None:
                yield self._summed(key, new)
        while was is not None:
            yield self._summed(key, was)
            was = next(old, None)

    def _news(self, key: bytes) -> Iterator[tuple[bytes, Entry | None]]:
        """The names of a changed directory that are known anew, each with what has it now."""
        found = map(_split, self._read(self._index[key]))
        for name, group in groupby(found, lambda event: event[0]):
            if name:
                lines = [event[1:] for _, event in group if event.startswith(_ENTRY)]
                yield name, parse(lines[-1], self._size) if lines else None

    def _read(self, changed: _Changed) -> Iterator[bytes]:
        at, rest = changed.begin, b""
        while at < changed.end:
            self._events.seek(at)
            data = self._events.read(min(_READ_BYTES, changed.end - at))
            at += len(data)
            *whole, rest = (rest + data).split(_END)
            yield from whole

    def _summed(self, key: bytes, entry: Entry) -> Entry:
        """An entry; if it is a directory that has changed, with what that has come to."""
        if entry.kind != b"d":
            return entry
        inner = self._sums.get(key + b"\0" + entry.name if key else entry.name)
        if inner is None:
            return entry
        return entry._replace(digest=inner.digest, size=inner.size)

    def _texts(self, count: list[int]) -> Iterator[bytes]:
        """The text of all sections, in their order; `count` is increased by their entries."""
        void, changed = _Void(self._void), sorted(self._index)
        at = 0
        for key, section in self._old.sections():
            while at < len(changed) and changed[at] < key:
                yield from self._text(changed[at], count)
                at += 1
            if at < len(changed) and changed[at] == key:
                yield from self._text(key, count)
                at += 1
            elif not void.covers(key):
                count[0] += section.count
                yield from section.text()
        for key in changed[at:]:
            yield from self._text(key, count)

    def _text(self, key: bytes, count: list[int]) -> Iterator[bytes]:
        lines, path = _Lines(), key.replace(b"\0", b"/")
        writer, known = SectionWriter(lines), self._sums[key]
        count[0] += known.entries
        writer.begin(path)
        entries = self._merged(key)
        while some := list(islice(entries, _TOGETHER)):
            writer.add(some)
            yield lines.taken()
        writer.end(path, known.entries, known.digest)
        yield lines.taken()


class _Void:
    """Keys, asked for in ascending order, below which nothing old holds."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = sorted(keys)  # and so a heap
        self._now: bytes | None = None

    def add(self, key: bytes) -> None:
        """One more, beyond what was asked for."""
        heappush(self._keys, key)

    def covers(self, key: bytes) -> bool:
        """Whether a key, or one above it, is among them."""
        while self._keys and self._keys[0] <= key:
            first = heappop(self._keys)
            if not self._is_below(first):
                self._now = first
        return self._is_below(key)

    def _is_below(self, key: bytes) -> bool:
        now = self._now
        return now is not None and (not now or key == now or key.startswith(now + b"\0"))


def _split(event: bytes) -> tuple[bytes, bytes]:
    """The name, and what is known of it."""
    name, _, rest = event.partition(b"\0")
    return name, rest
