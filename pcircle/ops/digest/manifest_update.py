"""Updates a manifest: writes a new one from the old one and the changed entries.

The entries of each changed directory are merged with its old section. The digests of the directory
and of its parents are recomputed, deepest first. All other sections are copied unchanged. Memory
use grows with the number of changed directories, not with that of entries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import groupby, islice
from typing import BinaryIO, NamedTuple

from pcircle.core.writing import discard
from pcircle.fs.sorting import Sorter
from pcircle.ops.digest.manifest import (
    Manifest,
    ManifestEntry,
    ManifestSection,
    SectionWriter,
    parse_entry,
    sort_key,
    write_manifest,
)
from pcircle.ops.digest.signer import COUNT, pack_entry

_END = b"/"  # not in records: names contain no slash, and paths are sort keys
_SEPARATOR = b"\0\0"
_ENTRIES_PER_WRITE = 1024
_READ_BYTES = 256 << 10
_GONE, _ENTRY, _DIRECTORY = b"!", b"+", b"d"  # sort order: a removal precedes an entry
_STILL_DIRECTORY = b"\0" + _ENTRY + b"d "  # in an event: the directory still exists


class _ChangedDirectory(NamedTuple):
    """A changed directory: the range of its events, and its old section if still valid."""

    begin: int
    end: int
    old: ManifestSection | None


class _DirectoryTotals(NamedTuple):
    """The digest, size and number of entries of a changed directory that is complete."""

    digest: bytes
    size: int
    entries: int


class _TextBuffer:
    """A `SectionRecords` that collects text in memory and ignores paths."""

    def __init__(self) -> None:
        self._section_text: list[bytes] = []

    def begin(self) -> None: ...

    def put(self, data: bytes) -> None:
        self._section_text.append(data)

    def end(self, path: bytes) -> None: ...

    def take_text(self) -> bytes:
        """Return the text that was written since the last call."""
        text, self._section_text = self._section_text, []
        return b"".join(text)


class ManifestUpdate:
    """Collects changes in any order, and then writes the new manifest.

    Raises OSError if the temporary directory is full.
    """

    def __init__(self, old: Manifest) -> None:
        self._old = old
        self._size = old.algorithm.size
        self._sorter = Sorter()
        self._invalid: list[bytes] = []  # sort keys at and below which old sections are invalid
        self._index: dict[bytes, _ChangedDirectory] = {}
        self._totals: dict[bytes, _DirectoryTotals] = {}
        self._events = tempfile.TemporaryFile(prefix="pcircle-manifest-")  # noqa: SIM115
        self._times = old.root.modified_ns, old.root.changed_ns

    def invalidate(self, path: bytes, *, whole: bool) -> None:
        """Invalidate the old entry of a path and, if `whole` is true, everything below it."""
        above, _, name = path.rpartition(b"/")
        if path:
            self._add(above, name, _GONE)
        if whole:
            self._invalid.append(sort_key(path))

    def add_directory(self, path: bytes, modified_ns: int, changed_ns: int) -> None:
        """Add an existing directory."""
        if path:
            above, _, name = path.rpartition(b"/")
            entry = ManifestEntry(name, b"d", bytes(self._size), 0, modified_ns, changed_ns)
            self._add(above, name, _ENTRY + entry.line()[:-1])
        else:
            self._times = modified_ns, changed_ns
        self._add(path, b"", _DIRECTORY)

    def add_entry(self, above: bytes, entry: ManifestEntry) -> None:
        """Add an entry, other than a directory, of the existing directory `above`."""
        self._add(above, entry.name, _ENTRY + entry.line()[:-1])

    def _add(self, directory: bytes, name: bytes, event: bytes) -> None:
        self._sorter.add(b"%b%b%b\0%b" % (sort_key(directory), _SEPARATOR, name, event))

    def close(self) -> None:
        """Close the temporary files."""
        self._sorter.close()
        discard(self._events)

    def write(self, out: BinaryIO) -> None:
        """Write the new manifest. Raises OSError."""
        self._arrange()
        for key in sorted(self._index, reverse=True):
            self._totals[key] = self._total(key)
        old, count = self._old.root, [1]
        root = old._replace(modified_ns=self._times[0], changed_ns=self._times[1])
        if b"" in self._totals:
            root = root._replace(digest=self._totals[b""].digest, size=self._totals[b""].size)
        write_manifest(self._all_text(count), out, self._old.algorithm.name, root, lambda: count[0])

    def _arrange(self) -> None:
        """Sort the events and find the old sections of the changed directories."""
        invalid = _InvalidKeys(self._invalid)
        records = self._sorter.sorted()
        at = 0
        for key, group in groupby(records, lambda record: record.partition(_SEPARATOR)[0]):
            begin, exists = at, False
            old = None if invalid.covers(key) else self._old.section(key.replace(b"\0", b"/"))
            events = (record.partition(_SEPARATOR)[2] for record in group)
            for name, batch in groupby(events, lambda event: event.partition(b"\0")[0]):
                for event in batch:
                    at += self._events.write(event + _END)
                exists = exists or event == b"\0" + _DIRECTORY
                old_entry = None if old is None or not name else old.find(name)
                if (
                    old_entry is not None
                    and old_entry.kind == b"d"
                    and not event.startswith(_STILL_DIRECTORY, len(name))
                ):
                    inner = key + b"\0" + name if key else name  # it is no longer a directory
                    self._invalid.append(inner)
                    invalid.add(inner)
            if exists:  # otherwise the directory itself was removed
                self._index[key] = _ChangedDirectory(begin, at, old)

    def _total(self, key: bytes) -> _DirectoryTotals:
        """Compute the digest and the totals of a changed directory."""
        digest, size, count = self._old.algorithm.new(), 0, 0
        digest.update(b"dir\0")
        for entry in self._merged_entries(key):
            digest.update(pack_entry(entry.name, entry.kind, entry.digest))
            size += entry.size if entry.kind in (b"f", b"d") else 0
            count += 1
        digest.update(COUNT.pack(count))
        return _DirectoryTotals(digest.digest(), size, count)

    def _merged_entries(self, key: bytes) -> Iterator[ManifestEntry]:
        """Yield the current entries of a changed directory, ordered by name."""
        old = iter(self._index[key].old or ())
        old_entry = next(old, None)
        for name, new in self._changed_names(key):
            while old_entry is not None and old_entry.name < name:
                yield self._with_new_totals(key, old_entry)
                old_entry = next(old, None)
            if old_entry is not None and old_entry.name == name:
                old_entry = next(old, None)
            if new is not None:
                yield self._with_new_totals(key, new)
        while old_entry is not None:
            yield self._with_new_totals(key, old_entry)
            old_entry = next(old, None)

    def _changed_names(self, key: bytes) -> Iterator[tuple[bytes, ManifestEntry | None]]:
        """Yield the changed names of a directory, each with its new entry, or None if removed."""
        found = map(_split, self._read(self._index[key]))
        for name, group in groupby(found, lambda event: event[0]):
            if name:
                lines = [event[1:] for _, event in group if event.startswith(_ENTRY)]
                yield name, parse_entry(lines[-1], self._size) if lines else None

    def _read(self, changed: _ChangedDirectory) -> Iterator[bytes]:
        """Yield the events of a changed directory."""
        at, remainder = changed.begin, b""
        while at < changed.end:
            self._events.seek(at)
            data = self._events.read(min(_READ_BYTES, changed.end - at))
            at += len(data)
            *whole, remainder = (remainder + data).split(_END)
            yield from whole

    def _with_new_totals(self, key: bytes, entry: ManifestEntry) -> ManifestEntry:
        """Return the entry, with the new digest and size if it is a changed directory."""
        if entry.kind != b"d":
            return entry
        inner = self._totals.get(key + b"\0" + entry.name if key else entry.name)
        if inner is None:
            return entry
        return entry._replace(digest=inner.digest, size=inner.size)

    def _all_text(self, count: list[int]) -> Iterator[bytes]:
        """Yield the text of all sections in order, and add their entry counts to `count`."""
        invalid, changed = _InvalidKeys(self._invalid), sorted(self._index)
        at = 0
        for key, section in self._old.sections():
            while at < len(changed) and changed[at] < key:
                yield from self._section_text(changed[at], count)
                at += 1
            if at < len(changed) and changed[at] == key:
                yield from self._section_text(key, count)
                at += 1
            elif not invalid.covers(key):
                count[0] += section.count
                yield from section.text()
        for key in changed[at:]:
            yield from self._section_text(key, count)

    def _section_text(self, key: bytes, count: list[int]) -> Iterator[bytes]:
        """Yield the text of the section of a changed directory."""
        lines, path = _TextBuffer(), key.replace(b"\0", b"/")
        writer, known = SectionWriter(lines), self._totals[key]
        count[0] += known.entries
        writer.begin(path)
        entries = self._merged_entries(key)
        while batch := list(islice(entries, _ENTRIES_PER_WRITE)):
            writer.add(batch)
            yield lines.take_text()
        writer.end(path, known.entries, known.digest)
        yield lines.take_text()


class _InvalidKeys:
    """A set of invalid sort keys; `covers` must be called with keys in ascending order."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = sorted(keys)  # a sorted list is a heap
        self._covering: bytes | None = None

    def add(self, key: bytes) -> None:
        """Add a key that is greater than the last one passed to `covers`."""
        heappush(self._keys, key)

    def covers(self, key: bytes) -> bool:
        """Return whether the key, or a directory above it, is invalid."""
        while self._keys and self._keys[0] <= key:
            first = heappop(self._keys)
            if not self._is_below(first):
                self._covering = first
        return self._is_below(key)

    def _is_below(self, key: bytes) -> bool:
        covering = self._covering
        return covering is not None and (
            not covering or key == covering or key.startswith(covering + b"\0")
        )


def _split(event: bytes) -> tuple[bytes, bytes]:
    """Split an event into the name and the rest."""
    name, _, remainder = event.partition(b"\0")
    return name, remainder
