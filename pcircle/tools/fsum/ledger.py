"""Writes the sections of directories to a manifest, or compares them with an old manifest.

When a directory is complete, the rank that has read it passes its entries to a `Page` in the order
of their names. They are written to the rank's part of a new manifest, or compared with an old
manifest. Because each rank reads only the sections of its own directories, no rank needs the entire
manifest in memory. In some modes, a file need not be read if its size and times decide the result.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from pcircle.core.errors import StoppedEarly
from pcircle.fs.directories import HOLDER, join_path
from pcircle.fs.scan import Block
from pcircle.ops.digest import Signer
from pcircle.ops.digest.digests import FAILED
from pcircle.ops.digest.manifest import (
    FindEntry,
    Manifest,
    ManifestEntry,
    SectionWriter,
    unpack_entry,
)
from pcircle.tools.fsum.plan import Difference, SumCounters, SumPlan, SumResult
from pcircle.walk.globs import Chooser
from pcircle.walk.segments import Sink


class Ledger:
    """The manifests of one thread.

    `old` is the manifest to compare with. The threads of a rank share the part of a new manifest
    that belongs to `first`, and write to it one directory at a time.
    """

    def __init__(
        self,
        plan: SumPlan,
        rank: int,
        signer: Signer,
        counters: SumCounters,
        first: Ledger | None = None,
    ) -> None:
        self.sink: Sink[SumResult] | None = None if first is None else first.sink
        if first is None and plan.parts is not None:
            self.sink = Sink(plan.parts, rank, plan.ranks, SumResult, unwritable)
        self.old: Manifest | None = None if plan.against is None else Manifest(plan.against)
        self._plan = plan
        self.signer = signer
        self.counters = counters
        self._chooser = Chooser(plan.rules) if plan.rules else None

    # ---- known entries ---------------------------------------------------------

    def skip_test(self, path: bytes) -> Callable[[bytes, int], bool] | None:
        """Return a predicate for the names in a directory that need not be read; see `can_skip`.

        Return None if all names must be read.
        """
        if self.old is None or self._plan.mode == "check":
            return None
        if path == HOLDER:
            root = self.old.root
            return partial(self.can_skip, lambda name: root)
        return partial(self.can_skip, self.old.finder(path))

    def remove_missing(self, block: Block, path: bytes, directory_fd: int) -> None:
        """Remove listed names that exist only in the manifest, so that they count as missing.

        Listed names that exist neither there nor on disk remain, so that reading them fails.
        """
        if self.old is None or not self.compares:
            return
        known = self.old.finder(path)

        def there(name: str) -> bool:
            try:
                os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            except FileNotFoundError:
                return known(os.fsencode(name)) is None
            except OSError:
                pass  # the error is reported when the entry is read
            return True

        block.files = list(filter(there, block.files))
        block.directories = list(filter(there, block.directories))

    def is_selected(self, path: bytes, entry: ManifestEntry) -> bool:
        """Return whether an entry is selected by rules and is not a file that this run writes."""
        if any(own.directory == path and own.names(entry.name) for own in self._plan.own):
            return False
        if self._chooser is None:
            return True
        name = entry.name if self._chooser.by_name else join_path(path, entry.name)
        return self._chooser.chooses(name, directory=entry.kind == b"d")

    def can_skip(self, known: FindEntry, name: bytes, directory_fd: int) -> bool:
        """Return whether a file need not be read; if so, set the seal of the signer.

        Raise OSError if the file cannot be looked up.
        """
        entry = known(name)
        if entry is None or entry.kind != b"f":
            return self._plan.mode == "rot" and self._seal_nothing(name, directory_fd)
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return False
        same = (status.st_size, status.st_mtime_ns) == (entry.size, entry.modified_ns)
        same_all = same and status.st_ctime_ns == entry.changed_ns
        mode = self._plan.mode
        if mode == "rot":
            # Silent corruption changes the content but neither the size nor the times.
            self.counters.unchecked += not same_all
            return not same_all and self._seal_nothing(name, directory_fd)
        digest = entry.digest
        if mode == "quick" and status.st_size != entry.size:
            digest = bytes(len(digest))  # the size differs, so use a digest that never matches
        elif not (same if mode == "quick" else same_all):
            return False
        elif mode == "quick":
            self.counters.unchecked += 1
        self._seal(digest, entry.checksum, status)
        return True

    def _seal(self, digest: bytes, checksum: bytes, status: os.stat_result) -> None:
        self.signer.seal, self.signer.checksum = b"f" + digest, checksum
        self.signer.set_trailer(status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def _seal_nothing(self, name: bytes, directory_fd: int) -> bool:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        self._seal(bytes(self.signer.algorithm.size), b"", status)
        return True

    def files_of(self, path: bytes, entry: ManifestEntry) -> int:
        """Return the number of files at and below this path in the manifest."""
        section = None if self.old is None or entry.kind != b"d" else self.old.section(path)
        if section is None:
            return int(entry.kind == b"f")
        return sum(self.files_of(join_path(path, inner.name), inner) for inner in section)

    # ---- directories -----------------------------------------------------------

    @contextmanager
    def page(
        self,
        path: bytes,
        status: os.stat_result,
        tell: Callable[[Sequence[Difference]], None],
        meant: Iterable[bytes] | None = None,
    ) -> Iterator[Page]:
        """Yield the page of a directory, which receives its entries.

        `meant` yields the selected names in order, or is None if all names are selected. Only
        selected names are reported as missing. This rank's part of a new manifest is locked for
        this thread. Raise StoppedEarly if it cannot be written.
        """
        with nullcontext() if self.sink is None else self.sink.part() as part:
            writer = None if part is None else SectionWriter(part)
            yield Page(self, path, status, tell, meant, writer)

    @property
    def compares(self) -> bool:
        """Return whether all differences are reported."""
        return self._plan.mode in ("check", "quick")

    @property
    def rot_only(self) -> bool:
        """Return whether only silent corruption is reported."""
        return self._plan.mode == "rot"


class Page:
    """The section of one directory while it is written or compared."""

    def __init__(
        self,
        ledger: Ledger,
        path: bytes,
        status: os.stat_result,
        tell: Callable[[Sequence[Difference]], None],
        meant: Iterable[bytes] | None,
        part: SectionWriter | None,
    ) -> None:
        self._ledger = ledger
        self._meant = None if meant is None else iter(meant)
        self._reached = b""  # the last name read from `_meant`
        self._path = path
        self._times = status.st_mtime_ns, status.st_ctime_ns
        self._tell = tell
        self._bytes = 0
        self._count = 0
        self._part = part
        section = None if part is not None or ledger.old is None else ledger.old.section(path)
        self._compares = section is not None
        self._old = iter(section or ())
        self._next = next(self._old, None)
        if part is not None:
            part.begin(path)
        self.see([])

    def see(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Process entries in the order of their names; raise StoppedEarly if writing fails."""
        signer = self._ledger.signer
        entries = [unpack_entry(name, packed, signer.algorithm.size) for name, packed in records]
        self._count += len(entries)
        self._bytes += sum(entry.size for entry in entries if entry.kind in b"fd")
        if self._part is not None:
            try:
                self._part.add(entries)
            except OSError as error:  # the caller would take it for an error of its own files
                raise unwritable(error) from error
        if self._compares:
            found = [difference for entry in entries for difference in self._against(entry)]
            if found:
                self._tell(found)
        signer.seal = b"d"
        signer.set_trailer(self._bytes, *self._times)

    def close(self, digest: bytes) -> None:
        """End the directory and report missing entries. Raise OSError if writing fails."""
        if self._part is not None:
            self._part.end(self._path, self._count, digest)
        missing = []
        while self._next is not None:
            missing += self._without(self._next)
            self._step()
        if missing:
            self._tell(missing)

    # ---- comparing -------------------------------------------------------------

    def _against(self, entry: ManifestEntry) -> list[Difference]:
        """Return the difference of an entry, and those of missing entries that precede it."""
        found = []
        while self._next is not None and self._next.name < entry.name:
            found += self._without(self._next)
            self._step()
        old = self._next if self._next is not None and self._next.name == entry.name else None
        if old is not None:
            self._step()
        if entry.kind == FAILED:
            return found  # the failure is reported separately
        if old is not None and old.kind == b"f":
            self._ledger.counters.compared += 1
            # A file whose type has changed was replaced by a program, so it is not checked.
            self._ledger.counters.unchecked += self._ledger.rot_only and entry.kind != b"f"
        if self._ledger.rot_only:
            if old is not None and has_rotted(old, entry):
                found.append(Difference("corrupt", self._named(entry)))
        elif old is None:
            found.append(Difference("new", self._named(entry)))
        elif old.kind != entry.kind or (entry.kind != b"d" and old.digest != entry.digest):
            found.append(Difference("changed", self._named(entry)))
        return found

    def _without(self, old: ManifestEntry) -> list[Difference]:
        if not self._is_selected(old):
            return []
        self._ledger.counters.missing += self._ledger.files_of(self._named(old).rstrip(b"/"), old)
        if self._ledger.rot_only:
            return []
        return [Difference("missing", self._named(old))]

    def _is_selected(self, old: ManifestEntry) -> bool:
        if self._meant is not None:
            while self._reached < old.name:
                self._reached = next(self._meant, b"\xff" * 256)
            if self._reached != old.name:
                return False
        return self._ledger.is_selected(self._path, old)

    def _named(self, entry: ManifestEntry) -> bytes:
        return join_path(self._path, entry.name) + (b"/" if entry.kind == b"d" else b"")

    def _step(self) -> None:
        self._next = next(self._old, None)


def has_rotted(old: ManifestEntry, new: ManifestEntry) -> bool:
    """Return whether the content of a file differs although its size and times are unchanged."""
    return (old.kind, *old[3:6]) == (b"f", *new[3:6]) and old.digest != new.digest


def unwritable(error: OSError) -> StoppedEarly:
    """Return the error to raise when a manifest cannot be written."""
    return StoppedEarly(f"cannot write the manifest: {error.strerror}")
