"""Writes, reads and compares manifest files.

When a directory is complete, the rank that has read it passes its entries to a `Page` in the order
of their names. They are written to the rank's part of a new manifest, or compared with an old
manifest. Because each rank reads only the sections of its own directories, no rank needs the entire
manifest in memory. In some modes, a file need not be read if its size and times decide the result.

Rank 0 opens old manifests, creates the parts of new ones, joins them, and gives the result its
name.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from stat import S_IMODE, S_ISREG

import msgspec

from pcircle.cli.inputs import open_input
from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly, UsageError
from pcircle.core.writing import WholeFile, close_new
from pcircle.fs.attributes import acls
from pcircle.fs.directories import HOLDER, join_path
from pcircle.fs.naming import give_free_name
from pcircle.fs.safe_open import (
    create,
    named,
    place_of,
    reading,
    refuse_foreign,
    refuse_pseudo,
    replace,
    writing,
)
from pcircle.fs.scan import Block
from pcircle.ops.digest import Signer, get_algorithm, iter_entries
from pcircle.ops.digest.checksums import ChecksumList, parse_list
from pcircle.ops.digest.digests import FAILED
from pcircle.ops.digest.manifest import (
    MAGIC,
    FindEntry,
    Manifest,
    ManifestEntry,
    SectionWriter,
    read_manifest,
    unpack_entry,
    write_manifest,
)
from pcircle.tools.fsum.plan import Difference, OwnFile, SumCounters, SumPlan, SumResult
from pcircle.walk.globs import Chooser
from pcircle.walk.roots import Root
from pcircle.walk.segments import Sink, remove, result


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
            self.sink = Sink(plan.parts, rank, plan.ranks, SumResult, _unwritable)
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
                raise _unwritable(error) from error
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
            if old is not None and _has_rotted(old, entry):
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


def _has_rotted(old: ManifestEntry, new: ManifestEntry) -> bool:
    """Return whether the content of a file differs although its size and times are unchanged."""
    return (old.kind, *old[3:6]) == (b"f", *new[3:6]) and old.digest != new.digest


def _unwritable(error: OSError) -> StoppedEarly:
    """Return the error to raise when a manifest cannot be written."""
    return StoppedEarly(f"cannot write the manifest: {error.strerror}")


def read_against(
    path: bytes, algorithm: str | None, mode: str, *, null: bool = False
) -> Manifest | ChecksumList:
    """Read a manifest or, for --check, a checksum list.

    A list may come from a pipe or from `-`. If `null` is set, its lines are NUL-terminated. Raise
    UsageError if the manifest is damaged, or if no line of the list is valid.
    """
    try:
        with open_input(path, option="--check" if mode == "check" else "") as stream:
            begin = stream.readline(len(MAGIC))
            if not MAGIC.startswith(begin):
                if mode != "check":
                    raise UsageError(f"--{mode}: '{show(path)}' is not a manifest")
                return parse_list(begin + stream.read(), algorithm, null=null)
            if mode == "check" and path == b"-":
                raise UsageError("--check: a manifest cannot be read from standard input")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read '{show(path)}': {reason}") from None
    return read_manifest(path)


def destination_of(output: bytes, here: bytes) -> bytes:
    """Return the path of the new manifest, with links resolved.

    Raise UsageError if it cannot be written or is not a regular file.
    """
    shown = show(output)
    if output == b"-":
        raise UsageError("--output: '-' is not supported; for a file of that name use './-'")
    try:
        with named(os.path.join(here, output)) as place:
            if not place.name or place.is_directory:
                raise UsageError(f"--output: '{shown}' is a directory")
            if place.descriptor or not (place.status is None or S_ISREG(place.status.st_mode)):
                raise UsageError(f"--output: '{shown}' exists and is not a regular file")
            refuse_pseudo(place)
            refuse_foreign(place)
            return place.path
    except OSError as error:
        raise UsageError(f"--output: cannot write '{shown}': {error.strerror}") from None


def refuse_existing(destination: bytes, output: bytes) -> None:
    """Raise UsageError if the manifest would replace a file that is not empty."""
    try:
        is_used = os.stat(destination).st_size > 0
    except FileNotFoundError:
        return
    except OSError as error:
        text = f"--output: cannot look up '{show(output)}': {error.strerror}"
        raise UsageError(text) from None
    if is_used:
        raise UsageError(f"--output: '{show(output)}' exists; to replace it, add --force")


def refuse_data(destination: bytes, root: Root, here: bytes) -> None:
    """Raise UsageError if the manifest would replace data that is to be signed."""
    if root.name:
        full = os.path.join(here, root.holder, root.name)
        lost = os.path.realpath(destination) == os.path.realpath(full)
    else:
        below = own_files(root, here, [OwnFile(*os.path.split(destination))])
        lost = bool(below) and not _may_be_replaced(destination)
    if lost:
        shown = show(destination)
        raise UsageError(f"--output: '{shown}' is part of the signed tree and would be replaced")


def _may_be_replaced(destination: bytes) -> bool:
    try:
        with open(reading(destination), "rb") as stream:
            return stream.read(len(MAGIC)) in (b"", MAGIC)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # unreadable, so it may be data


def place_for(destination: bytes) -> bytes:
    """Create the temporary manifest. Return its path, which is also the path prefix of the parts.

    Raise UsageError if a file cannot be created there, and StoppedEarly if closing it reports lost
    data.
    """
    holder = os.path.dirname(destination)
    place = os.path.join(holder, b".fsum-" + os.urandom(4).hex().encode())
    try:
        old = os.stat(destination)
    except OSError:  # there is no old manifest, so the mode is that of a new file
        old = None
    try:
        _make(place, destination, old)
    except BaseException as error:  # also KeyboardInterrupt
        if not isinstance(error.__cause__ or error, FileExistsError):
            with suppress(OSError):
                os.unlink(place)
        raise
    return place


def _make(place: bytes, destination: bytes, old: os.stat_result | None) -> None:
    """Create the temporary manifest, readable by those who may read the old manifest."""
    try:
        fd = create(place, 0o666 if old is None else 0o600)
    except OSError as error:
        text = f"--output: cannot write '{show(destination)}': {error.strerror}"
        raise UsageError(text) from error
    if old is not None:
        with suppress(OSError):  # on failure the file stays private
            acls.give_access(fd, S_IMODE(old.st_mode), acls.read_list(destination))
    try:
        close_new(fd, place)
    except OSError as error:
        raise _unwritable(error) from error


def own_files(root: Root, here: bytes, found: Iterable[OwnFile]) -> tuple[OwnFile, ...]:
    """Return the files that are below a root, with directories relative to the root."""
    top = os.path.realpath(os.path.join(here, root.holder))
    own = []
    for file in found:
        holder = os.path.realpath(file.directory)
        if holder == top or holder.startswith(top.rstrip(b"/") + b"/"):
            inner = holder[len(top) :].lstrip(b"/")
            own.append(msgspec.structs.replace(file, directory=inner))
    return tuple(own)


def publish(
    plan: SumPlan,
    parts: bytes,
    destination: bytes,
    root: ManifestEntry | None,
    entries: int,
    *,
    force: bool,
) -> None:
    """Join the parts into one file and rename it to the manifest, unless `root` is None.

    Remove the parts in any case. The temporary file already exists, with the intended mode. Raise
    OSError if a file cannot be written, renamed or removed. Unless `force` is set, raise it also if
    another process has written the manifest since this job began.
    """
    try:
        if root is not None:
            path = os.path.abspath(os.path.join(plan.directory, plan.roots[0].shown))
            fd = writing(parts, os.O_TRUNC)
            with io.BufferedWriter(WholeFile(fd, "wb")) as stream:
                named = root._replace(name=path)
                sections = result(parts, plan.ranks)
                write_manifest(
                    sections, stream, plan.algorithm, named, lambda: entries, plan.checksum
                )
                stream.flush()
                os.fsync(stream.fileno())
            (replace if force else _give_name)(parts, destination)
    finally:
        clear(plan)


def _give_name(parts: bytes, destination: bytes) -> None:
    """Rename the manifest without replacing a file that is not empty. Raise OSError on failure."""
    with place_of(destination) as place:
        try:
            give_free_name(os.path.basename(parts), place.name, place.fd)
        except FileExistsError:
            if os.stat(place.name, dir_fd=place.fd, follow_symlinks=False).st_size:
                raise
            replace(parts, destination)


def clear(plan: SumPlan) -> None:
    """Remove the parts of a manifest; raise OSError if that fails."""
    if plan.parts is not None:
        with suppress(FileNotFoundError):  # the file was renamed to the manifest
            os.unlink(plan.parts)
        remove(plan.parts, plan.ranks)


def root_of(plan: SumPlan, result: SumResult) -> ManifestEntry | None:
    """Return the entry of the root from the result of a job, or None if it has no digest."""
    if not result.roots.runs:
        return None
    size = get_algorithm(plan.algorithm).size
    ((name, packed),) = iter_entries(result.roots.runs[0], size + plan.trailer_bytes)
    return unpack_entry(name, packed, size)


def against_root(
    plan: SumPlan, against: bytes, root: ManifestEntry, *, reported: bool
) -> list[Difference]:
    """Return the difference between the root itself and the manifest, or an empty list.

    The difference of a directory is omitted if differences below it were `reported`.
    """
    old = Manifest(against).root
    if plan.mode == "rot":
        return [Difference("corrupt", b".")] if _has_rotted(old, root) else []
    same = (old.kind, old.digest) == (root.kind, root.digest)
    if same or (old.kind == root.kind == b"d" and (reported or not plan.whole_tree)):
        return []
    return [Difference("changed", b".")]
