"""What is as it should be, of entries that both sides have: most of them, every night.

Names are looked up on both sides, many at a time, and compared column by column; only of what has
changed since the last complete run attributes are asked for. Small directories are looked at
several at once: so what a block costs is paid for once for all of these.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, chain, repeat
from typing import NamedTuple

from pcircle.comparing import fields
from pcircle.fmirror.plan import MirrorPlan
from pcircle.fmirror.work.batches import BatchedDetails
from pcircle.fmirror.work.keeping import Keeping, read_from_ns
from pcircle.fs.scan import LINK, ONLY_FILES, DirectoryBatch
from pcircle.fs.stats import CAPACITY, Failed, Stats, Table

OF_FILES = fields.ALL & ~fields.TARGET
_KINDS = ONLY_FILES | 1 << LINK[0]
_ANY_KIND = 0xFFFF
_NS = 10**9


class QuickCheck:
    """One worker thread's. `is_trusted`: what has old times was there at the last run."""

    def __init__(self, plan: MirrorPlan, keeper: Keeping, helped: int) -> None:
        self._keeper = keeper
        self._details = BatchedDetails(keeper.details, flags=plan.keep.flags)
        self._keeps_links = plan.keep.links
        self._quiet_ns, self._devices = plan.quiet_ns, plan.devices
        self._deletes = plan.deleting.wanted
        self._reads = read_from_ns(plan) is not None
        source = Stats(helped)
        self._looks = source, Stats(helped, sharing=source)
        self.is_trusted = True

    def is_quiet(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Whether neither was changed since the last complete run."""
        quiet_ns = self._quiet_ns
        if quiet_ns is None:
            return False
        is_older = source.st_ctime_ns < quiet_ns[0] and target.st_ctime_ns < quiet_ns[1]
        return is_older and self.is_known(source, target)

    def is_known(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether two directories are on the file systems of the last complete run.

        The state tells nothing of file systems that are mounted below these.
        """
        return (source.st_dev, target.st_dev) == self._devices

    # ---- names of one directory ------------------------------------------------

    def left(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Those of up to `CAPACITY` names that are not known to be as they should be."""
        here, missing = _look(self._looks[1], fds[1], names)
        there, gone = _look(self._looks[0], fds[0], here)
        if gone:  # what is not there any more fails where it is copied
            _look(self._looks[1], fds[1], there)
        changed = self._changed(there, fds, among)
        return [*missing, *gone, *changed]

    def _changed(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Of names that were looked up on both sides those that are not as they should be."""
        if not names:
            return []
        count = len(names)
        changed = self._different(count)
        links = None if among & fields.TARGET else ()
        recent: Collection[int] = range(count)
        if self.is_trusted and self._quiet_ns is not None:
            recent = self._recent(self._looks, count)
        if self._reads:
            changed.update(recent)
        if self._keeper.details.fields & among and len(recent):
            rest = [place for place in recent if place not in changed]
            changed |= self._details.differ(names, fds, self._looks, rest, links)
        if not changed:
            return []
        return [name for place, name in enumerate(names) if place in changed]

    def _different(self, count: int) -> set[int]:
        """Of names that were looked up the places of those with another status, or links."""
        source, target = self._looks
        found = set(self._keeper.blocks(source, target, count))
        if self._keeps_links and not source.has_single_names(0, count):
            links = source.column("links", 0, count)
            found.update(place for place, number in enumerate(links) if number > 1)
        return found

    def _recent(self, tables: tuple[Table, Table], count: int, unit_ns: int = _NS) -> set[int]:
        """The places of those that were changed on a side since its last complete run.

        Change times may be cut to whole seconds.
        """
        found: set[int] = set()
        for table, quiet_ns in zip(tables, self._quiet_ns or (0, 0), strict=True):
            before_ns = quiet_ns - quiet_ns % unit_ns
            if max(table.column("ctime", 0, count), default=-1) >= before_ns // _NS:
                times = enumerate(table.times_ns("ctime", 0, count))
                found.update(place for place, time_ns in times if time_ns >= before_ns)
        return found

    # ---- directories -----------------------------------------------------------

    def directories(self, names: list[bytes], fds: tuple[int, int]) -> tuple[list[bytes], int]:
        """Return the directories that must be walked, and how many entries the other ones hold.

        Those hold only files and links, all of them are as they should be, and nothing in them has
        changed since the last complete run.
        """
        self.is_trusted = True
        if self._quiet_ns is None:
            return names, 0
        rest: list[bytes] = []
        pending, entries = [names], 0
        while pending:
            with (
                self._batch(0, pending.pop(), fds) as source,
                self._batch(1, source.names, fds) as target,
            ):
                rest += source.rest + target.rest
                pending += [some for some in (source.later, target.later) if some]
                pairs = _pairs(source, target, exact=self._deletes)
                changed = self._changed_of(source, target, pairs)
                same = [pair for place, pair in enumerate(pairs) if place not in changed]
                entries += sum(len(pair.names) for pair in same)
                rest += set(target.names).difference(source.names[pair.here] for pair in same)
        return rest, entries

    def _batch(self, side: int, names: list[bytes], fds: tuple[int, int]) -> DirectoryBatch:
        """List directories. Look their entries up, too, unless look-ups should overlap."""
        looks = not any(look.is_slow for look in self._looks)
        # Nobody asks of what kind the target's surplus is that stays.
        is_any = side == 1 and not self._deletes
        return DirectoryBatch(
            *(fds[side], names, self._devices[side]),
            most=CAPACITY // 2,
            room=CAPACITY,
            kinds=_ANY_KIND if is_any else _KINDS,
            sorts=True,
            looks=looks,
            keeps=not looks,
        )

    def _changed_of(
        self, source: DirectoryBatch, target: DirectoryBatch, pairs: Sequence[_Pair]
    ) -> set[int]:
        """Return the places of the pairs in which something may not be as it should be."""
        count = len(pairs)
        if not count:
            return set()
        here, there = [pair.here for pair in pairs], [pair.there for pair in pairs]
        owns = _picked(source.own, here), _picked(target.own, there)
        changed = {*self._keeper.directories(*owns, count), *self._recent(owns, count, 1)}
        places: set[int] = set()
        for batch, directories, look, rows in (
            (source, here, self._looks[0], chain.from_iterable(pair.ours for pair in pairs)),
            (target, there, self._looks[1], chain.from_iterable(pair.theirs for pair in pairs)),
        ):
            if not batch.fds:
                look.put(_picked(Table(batch.table), list(rows)).data, batch.each_s)
                continue
            sizes = [len(pair.names) for pair in pairs]
            each = map(repeat, [batch.fds[place] for place in directories], sizes)
            names = [name for pair in pairs for name in pair.names]
            try:
                look.look(list(chain.from_iterable(each)), names)
            except Failed as failed:
                places.update(failed.errors)
        total = sum(len(pair.names) for pair in pairs)
        places |= self._different(total) | self._recent(self._looks, total)
        if places:
            ends = list(accumulate(len(pair.names) for pair in pairs))
            changed.update(bisect_right(ends, place) for place in places)
        return changed


class _Pair(NamedTuple):
    """A directory on both sides, by its places in the two batches.

    `names` are those of the source's entries; `ours` and `theirs` are the rows of these in the two
    tables of entries.
    """

    here: int
    there: int
    names: list[bytes]
    ours: range
    theirs: Sequence[int]


def _pairs(source: DirectoryBatch, target: DirectoryBatch, *, exact: bool) -> list[_Pair]:
    """Return the directories whose entries in the source all have one in the target.

    With `exact` they have the same names. Entries are in the order of their names.
    """
    place_of = {name: place for place, name in enumerate(source.names)}
    ours, theirs = source.ranges(), target.ranges()
    pairs = []
    for there, name in enumerate(target.names):
        here = place_of[name]
        (begin, end), (their_begin, their_end) = ours[here], theirs[there]
        names, found = source.inside[begin:end], target.inside[their_begin:their_end]
        rows: Sequence[int] = range(their_begin, their_end)
        if names != found:
            row_of = dict(zip(found, rows, strict=True))
            if exact or not row_of.keys() >= set(names):
                continue
            rows = [row_of[each] for each in names]
        pairs.append(_Pair(here, there, names, range(begin, end), rows))
    return pairs


def _picked(table: Table, places: list[int]) -> Table:
    """Return the rows at these places, which most often are all of them, in their order."""
    is_all = len(places) == table.count and places == list(range(table.count))
    return table if is_all else table.picked(places)


def _look(look: Stats, fd: int, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Look names up; those that are there, which are looked up, and those that are not."""
    if not names:
        return names, []
    try:
        look.look(fd, names)
        return names, []
    except Failed as failed:
        gone = [name for place, name in enumerate(names) if place in failed.errors]
    there = [name for name in names if name not in set(gone)]
    return _look(look, fd, there)[0], gone
