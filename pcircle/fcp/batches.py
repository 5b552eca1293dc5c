"""Names by the hundred: what lies in one directory, and roots that are no directories.

A batch that takes longer than a tenth of a second hands the rest back to the
queue, so that batches are sized by time.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence

from pcircle.copying.files import COPIED, LARGE, LINKED
from pcircle.fcp.counters import of_names
from pcircle.fcp.items import ANYWHERE, Batch, Done, Item, Large, Place, Remark, Singles, unpack
from pcircle.fcp.links import HardLinks, Linked
from pcircle.fcp.plan import FILE, LINK, SPECIAL
from pcircle.fcp.site import Site
from pcircle.fcp.special import not_copied
from pcircle.fs.directories import HOLDER, join_path
from pcircle.guards import require
from pcircle.runtime import Here

_BATCH_S = 0.1


class Batches:
    """The work on batches of one rank."""

    def __init__(self, site: Site, links: HardLinks) -> None:
        self._site = site
        self._links = links

    def batch(self, item: Batch, here: Here[Item]) -> Done:
        """Do a batch that was spawned."""
        try:
            with (
                self._site.sources.lease(item.root, item.path, item.place.source) as source,
                self._site.targets.lease(item.root, item.path, item.place.target) as lease,
            ):
                self.names(item, source.fd, lease.fd, here)
        except OSError as error:
            names = unpack(item.files) + unpack(item.links) + unpack(item.specials)
            self._site.counters.weight += item.weight * len(names)
            for name in names:
                path = join_path(item.path, name)
                self._site.fail(item.root, path, "reach", error, here)
        return Done()

    def names(self, item: Batch, source_fd: int, target_fd: int, here: Here[Item]) -> None:
        """Copy a batch's names; hand the rest back when it takes long."""
        until_s = time.monotonic() + _BATCH_S
        told = self._site.disk is not None
        before = self._site.counters.counts() if told else ()
        files, links, specials = map(unpack, (item.files, item.links, item.specials))
        linked: list[Linked] = []
        undone: set[bytes] = set()
        self._site.enter(item.root, item.path, item.place, target_fd)
        self._site.lift(target_fd, files)
        ways = [(self._site.copier.link, name) for name in links]
        ways += [(self._site.special, name) for name in specials]
        for copy_one, name in ways:
            try:
                status = copy_one(source_fd, name, target_fd, name, claimed=False)
            except OSError as error:
                self._site.fail(item.root, join_path(item.path, name), None, error, here)
                undone.add(name)
            else:
                if status is not None:
                    linked.append(self._links.linked(name, status, item.place))
                elif self._site.signer is not None:
                    self._site.signer.add(name)
        tried, tally = self._site.copier.files(
            files, source_fd, target_fd, here.is_stopping, until_s
        )
        for name, doing, trouble in tally.failed:
            self._site.fail(item.root, join_path(item.path, name), doing, trouble, here)
        linked += [self._links.linked(name, s, item.place) for name, s in tally.linked]
        if told:
            undone.update(tally.large, [failed[0] for failed in tally.failed])
            undone.update(each.name for each in linked)
            done = [*links, *specials, *files[:tried]]
            if undone:
                done = [name for name in done if name not in undone]
            counts = of_names(len(done), before, self._site.counters.counts())
            self._site.done((item.root, item.path, item.place), done, counts, here)
        self._links.post((item.root, item.path, item.place), linked, item.weight, here)
        elsewhere = len(tally.large) + len(linked)
        here_done = tried + len(links) + len(specials) - elsewhere
        self._site.counters.weight += item.weight * here_done
        here.spawn([self._large_of(item, name) for name in tally.large])
        self._hand_back(item, files[tried:], here)

    def _large_of(self, item: Batch, name: bytes) -> Large:
        return Large(item.root, item.path, name, name, item.weight, item.place)

    def _hand_back(self, item: Batch, files: Sequence[bytes], here: Here[Item]) -> None:
        """Spawn what a slow batch has left, in two parts."""
        half = (len(files) + 1) // 2
        parts = [part for part in (files[:half], files[half:]) if part]
        here.spawn(
            [
                Batch(item.root, item.path, b"\0".join(part), b"", item.weight, item.place)
                for part in parts
            ]
        )

    def singles(self, item: Singles, here: Here[Item]) -> Done:
        """Copy roots that are not directories; hand the rest back when it takes long."""
        until_s = time.monotonic() + _BATCH_S
        self._site.leave_mark(item.first)
        for number in range(item.first, item.end):
            self._site.copier.doing = "reach"
            finished = True
            if self._is_done(number):
                self._site.counters.weight += item.weight
                continue
            before = self._site.counters.counts()
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
        return Done()

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
        self, number: int, finished: bool, before: tuple[int, ...], here: Here[Item]
    ) -> None:
        if self._site.disk is not None and finished:
            counts = of_names(1, before, self._site.counters.counts())
            name = self._site.plan.roots[number].source_name
            self._site.done((number, HOLDER, ANYWHERE), [name], counts, here)

    def _single(self, number: int, weight: float, here: Here[Item]) -> bool:
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
                    self._links.post((number, HOLDER, place), linked, weight, here)
                if outcome != COPIED:
                    return False
            self._site.sync_holder(HOLDER, lease)
            if self._site.signer is not None:
                self._site.signer.add_at(number, HOLDER, name=b"")
        return True
