"""Copies the entries of a directory other than subdirectories, and roots that are not directories.

After a tenth of a second, or sooner if other workers are idle, the rest of an item returns to the
queue. Thus batches are limited by time, not by size. Records, claims of hard-linked names and
copies to verify are sent together at the end of the item.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from pcircle.core.errors import require
from pcircle.fs.directories import HOLDER, join_path
from pcircle.fs.entry_errors import error_context
from pcircle.ops.checkpoint.journal import Counts
from pcircle.ops.copy.entry.files import COPIED, LARGE, LINKED
from pcircle.ops.copy.tree import items
from pcircle.ops.copy.tree.counters import letter_of, named, of_names
from pcircle.ops.copy.tree.links import FoundLink, HardLinks
from pcircle.ops.copy.tree.selection import SpecialFileSkipper, not_copied
from pcircle.ops.copy.tree.small_directories import PartialDirectory
from pcircle.ops.copy.tree.worker import Worker, WorkerPart
from pcircle.runtime import Context
from pcircle.walk.items import ANYWHERE, Batch, DirectoryIdentity, handed_back
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.visitor import Names, Where

_Names: TypeAlias = "tuple[Sequence[bytes], Counts, Counts, bytes]"
"""Completed names of a directory: the names, counts before and after, and packed entries."""


class EntryCopier(WorkerPart):
    """Copies entries other than directories, for one worker thread."""

    def __init__(self, worker: Worker, links: HardLinks) -> None:
        super().__init__(worker)
        self._skipper = SpecialFileSkipper(worker.plan, worker.counters)
        self._links = links
        # Of the current item: the completed names by directory, and the copies to verify.
        self._done: dict[tuple[int, bytes], list[_Names]] = {}
        self._copied: list[items.CopiedFiles] = []

    def copy(
        self,
        where: Where,
        names: Names,
        fds: tuple[int, int],
        context: ItemContext[items.PartialResult],
    ) -> None:
        """Copy names between two open directories; spawn the remaining ones when time is up."""
        enough = context.time_limit()
        root, path, place = where.root, where.path, where.place
        source_fd, target_fd = fds
        if names.specials and not self._plan.keep.special:
            self._skip_specials(where, names.specials, source_fd, context)
            names.specials = []
        before = self._delta.now()
        self._worker.enter(root, path, place, target_fd)
        if self._earlier is not None:
            self._earlier.lift(target_fd, names.files)
        linked: list[FoundLink] = []
        undone: set[bytes] = set()
        if names.links or names.specials:
            linked, undone = self._copy_others(where, names, fds, context)
        files = names.files
        tried, tally = self._copier.files(files, source_fd, target_fd, context.is_stopping, enough)
        done = files if tried == len(files) else files[:tried]
        if names.links or names.specials:
            done = [*names.links, *names.specials, *done]
        here_done = len(done)
        if linked or undone or tally.large or tally.linked or tally.failed:
            for name, doing, trouble in tally.failed:
                self._accounts.fail(root, join_path(path, name), doing, trouble, context)
            linked += [self._links.linked(name, s, place) for name, s in tally.linked]
            here_done -= len(tally.large) + len(linked)
            undone.update([name for name, _ in tally.large], [failed[0] for failed in tally.failed])
            undone.update(linked_name.name for linked_name in linked)
            done = [name for name in done if name not in undone]
        if self._disk is not None:
            self._are_done(where, done, before, context)
        if linked:
            context.wait(where.slot)
            there = self._are_there(linked, target_fd)
            self._links.claim_later(where, there, ahead=True)
            self._links.claim_later(where, [name for name in linked if name not in there])
        self._counters.weight += where.weight * here_done
        if tally.large:
            context.spawn([self._large_of(where, *large) for large in tally.large])
        if tried < len(files):
            context.spawn(list(handed_back(where, files[tried:])))

    def _are_there(self, linked: Sequence[FoundLink], target_fd: int) -> list[FoundLink]:
        """Return the names whose copies are up to date, so that they are claimed first."""
        there: list[FoundLink] = []
        if self._copier.names.keeper is None:
            return there
        for linked_name in linked:
            with suppress(OSError):
                old = os.stat(linked_name.name, dir_fd=target_fd, follow_symlinks=False)
                stamp = linked_name.stamp
                if (old.st_size, old.st_mtime_ns) == (stamp.size, stamp.modified.ns):
                    there.append(linked_name)
        return there

    def are_copied(
        self,
        where: Open[items.PartialResult],
        begun: PartialDirectory,
        context: ItemContext[items.PartialResult],
    ) -> None:
        """Count and record the names of a small directory that have already been copied."""
        done, before = begun.names[: begun.done], self._delta.now()
        self._counters.add_files(begun.done, begun.done_bytes)
        self._counters.weight += where.weight * begun.done
        if done and self._disk is not None:
            self._are_done(where, done, before, context)

    def go_on(
        self,
        where: Open[items.PartialResult],
        begun: PartialDirectory,
        context: ItemContext[items.PartialResult],
    ) -> None:
        """Copy the remaining names of a small directory."""
        remaining = begun.names[begun.done :]
        if remaining:
            source, target = where.leases
            self.copy(where, Names(remaining, [], []), (source.fd, target.fd), context)

    def _copy_others(
        self, where: Where, names: Names, fds: tuple[int, int], context: Context[items.Item]
    ) -> tuple[list[FoundLink], set[bytes]]:
        """Copy links and special files; return hard-linked and failed names."""
        place = where.place
        linked: list[FoundLink] = []
        failed: set[bytes] = set()
        source_fd, target_fd = fds
        ways = [(self._copier.link, name) for name in names.links]
        ways += [(self._worker.copy_special, name) for name in names.specials]
        for copy_one, name in ways:
            try:
                status = copy_one(source_fd, name, target_fd, name, claimed=False)
            except OSError as error:
                self._accounts.fail(where.root, join_path(where.path, name), None, error, context)
                failed.add(name)
            else:
                if status is not None:
                    linked.append(self._links.linked(name, status, place))
                elif self._signer is not None:
                    self._signer.add_entry(name)
        return linked, failed

    def _skip_specials(
        self, where: Where, names: Sequence[bytes], source_fd: int, context: Context[items.Item]
    ) -> None:
        for name in names:
            self._counters.weight += where.weight
            try:
                mode = self._skipper.skip(where.root, where.path, name, source_fd, context)
            except OSError as error:
                self._accounts.fail(where.root, join_path(where.path, name), "copy", error, context)
            else:
                if self._acting is not None:
                    path = join_path(where.path, name)
                    self._acting.actions.skipped(where.root, path, letter_of(mode))

    def _large_of(self, where: Where, name: bytes, size: int) -> items.LargeFileItem:
        self._counters.ahead += 1
        self._counters.ahead_bytes += size
        own = (where.root, where.path, name, name, where.weight, where.place)
        expected = self._copier.names.expected
        return items.LargeFileItem(*own, slot=where.slot, ahead_bytes=size, expected=expected)

    # ---- reported at the end -----------------------------------------------

    def _are_done(
        self,
        where: Where,
        names: Sequence[bytes],
        before: Counts,
        context: ItemContext[items.PartialResult],
    ) -> None:
        """Record completed names, or hold them for verification."""
        after = self._delta.now()
        entries = b"" if self._signer is None else self._signer.take_new_entries()
        if self._waiting is not None:
            counts = of_names(len(names), before, after) if before else ()
            copied = self._waiting.copied(where, names, counts, entries)
            if copied is not None:
                self._copied.append(copied)
                context.wait(where.slot)
                return  # the names are recorded after verification
        if self._recorder is not None and names:
            done = names, before, after, entries
            self._done.setdefault((where.root, where.path), []).append(done)

    def forget(self, root: int, path: bytes) -> None:
        """Drop the pending records of names in a directory.

        One record of the whole directory replaces them.
        """
        self._done.pop((root, path), None)

    def end(self, context: Context[items.Item]) -> None:
        """Send the claims, the copies to verify and the records of the item."""
        self._links.send_claims(context)
        if self._copied and self._waiting is not None:
            copied, self._copied = self._copied, []
            self._waiting.hold(copied, context)
        recorder = self._recorder
        if self._done and recorder is not None:
            done, self._done = self._done, {}
            for (root, path), batches in done.items():
                made = self._sides.copy_mark(root, path)
                for names, before, after, entries in batches:
                    counts = named(of_names(len(names), before, after))
                    recorder.add_names(root, path, names, counts, made, entries)

    # ---- roots -----------------------------------------------------------------

    def singles(self, item: items.SingleRoots, context: ItemContext[items.PartialResult]) -> None:
        """Copy roots that are not directories; spawn the remaining ones when time is up."""
        enough = context.time_limit()
        self._sides.leave_mark(item.first)
        for number in range(item.first, item.end):
            finished = True
            if self._is_done(number):
                self._counters.weight += item.weight
                continue
            before = self._delta.now()
            settled = self._counters.copied()
            try:
                finished = self._single(number, item.weight, context)
            except OSError as error:
                self._counters.take_back(settled)
                self._accounts.fail(number, b"", None, error, context)
            else:
                if self._disk is not None and finished:
                    name = self._plan.roots[number].source_name
                    where = Batch(number, HOLDER, b"", b"", 0.0, ANYWHERE)
                    self._are_done(where, [name], before, context)
            self._counters.weight += item.weight * finished
            if context.stopping or enough():
                context.spawn(item.halves_after(number))
                break

    def _is_done(self, number: int) -> bool:
        """Return whether an earlier run copied a root that is not a directory; if so, count it."""
        root = self._plan.roots[number]
        earlier = self._earlier
        partial = None if earlier is None else earlier.resumed.partial(number, HOLDER)
        if partial is None or earlier is None or self._recorder is None:
            return False
        hashes = self._recorder.keys.names([root.source_name])
        kind = {items.FILE: stat.S_IFREG, items.LINK: stat.S_IFLNK}.get(root.kind)
        if kind is None or not self._sides.target_is(number, b"", kind):
            return False  # special files are always created again
        if not all(partial.are_done(hashes)):
            return False
        partial = earlier.partial(number, HOLDER)
        if partial is None or not all(partial.are_done(hashes)):
            return False  # the records are of another target, or lack the signature
        self._counters.found -= 1  # `seed` has already counted it
        self._counters.resume(partial.counts)
        return True

    def _single(
        self, number: int, weight: float, context: ItemContext[items.PartialResult]
    ) -> bool:
        """Copy a root that is not a directory; return False if other items complete the copy."""
        root = self._plan.roots[number]
        with self._sides.leases(number, HOLDER) as (source, lease):
            names = (source.fd, root.source_name, lease.fd, root.target_name)
            self._worker.enter(number, HOLDER, ANYWHERE, lease.fd)
            if root.kind == items.LINK:
                self._copier.link(*names)
                text = "is a symbolic link: copied as a link"
                context.note([items.Remark(root.source_shown, text)])
            elif root.kind == items.SPECIAL and self._plan.keep.special:
                self._worker.copy_special(*names)
            elif root.kind != items.FILE:
                with error_context("copy"):
                    raise not_copied(source.fd, root.source_name)
            else:
                outcome = self._copier.file(*names)
                place = DirectoryIdentity(
                    source.identity, lease.identity, lease.identity, root.file_system
                )
                name, new = root.source_name, root.target_name
                if outcome == LARGE:
                    context.spawn([items.LargeFileItem(number, HOLDER, name, new, weight, place)])
                elif outcome == LINKED:
                    status = require(self._copier.status)
                    linked = [self._links.linked(name, status, place)]
                    where = Batch(number, HOLDER, b"", b"", weight, place)
                    self._links.claim_later(where, linked)
                    context.wait(0)
                if outcome != COPIED:
                    return False
            self._sides.sync_holder(HOLDER, lease)
            if self._signer is not None:
                self._signer.add_entry_or_root(number, HOLDER, name=b"")
        return True
