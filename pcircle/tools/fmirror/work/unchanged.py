"""Find entries that are equal on both sides; in most runs most entries are.

Names are looked up on both sides, many at a time, and compared column by column. Attributes are
compared only where something has changed since the last complete run. Small directories are
compared several at a time, so that the fixed cost of a batch is paid once for all of them.

`BatchedDetails` compares attributes, access control lists and link targets of many entries. Hardly
any entry has extended attributes. One native call per side finds the entries that have some, and
`DetailComparer` compares only these.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import accumulate, chain, repeat

import msgspec

from pcircle.core.units import NS_PER_S
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS, lists_all
from pcircle.fs.native.pure import ASK_LISTS, KEEP_ATTRIBUTES, KEEP_LISTS
from pcircle.fs.scan import FOLDER, LINK, ONLY_FILES, DirectoryBatch
from pcircle.fs.stats import CAPACITY, StatBlockError, Stats, StatusRow, Table, within_limit
from pcircle.ops.compare import fields
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import ACL, TARGET, XATTR
from pcircle.ops.compare.statuses import Fds
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy, read_from_ns

OF_FILES = fields.ALL & ~fields.TARGET
_KINDS = ONLY_FILES | 1 << LINK[0]
_ANY_KIND = 0xFFFF
_FAST_S = 10e-6  # for a system call
_MAX_ENTRIES = 1 << 15  # of a directory that is compared as a whole
_ROOM = 2048  # additional entries of a batch
_DOUBTS = 64  # calls of `enter` without trust
_CLOCKS_NS = 3 * NS_PER_S  # the difference of two clocks, and times rounded to seconds


class QuickCheck:
    """Compares entries for one worker thread.

    With `is_trusted`, an entry with old change times existed here at the last run.
    """

    def __init__(self, plan: MirrorPlan, keeper: MirrorOverwritePolicy, helped: int) -> None:
        self._keeper = keeper
        self._details = BatchedDetails(keeper.details, flags=plan.keep.flags)
        self._keeps_links = plan.keep.links
        self._quiet_ns, self._devices = plan.quiet_ns, plan.devices
        self._deletes = plan.deleting.wanted
        self._reads = read_from_ns(plan) is not None
        source = Stats(helped)
        self._looks = source, Stats(helped, sharing=source)
        self.is_trusted = True
        self._most = CAPACITY // 2
        self._doubts = 0  # remaining calls without trust in the last run
        deletes, began_ns = plan.deleting.wanted, plan.began_ns
        self._recorded_ns = None if began_ns is None or not deletes else began_ns - _CLOCKS_NS
        self._trusts = True
        self._compared_devices = plan.devices
        self._copy = -1
        self._keeps_layouts = plan.keep.stripe
        self._type_of = cache(type_of_device)
        self._takes = _KINDS if plan.upkeep.prunes else _KINDS | 1 << FOLDER[0]

    def is_quiet(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether neither side has changed since the last complete run."""
        quiet_ns = self._quiet_ns
        if quiet_ns is None:
            return False
        is_older = source.st_ctime_ns < quiet_ns[0] and target.st_ctime_ns < quiet_ns[1]
        return is_older and self.is_known(source, target)

    def is_known(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether two directories are on the file systems of the last complete run.

        The state does not cover file systems that are mounted below these.
        """
        return (source.st_dev, target.st_dev) == self._devices

    # ---- names of one directory ------------------------------------------------

    def left(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Return the names that may differ, of at most `CAPACITY`."""
        here, missing = _look(self._looks[1], fds[1], names)
        there, gone = _look(self._looks[0], fds[0], here)
        if gone:  # the copy reports vanished names as failures
            _look(self._looks[1], fds[1], there)
        changed = self._changed(there, fds, among)
        return [*missing, *gone, *changed]

    def _changed(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Return the names that may differ. All were looked up on both sides."""
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
            undecided = [place for place in recent if place not in changed]
            changed |= self._details.differ(names, fds, self._looks, undecided, links)
        if not changed:
            return []
        return [name for place, name in enumerate(names) if place in changed]

    def _different(self, count: int) -> set[int]:
        """Return the places of names whose status differs, or that have several hard links."""
        source, target = self._looks
        found = set(self._keeper.blocks(source, target, count))
        if self._keeps_links and not source.has_single_names(0, count):
            links = source.column("links", 0, count)
            found.update(place for place, number in enumerate(links) if number > 1)
        return found

    def _doubtful(self, owns: tuple[Table, Table], count: int) -> set[int]:
        """Return the places of directories that the walk must enter whatever their status is.

        If unchanged directories are trusted, these have changed since the last complete run.
        Otherwise they have changed since this run began, and the listing must be recorded. The copy
        itself is included.
        """
        found = self._recent(owns, count, 1) if self._trusts else set[int]()
        if self._recorded_ns is not None and not self._trusts:
            times = enumerate(owns[0].times_ns("ctime", 0, count))
            found.update(place for place, time_ns in times if time_ns >= self._recorded_ns)
        if self._copy in (inodes := owns[0].column("inode", 0, count)):
            found.update(place for place, inode in enumerate(inodes) if inode == self._copy)
        return found

    def _note_recent(self, recent: int, total: int) -> None:
        """Compare all details for a while if most entries are recent."""
        if recent > total // 2:
            self._doubts = _DOUBTS

    def _recent(self, tables: tuple[Table, Table], count: int, unit_ns: int = NS_PER_S) -> set[int]:
        """Return the rows of entries that changed on either side since the last complete run.

        Change times may be cut to whole seconds.
        """
        found: set[int] = set()
        for table, quiet_ns in zip(tables, self._quiet_ns or (0, 0), strict=True):
            before_ns = quiet_ns - quiet_ns % unit_ns
            if max(table.column("ctime", 0, count), default=-1) >= before_ns // NS_PER_S:
                times = enumerate(table.times_ns("ctime", 0, count))
                found.update(place for place, time_ns in times if time_ns >= before_ns)
        return found

    # ---- directories -----------------------------------------------------------

    def enter(self, devices: tuple[int, int], copy: tuple[int, int]) -> bool:
        """Begin with directories on these devices; `copy` identifies the copy itself.

        Return whether batches can compare them. They cannot if nothing is trusted and look-ups are
        slow.
        """
        self._compared_devices, self._copy = devices, copy[1]
        is_known = self._quiet_ns is not None and self.is_trusted and devices == self._devices
        self._trusts = is_known and not self._doubts
        self._doubts = max(0, self._doubts - 1)
        if self._trusts:
            return True
        if self._keeps_layouts and self._type_of(devices[0]) == b"lustre":
            return False
        return not (self._reads or any(look.is_slow for look in self._looks))

    def directories(
        self, names: list[bytes], fds: tuple[Holders, Holders], max_parents: int
    ) -> tuple[int, dict[int, EqualDirectory]]:
        """Compare at least one directory. Return how many, and the equal directories by place.

        The entries of an equal directory are equal as well; its subdirectories are not compared
        here. At most `max_parents` of the equal directories have subdirectories, and stay open for
        these.
        """
        with (
            self._batch(0, names, fds[0], max_parents) as source,
            self._batch(1, source.names, _of_places(fds[1], source.places), max_parents) as target,
        ):
            tried = len(names) - len(source.later)
            if target.later:
                tried = source.places[len(source.names) - len(target.later)]
            self._size_next(source, target)
            pairs = _pairs(source, target, exact=self._deletes)
            changed = self._changed_of(source, target, pairs)
            equal = {}
            for number, pair in enumerate(pairs):
                if number not in changed:
                    found = _equal(source, target, pair, opens=max_parents > 0)
                    if found is not None:
                        equal[source.places[pair.here]] = found
                        max_parents -= bool(found.directories)
            return tried, equal

    def _batch(
        self, side: int, names: list[bytes], fds: Holders, max_parents: int
    ) -> DirectoryBatch:
        """List directories, and look up their entries unless look-ups should overlap."""
        is_slow = any(look.is_slow for look in self._looks)
        # If extraneous entries stay, their kinds do not matter.
        is_any = side == 1 and not self._deletes
        keeps = is_slow or not self._trusts
        return DirectoryBatch(
            *(fds, names, self._compared_devices[side]),
            max_entries=CAPACITY // 2 if is_slow else self._most,
            max_all=CAPACITY if is_slow else self._most + _ROOM,
            kinds=_ANY_KIND if is_any else _KINDS if is_slow else self._takes,
            sorts=True,
            looks=False if is_slow else 2,
            keeps=keeps,
            max_parents=0 if keeps else max_parents,
        )

    def _size_next(self, *batches: DirectoryBatch) -> None:
        """Allow larger directories if look-ups are fast."""
        is_fast = max(batch.each_s for batch in batches) < _FAST_S
        self._most = min(4 * self._most, _MAX_ENTRIES) if is_fast else CAPACITY // 2

    def _changed_of(
        self, source: DirectoryBatch, target: DirectoryBatch, pairs: Sequence[_Pair]
    ) -> set[int]:
        """Return the places of the pairs that may differ."""
        count = len(pairs)
        if not count:
            return set()
        here, there = [pair.here for pair in pairs], [pair.there for pair in pairs]
        owns = _picked(source.own, here), _picked(target.own, there)
        changed = {*self._keeper.directories(*owns, count), *self._doubtful(owns, count)}
        sizes = [len(pair.ours) for pair in pairs]
        total = sum(sizes)
        entry_fds: list[Holders] = []
        places: set[int] = set()
        for batch, directories, look, rows in (
            (source, here, self._looks[0], chain.from_iterable(pair.ours for pair in pairs)),
            (target, there, self._looks[1], chain.from_iterable(pair.theirs for pair in pairs)),
        ):
            is_looked_up = bool(batch.table) or not batch.kinds
            if not (is_looked_up and self._trusts):
                fds = [batch.fds[place] for place in directories]
                entry_fds.append(list(chain.from_iterable(map(repeat, fds, sizes))))
            if is_looked_up:
                look.put(_picked(Table(batch.table), list(rows)).data, batch.each_s)
                continue
            try:
                names = [source.inside[row] for pair in pairs for row in pair.ours]
                look.look(entry_fds[-1], names)
            except StatBlockError as failed:
                places.update(failed.errors)
        places |= self._different(total)
        if self._trusts:
            recent = self._recent(self._looks, total)
            places |= recent
            self._note_recent(len(recent), total)
        else:
            sides = (source.fds, here), (target.fds, there)
            for number, (fds, own_places) in enumerate(sides):
                opened = [fds[place] for place in own_places]
                changed |= self._details.have_any(opened, self._compared_devices[number])
            kinds = [source.kinds[row] for pair in pairs for row in pair.ours]
            undecided = [n for n in range(total) if kinds[n] != FOLDER[0] and n not in places]
            links = [place for place in undecided if kinds[place] == LINK[0]]
            names = [source.inside[row] for pair in pairs for row in pair.ours]
            both = entry_fds[0], entry_fds[1]
            places |= self._details.differ(names, both, self._looks, undecided, set(links))
        if places:
            ends = list(accumulate(sizes))
            changed.update(bisect_right(ends, place) for place in places)
        return changed


class EqualDirectory(msgspec.Struct, frozen=True):
    """A directory that is equal on both sides: the number of its entries without directories.

    Its `directories` have not been compared; if it has any, `fds` are its open descriptors.
    """

    entries: int
    directories: list[bytes] = []
    fds: tuple[int, int] = (-1, -1)


class _Pair(msgspec.Struct, frozen=True):
    """A directory on both sides, by its places in the two batches.

    `ours` and `theirs` are the rows of the source's entries in the two tables of entries.
    """

    here: int
    there: int
    ours: range
    theirs: Sequence[int]


def _pairs(source: DirectoryBatch, target: DirectoryBatch, *, exact: bool) -> list[_Pair]:
    """Return the directories whose source entries all exist in the target.

    With `exact` both sides must have the same names. Entries are sorted by name.
    """
    ours, theirs = source.ranges(), target.ranges()
    is_same = len(ours) == len(theirs) and (source.text, source.ends) == (target.text, target.ends)
    texts = ([], []) if is_same else (source.texts(), target.texts())
    pairs = []
    for there, here in enumerate(target.places):
        begin, end = ours[here]
        rows: Sequence[int] = range(*theirs[there])
        if not is_same and texts[0][here] != texts[1][there]:
            if exact:
                continue
            names = source.inside[begin:end]
            row_of = dict(zip(target.inside[slice(*theirs[there])], rows, strict=True))
            if not row_of.keys() >= set(names):
                continue
            rows = [row_of[name] for name in names]
        pairs.append(_Pair(here, there, range(begin, end), rows))
    return pairs


def _equal(
    source: DirectoryBatch, target: DirectoryBatch, pair: _Pair, *, opens: bool
) -> EqualDirectory | None:
    """Return a directory that is equal on both sides.

    None if it has subdirectories, and cannot or may not (`opens`) stay open for these.
    """
    begin, end = pair.ours.start, pair.ours.stop
    count = source.kinds.count(FOLDER, begin, end)
    if not count:
        return EqualDirectory(end - begin)
    if not opens or min(source.fds[pair.here], target.fds[pair.there]) < 0:
        return None
    kinds, names = source.kinds[begin:end], source.inside[begin:end]
    below = [name for name, kind in zip(names, kinds, strict=True) if kind == FOLDER[0]]
    fds = source.taken(pair.here), target.taken(pair.there)
    return EqualDirectory(end - begin - count, below, fds)


def _of_places(fds: Holders, places: Sequence[int]) -> Holders:
    return fds if isinstance(fds, int) else [fds[place] for place in places]


def _picked(table: Table, places: list[int]) -> Table:
    """Return the rows at these places, which usually are all rows in order."""
    is_all = len(places) == table.count and places == list(range(table.count))
    return table if is_all else table.picked(places)


def _look(look: Stats, fd: int, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Look up names; return the names that exist, and the missing names."""
    if not names:
        return names, []
    try:
        look.look(fd, names)
        return names, []
    except StatBlockError as failed:
        gone = [name for place, name in enumerate(names) if place in failed.errors]
    there = [name for name in names if name not in set(gone)]
    return _look(look, fd, there)[0], gone


# ---- details -------------------------------------------------------------------------------------

_AT_ONCE_NS = 200_000_000  # time limit of a call, so that a slow file system can be interrupted

Holders = int | list[int]
"""The descriptor of the directory of all names, or one for each name."""


class BatchedDetails:
    """Compares details for one worker thread."""

    def __init__(self, details: DetailComparer, *, flags: bool) -> None:
        """With `flags`, directories must have the same inode flags on both sides."""
        self._details = details
        self._flags = USER_FLAGS if flags else 0
        self._listing: dict[int, bool] = {}  # by device: whether names include lists
        self._native = within_limit()

    def differ(
        self,
        names: list[bytes],
        fds: tuple[Holders, Holders],
        looks: tuple[Stats, Stats],
        places: Sequence[int],
        links: Collection[int] | None,
    ) -> set[int]:
        """Return the places of the names whose details may differ. All names were looked up.

        `links` are the places of symbolic links; None means that all names are links.
        """
        details, count = self._details, len(names)
        found: set[int] = set()
        keeps = [self._keep(look.column("device", 0, count)) for look in looks]
        rows: list[tuple[StatusRow, StatusRow]] = []

        def compare(start: int, stop: int) -> None:
            batch = places[start:stop]
            if details.fields & TARGET:
                of_links = batch if links is None else [place for place in batch if place in links]
                found.update(place for place in of_links if _lead_apart(names, fds, place))
            for place in self._have_any(names, fds, keeps, batch):
                if not rows:
                    rows.extend(zip(*(look.rows(count) for look in looks), strict=True))
                if self._differ(names[place], _both(fds, place), *rows[place]):
                    found.add(place)

        (looks[1] if looks[1].is_slow else looks[0]).beside(compare, 0, len(places))
        return found

    def have_any(self, fds: Sequence[int], device: int) -> set[int]:
        """Return the places of open directories that have attributes, lists or inode flags."""
        names, places = [b"."] * len(fds), range(len(fds))
        return set(self._asked(names, list(fds), self._keep([device]), places))

    def _have_any(
        self,
        names: list[bytes],
        fds: tuple[Holders, Holders],
        keeps: Sequence[int],
        places: Sequence[int],
    ) -> list[int]:
        found: set[int] = set()
        for side, keep in enumerate(keeps):
            if keep:
                found.update(self._asked(names, fds[side], keep, places))
        return sorted(found)

    def _asked(
        self, names: list[bytes], fds: Holders, keep: int, places: Sequence[int]
    ) -> Iterable[int]:
        """Return the places that have attributes, or may have some because time ran out."""
        is_all = len(places) == len(names)
        batch = names if is_all else [names[place] for place in places]
        if not (is_all or isinstance(fds, int)):
            fds = [fds[place] for place in places]
        until_ns = time.monotonic_ns() + _AT_ONCE_NS
        outcomes = self._native.ask_attributes(fds, batch, keep, self._flags, IGNORED, until_ns)
        if not any(outcomes):
            return ()
        numbers = memoryview(outcomes).cast("q")
        return [place for place, number in zip(places, numbers, strict=True) if number]

    def _keep(self, devices: list[int]) -> int:
        """Return the attributes to query on these devices, as `KEEP_` bits."""
        fields = self._details.fields
        keep = KEEP_ATTRIBUTES if fields & XATTR else 0
        if fields & ACL:
            known = self._listing
            found = set(devices) - {0}  # 0: a name that was not looked up
            for device in found.difference(known):
                known[device] = lists_all(device)
            keep |= KEEP_LISTS if all(known[device] for device in found) else ASK_LISTS
        return keep

    def _differ(self, name: bytes, fds: Fds, a: StatusRow, b: StatusRow) -> bool:
        """Return whether the details of two entries differ, or cannot be read."""
        try:
            return bool(self._details.compare_names(name, fds, a, b))
        except OSError:  # the copy fails in the same way, and reports it
            return True


def _both(fds: tuple[Holders, Holders], place: int) -> Fds:
    first, second = (side_fds if isinstance(side_fds, int) else side_fds[place] for side_fds in fds)
    return first, second


def _lead_apart(names: list[bytes], fds: tuple[Holders, Holders], place: int) -> bool:
    """Return whether two symbolic links have different targets, or cannot be read."""
    name, (source_fd, target_fd) = names[place], _both(fds, place)
    try:
        return os.readlink(name, dir_fd=source_fd) != os.readlink(name, dir_fd=target_fd)
    except OSError:
        return True
