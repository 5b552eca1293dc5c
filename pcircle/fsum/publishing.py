"""The manifest's way out of the ranks' hands: where its parts lie, and how they become one file."""

from __future__ import annotations

import os

from pcircle.errors import UsageError
from pcircle.fsum.coreutils import Listed, read_list
from pcircle.fsum.items import Difference, Done
from pcircle.fsum.ledger import has_rotted
from pcircle.fsum.plan import Plan
from pcircle.signature import algorithm, entries_of
from pcircle.signature.digests import BESIDE
from pcircle.signature.manifest import Damaged, Entry, Manifest, assemble, remove, unpack
from pcircle.ui.names import show


def read_manifest(path: bytes) -> Manifest:
    """A manifest, all of which was looked at. UsageError if it can't be believed."""
    try:
        manifest = Manifest(path)
        manifest.verify()
    except Damaged as error:
        raise UsageError(f"'{show(path)}' is damaged, or no manifest: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read '{show(path)}': {error.strerror}") from None
    return manifest


def is_manifest(path: bytes) -> bool:
    """Whether a file begins as a manifest does; else it may be a list of digests."""
    try:
        with open(path, "rb") as stream:
            return stream.read(1) in (b"", b"p")
    except OSError:
        return True  # to read it will say what is wrong


def read_digests(path: bytes, algorithm: str | None) -> tuple[str, list[Listed]]:
    """A list of digests, and which they are. UsageError if it makes no sense."""
    try:
        with open(path, "rb") as stream:
            return read_list(stream, algorithm)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read '{show(path)}': {reason}") from None


def place_for(output: bytes, here: bytes) -> bytes:
    """Where the parts of a manifest go: beside it. UsageError if nothing can be written there."""
    holder, name = os.path.split(os.path.join(here, output))
    if not name or os.path.isdir(output):
        raise UsageError(f"--output: '{show(output)}' is a directory")
    place = os.path.join(holder, b".fsum-" + os.urandom(4).hex().encode())
    try:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except OSError as error:
        raise UsageError(f"--output: cannot write '{show(output)}': {error.strerror}") from None
    return place


def publish(plan: Plan, output: bytes | None, root: Entry | None, ranks: int, entries: int) -> None:
    """Make one file of the parts, under its name at once; without a root only clear away. OSError.

    The temporary file that it becomes is there already, with the mode of a new file.
    """
    assert plan.parts is not None
    assert output is not None
    places = [b"%b-%d" % (plan.parts, rank) for rank in range(ranks)]
    present = [place for place in places if os.path.exists(place + b".text")]
    try:
        if root is not None:
            path = os.path.abspath(os.path.join(plan.directory, plan.roots[0].shown))
            with open(plan.parts, "wb") as stream:
                named = root._replace(name=path)
                assemble(present, stream, plan.algorithm, named, entries)
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(plan.parts, os.path.join(plan.directory, output))
        else:
            os.unlink(plan.parts)
    finally:
        remove(places)


def root_of(plan: Plan, result: Done) -> Entry | None:
    """The root's entry, of a job's result."""
    if not result.runs:
        return None
    size = algorithm(plan.algorithm).size
    ((name, packed),) = entries_of(result.runs[0], size + BESIDE.size)
    return unpack(name, packed, size)


def against_root(plan: Plan, root: Entry) -> list[Difference]:
    """How the root itself differs from what the manifest says; directories tell by themselves."""
    assert plan.against is not None
    old = Manifest(plan.against).root
    if plan.mode == "rot":
        return [Difference("corrupt", b".")] if has_rotted(old, root) else []
    if old.kind == root.kind == b"d" or (old.kind, old.digest) == (root.kind, root.digest):
        return []
    return [Difference("changed", b".")]
