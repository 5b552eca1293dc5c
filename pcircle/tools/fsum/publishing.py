"""Reads manifest files, and creates and joins the parts of new ones."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from contextlib import suppress
from stat import S_IMODE, S_ISREG

import msgspec

from pcircle.cli.inputs import open_input
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import WholeFile, close_new
from pcircle.fs.attributes import acls
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
from pcircle.ops.digest import get_algorithm, iter_entries
from pcircle.ops.digest.checksums import ChecksumList, parse_list
from pcircle.ops.digest.manifest import (
    MAGIC,
    DamagedManifestError,
    Manifest,
    ManifestEntry,
    unpack_entry,
    write_manifest,
)
from pcircle.tools.fsum.ledger import has_rotted, unwritable
from pcircle.tools.fsum.plan import Difference, OwnFile, SumPlan, SumResult
from pcircle.walk.roots import Root
from pcircle.walk.segments import remove, result


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
        raise unwritable(error) from error


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
        return [Difference("corrupt", b".")] if has_rotted(old, root) else []
    same = (old.kind, old.digest) == (root.kind, root.digest)
    if same or (old.kind == root.kind == b"d" and (reported or not plan.whole_tree)):
        return []
    return [Difference("changed", b".")]
