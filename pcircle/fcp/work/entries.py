"""Names of one directory copied to another, and roots that are no directories.

What takes longer than a tenth of a second is handed back to the queue, so that batches are sized
by time. What is to be told of it all (records, names of inodes that have several, copies to be
read again) is told once, at the item's end.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from typing import NamedTuple

from pcircle.checkpoint.journal import Counts
from pcircle.copying.files import COPIED, LARGE, LINKED
from pcircle.fcp.acting import letter_of
from pcircle.fcp.counters import named, of_names
from pcircle.fcp.items import ANYWHERE, Copied, Item, Large, Part, Remark, Singles
from pcircle.fcp.plan import FILE, LINK, SPECIAL
from pcircle.fcp.work.links import HardLinks, Linked
from pcircle.fcp.work.site import Site
from pcircle.fcp.work.special import not_copied
from pcircle.fs.directories import HOLDER, join_path
from pcircle.guards import require
from pcircle.runtime import Here
from pcircle.walk.items import Batch, Place
from pcircle.walk.opened import Gathering
from pcircle.walk.visitor import Names, Where
from pcircle.walk.walker import handed_back

_BATCH_S = 0.1


class _Names(NamedTuple):
    """Names of a directory that are done: counts before and after, and packed entries."""

    names: Sequence[bytes]
    before: Counts
    after: Counts
    entries: bytes


class Entries:
    """The work of one worker thread on entries that are no directories."""

    def __init__(self, site: Site, links: HardLinks) -> None:
        self._site = site
        self._links = links
        # Of the item at hand: by directory what is done, and what is to be read again.
        self._done: dict[tuple[int, bytes], list[_Names]] = {}
        self._copied: list[Copied] = []

    def copy(self, where: Where, names: Names, fds: tuple[int, int], here: Gathering[Part]) -> None:
        """Copy names of a directory, open on both sides; hand the rest back when it takes long."""
        until_s = time.monotonic() + _BATCH_S
        site, root, path, place = self._site, where.root, where.path, require(where.place)
        source_fd, target_fd = fds
        if names.specials and not site.plan.keep.special:
            self._skip_specials(where, names.specials, source_fd, here)
            names.specials = []
        before = site.takings.now()
        site.enter(root, path, place, target_fd)
        site.lift(target_fd, names.files)
        linked, undone = self._copy_others(where, names, fds, here)
        files = names.files
        tried, tally = site.copier.files(files, source_fd, target_fd, here.is_stopping, until_s)
        for name, doing, trouble in tally.failed:
            site.fail(root, join_path(path, name), doing, trouble, here)
        linked += [self._links.linked(name, s, place) for name, s in tally.linked]
        if site.disk is not None:
            undone.update(tally.large, [failed[0] for failed in tally.failed])
            undone.update(each.name for each in linked)
            done = [*names.links, *names.specials, *files[:tried]]
            if undone:
                done = [name for name in done if name not in undone]
            self._are_done(where, done, before, here)
        if linked:
            here.wait(where.slot)
            self._links.claim_later(where, linked)
        elsewhere = len(tally.large) + len(linked)
        here_done = tried + len(names.links) + len(names.specials) - elsewhere
        site.counters.weight += where.weight * here_done
        if tally.large:
            here.spawn([self._large_of(where, name) for name in tally.large])
        if tried < len(files):
            here.spawn(list(handed_back(where, files[tried:])))

    def _copy_others(
        self, where: Where, names: Names, fds: tuple[int, int], here: Here[Item]
    ) -> tuple[list[Linked], set[bytes]]:
        """Copy links and special files; those that have several names, and those that failed."""
        site, place = self._site, require(where.place)
        linked: list[Linked] = []
        failed: set[bytes] = set()
        source_fd, target_fd = fds
        ways = [(site.copier.link, name) for name in names.links]
        ways += [(site.special, name) for name in names.specials]
        for copy_one, name in ways:
            try:
                status = copy_one(source_fd, name, target_fd, name, claimed=False)
            except OSError as error:
                site.fail(where.root, join_path(where.path, name), None, error, here)
                failed.add(name)
            else:
                if status is not None:
                    linked.append(self._links.linked(name, status, place))
                elif site.signer is not None:
                    site.signer.add(name)
        return linked, failed

    def _skip_specials(
        self, where: Where, names: Sequence[bytes], source_fd: int, here: Here[Item]
    ) -> None:
        site = self._site
        for name in names:
            site.counters.weight += where.weight
            try:
                mode = site.skipper.skip(where.root, where.path, name, source_fd, here)
            except OSError as error:
                site.fail(where.root, join_path(where.path, name), "copy", error, here)
            else:
                if site.acting is not None:
                    path = join_path(where.path, name)
                    site.acting.actions.skipped(where.root, path, letter_of(mode))

    def _large_of(self, where: Where, name: bytes) -> Large:
        place = require(where.place)
        names = where.path, name, name
        return Large(where.root, *names, where.weight, place, slot=where.slot)

    # ---- reported at the end -----------------------------------------------

    def _are_done(
        self, where: Where, names: Sequence[bytes], before: Counts, here: Gathering[Part]
    ) -> None:
        """These names are done: to be recorded, or first to be read again."""
        site = self._site
        after = site.takings.now()
        entries = b"" if site.signer is None else site.signer.fresh()
        if site.waiting is not None:
            counts = of_names(len(names), before, after) if before else ()
            copied = site.waiting.copied(where, names, counts, entries)
            if copied is not None:
                self._copied.append(copied)
                here.wait(where.slot)
                return  # it is recorded when it is verified
        if site.recorder is not None and names:
            done = _Names(names, before, after, entries)
            self._done.setdefault((where.root, where.path), []).append(done)

    def forget(self, root: int, path: bytes) -> None:
        """A record of the whole directory says it all."""
        self._done.pop((root, path), None)

    def end(self, here: Here[Item]) -> None:
        """The item ends."""
        site = self._site
        self._links.send_claims(here)
        if self._copied:
            copied, self._copied = self._copied, []
            require(site.waiting).hold(copied, here)
        if self._done:
            recorder, done = require(site.recorder), self._done
            self._done = {}
            for (root, path), each in done.items():
                made = site.copy_mark(root, path)
                for names, before, after, entries in each:
                    counts = of_names(len(names), before, after)
                    recorder.names(root, path, names, named(counts), made, entries)

    # ---- roots -----------------------------------------------------------------

    def singles(self, item: Singles, here: Gathering[Part]) -> None:
        """Copy roots that are not directories; hand the rest back when it takes long."""
        until_s = time.monotonic() + _BATCH_S
        self._site.leave_mark(item.first)
        for number in range(item.first, item.end):
            self._site.copier.doing = "reach"
            finished = True
            if self._is_done(number):
                self._site.counters.weight += item.weight
                continue
            before = self._site.takings.now()
            settled = self._site.counters.copied()
            try:
                finished = self._single(number, item.weight, here)
            except OSError as error:
                self._site.counters.take_back(settled)
                self._site.fail(number, b"", None, error, here)
            else:
                self._single_done(number, finished, before, here)
            self._site.counters.weight += item.weight * finished
            after = number + 1
            if after < item.end and (here.stopping or time.monotonic() > until_s):
                middle = (after + item.end + 1) // 2
                parts = [(after, middle), (middle, item.end)]
                here.spawn([Singles(a, b, item.weight) for a, b in parts if a < b])
                break

    def _is_done(self, number: int) -> bool:
        """Whether an earlier run has copied a root that is not a directory; then it is counted."""
        site, root = self._site, self._site.plan.roots[number]
        partial = None if site.resumed is None else site.resumed.partial(number, HOLDER)
        if partial is None or site.recorder is None:
            return False
        hashes = site.recorder.keys.names([root.source_name])
        kind = {FILE: stat.S_IFREG, LINK: stat.S_IFLNK}.get(root.kind)
        if kind is None or not site.target_is(number, b"", kind):
            return False  # a special file is made as soon as it is looked at
        if not all(partial.are_done(hashes)):
            return False
        partial = site.partial(number, HOLDER)
        if partial is None or not all(partial.are_done(hashes)):
            return False  # what is known of it is of another place, or does not sign it
        site.counters.found -= 1  # the seed has found it
        site.counters.resume(partial.counts)
        return True

    def _single_done(
        self, number: int, finished: bool, before: Counts, here: Gathering[Part]
    ) -> None:
        if self._site.disk is not None and finished:
            name = self._site.plan.roots[number].source_name
            where = Batch(number, HOLDER, b"", b"", 0.0, ANYWHERE)
            self._are_done(where, [name], before, here)

    def _single(self, number: int, weight: float, here: Gathering[Part]) -> bool:
        """Copy a root that is not a directory; false if that goes on in chunks."""
        root = self._site.plan.roots[number]
        with (
            self._site.sources.lease(number, HOLDER) as source,
            self._site.targets.lease(number, HOLDER) as lease,
        ):
            names = (source.fd, root.source_name, lease.fd, root.target_name)
            self._site.enter(number, HOLDER, ANYWHERE, lease.fd)
            if root.kind == LINK:
                self._site.copier.link(*names)
                here.note([Remark(root.source_shown, "is a symbolic link: copied as one")])
            elif root.kind == SPECIAL and self._site.plan.keep.special:
                self._site.special(*names)
            elif root.kind != FILE:
                self._site.copier.doing = "copy"
                raise not_copied(source.fd, root.source_name)
            else:
                outcome = self._site.copier.file(*names)
                place = Place(source.identity, lease.identity, lease.identity, root.file_system)
                name, new = root.source_name, root.target_name
                if outcome == LARGE:
                    here.spawn([Large(number, HOLDER, name, new, weight, place)])
                elif outcome == LINKED:
                    status = require(self._site.copier.status)
                    linked = [self._links.linked(name, status, place)]
                    where = Batch(number, HOLDER, b"", b"", weight, place)
                    self._links.claim_later(where, linked)
                    here.wait(0)
                if outcome != COPIED:
                    return False
            self._site.sync_holder(HOLDER, lease)
            if self._site.signer is not None:
                self._site.signer.add_at(number, HOLDER, name=b"")
        return True
