"""Selects the entries of source directories, and creates the first items of a job.

Entries are selected directly after the scan: excluded entries are dropped, and excluded directories
are not entered. If links are followed, a link counts as an entry of its target's type. A copy that
neither filters entries nor follows links uses the blocks of `pcircle.fs.scan` unchanged.

If links are followed, cycles must be detected. A link may lead to one of its own parents, so each
directory carries the identities (device, inode) of the directories on its path, sixteen bytes each.
A repeated identity is a cycle. A link may also lead into the copy, which would then grow while it
is read. Therefore the target of a link must not be inside any of the copies. A directory that is
not a link is on the same side as its parent, so only links are checked.

`first_items` returns the first items of a job. If it copies only the paths in a list, the listed
entries form a tree: each directory on the path of an entry is created if it is missing, is
completed like any other directory, and counts as an entry.

Unless -a is given, FIFOs, sockets and devices in trees are skipped, and reported once per kind. A
SRC that is a special file fails.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from pcircle.fs.directories import HOLDER, Directories, Lease, directory_and_ancestors, join_path
from pcircle.fs.entry_errors import LOOP, SPECIAL, Changed, EntryError, special_kind
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.ops.copy.entry.collisions import Siblings, reopened
from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.ops.copy.tree.items import DIRECTORY, CopyPlan, Item, SingleRoots, SkippedSpecial
from pcircle.runtime import Context
from pcircle.walk.attributes import ANY
from pcircle.walk.globs import choosing, follow
from pcircle.walk.items import DirectoryIdentity, Tree
from pcircle.walk.open_directory import Open

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists


P = TypeVar("P")

_ONE = struct.Struct("<QQ")
_BATCH_NAMES = 512  # maximum number of SRC files in one item


def below(ancestors: bytes, place: DirectoryIdentity) -> bytes:
    """Return the ancestors of the entries in a directory, given those of the directory."""
    return ancestors + _ONE.pack(*place.source)


def ancestors_of(holder: Open[P] | None) -> bytes:
    """Return the packed identities of the ancestors of `holder`, which is None for a root."""
    return b"" if holder is None else holder.ancestors


def refuse_cycle(
    where: tuple[int, bytes, bytes], found: Lease, sources: Directories, copies: Directories
) -> None:
    """Raise EntryError if entering the directory `found` would close a cycle."""
    root, path, ancestors = where
    one = _ONE.pack(*found.identity)
    status = os.fstat(found.fd)
    names = path.split(b"/")
    for depth in range(len(ancestors) // _ONE.size):
        if ancestors.startswith(one, depth * _ONE.size):
            # On several nodes, identities contain only inodes, so the file systems may differ.
            with sources.lease(root, b"/".join(names[:depth])) as ancestor:
                if os.path.samestat(status, os.fstat(ancestor.fd)):
                    raise EntryError(LOOP, "it leads back to a directory above it")
    with sources.lease(root, b"/".join(names[:-1])) as holder:
        name_status = os.stat(names[-1], dir_fd=holder.fd, follow_symlinks=False)
    if stat.S_ISLNK(name_status.st_mode):
        roots = copies.roots()
        if any(identity in roots for identity in directory_and_ancestors(found.fd)):
            raise EntryError(LOOP, "it leads into the copy being made")


Blocks = Callable[[bytes, int], Iterator[Block]]


def chosen_blocks(plan: CopyPlan) -> Blocks:
    """Return a function that yields the selected blocks of a directory (path, descriptor)."""
    if not plan.rules and not plan.follow and plan.attribute_filter == ANY:
        return lambda path, directory_fd: blocks(directory_fd)
    choose = choosing(plan.rules, plan.attribute_filter, plan.now_ns, follow=plan.follow)

    def read(path: bytes, directory_fd: int) -> Iterator[Block]:
        for block in blocks(directory_fd):
            if plan.follow:
                follow(block, directory_fd)
            choose(block, path, directory_fd)
            yield block

    return read


def siblings_of(plan: CopyPlan) -> Siblings:
    """Return a function that returns the names to be copied from a source directory."""
    roots, read = plan.roots, chosen_blocks(plan)

    def siblings(sources: Directories, root: int, path: bytes) -> Iterable[bytes]:
        """Return the names to be copied from a directory, or the names of roots in one parent."""
        if path == HOLDER:
            holder = roots[root].target_holder
            return [other.target_name for other in roots if other.target_holder == holder]
        names: list[bytes] = []
        with sources.lease(root, path, readable=True) as source, reopened(source.fd) as fd:
            for block in read(path, fd):
                for kind in (block.files, block.links, block.directories):
                    names += encoded(kind)
                if plan.keep.special:
                    names += encoded(block.specials)
        return names

    return siblings


def first_items(plan: CopyPlan, lists: Lists | None, counters: CopyCounters) -> Iterator[Item]:
    """Yield the first items of a job, and count the roots as found; `lists` may restrict the job.

    Each directory is an item. Other roots are divided into items of at most `_BATCH_NAMES` roots.
    """
    if lists is not None:
        yield from _listed_items(plan, lists, counters)
        return
    weight = 1.0 / len(plan.roots)
    counters.found += len(plan.roots)
    number = 0
    for is_directory, group in groupby(plan.roots, lambda root: root.kind == DIRECTORY):
        end = number + len(list(group))
        if is_directory:
            counters.scans_due += end - number
            yield from (Tree(root, b"", weight) for root in range(number, end))
        else:
            for first in range(number, end, _BATCH_NAMES):
                yield SingleRoots(first, min(first + _BATCH_NAMES, end), weight)
        number = end


def _listed_items(plan: CopyPlan, lists: Lists, counters: CopyCounters) -> Iterator[Item]:
    counters.found += len(lists.parts)
    for part in lists.parts:
        weight = 1.0 / len(lists.parts)
        if plan.roots[part.root].kind == DIRECTORY:
            counters.scans_due += 1
            yield Tree(part.root, b"", weight, only=part.listed)
        else:
            yield SingleRoots(part.root, part.root + 1, weight)


class SpecialFileSkipper:
    """Counts skipped special files and reports the first one of each kind in each root."""

    def __init__(self, plan: CopyPlan, counters: CopyCounters) -> None:
        self._plan = plan
        self._counters = counters
        self._reported: set[tuple[int, str]] = set()

    def skip(
        self, root: int, above: bytes, name: bytes, source_fd: int, context: Context[Item]
    ) -> int:
        """Skip a special file and return its mode. Raises OSError if its type has changed."""
        status = os.stat(name, dir_fd=source_fd, follow_symlinks=self._plan.follow)
        kind = special_kind(status.st_mode)
        if not kind:
            raise Changed("it is no longer a special file")
        self._counters.special_skipped += 1
        self._counters.sized += 1
        # Each root is reported separately, because an incomplete root has no signature.
        if (root, kind) not in self._reported:
            self._reported.add((root, kind))
            path = os.path.join(self._plan.roots[root].source_shown, join_path(above, name))
            context.note([SkippedSpecial(path, kind, root)])
        return status.st_mode


def not_copied(source_fd: int, name: bytes) -> OSError:
    """Return the error for a SRC that is a special file.

    Raises OSError if there is no such file.
    """
    status = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
    what = special_kind(status.st_mode)
    if not what:
        return Changed("it is no longer a special file")
    return EntryError(SPECIAL, f"it is a {what}: add -a to copy it")
