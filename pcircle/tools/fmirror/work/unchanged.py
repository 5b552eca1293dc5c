"""Finds entries and whole subtrees that are equal on both sides, as most are in most runs.

Names are looked up in batches on both sides and compared column by column. If the state of the last
complete run is trusted, attributes are compared only for entries that have changed since. Several
small directories share one batch, so the fixed cost of a batch is paid once for all of them.

`BatchedDetails` compares extended attributes, access control lists and link targets of many
entries. Few entries have extended attributes, so one native call per side finds the entries that
have any, and `DetailComparer` compares only those.

`Subtrees` compares directories of both sides in batches, and then their subdirectories, depth
first. If everything below a directory is equal, the walk skips the directory. Otherwise the walk
enters it. The results for its subdirectories are cached until the item ends, so that nothing is
compared twice.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cache, reduce
from itertools import accumulate, chain, repeat

import msgspec

from pcircle.core.units import NS_PER_S
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS, lists_all
from pcircle.fs.directories import affordable, close_open, join_path
from pcircle.fs.native.interface import ASK_LISTS, KEEP_ATTRIBUTES, KEEP_LISTS
from pcircle.fs.scan import FOLDER, LINK, ONLY_FILES, DirectoryBatch
from pcircle.fs.stats import CAPACITY, Stats, StatusRow, Table, within_limit
from pcircle.ops.compare import fields
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import ACL, TARGET, XATTR
from pcircle.ops.compare.statuses import Fds
from pcircle.tools.fmirror.plan import MirrorPlan
from pcircle.tools.fmirror.work.overwrite_policy import MirrorOverwritePolicy, read_from_ns

OF_FILES = fields.ALL & ~fields.TARGET
SAME, CHANGED, MOVED = range(3)
"""Values of `DirectoryIdentity.since`: changes of a directory since the last complete run."""
_KINDS = ONLY_FILES | 1 << LINK[0]
_ANY_KIND = 0xFFFF
_FAST_S = 10e-6  # look-ups count as fast if a system call takes less
_MAX_ENTRIES = 1 << 15  # size of the largest directory that is compared in a batch
_ROOM = 2048  # additional entries of a batch
_DOUBTS = 64  # number of `enter` calls that compare all details after many recent changes
_CLOCKS_NS = 3 * NS_PER_S  # allowance for different clocks and for times in whole seconds


def since_last(above: int | None, *, is_known: bool, is_quiet: bool) -> int:
    """Return how a directory has changed since the last complete run.

    `above` is the change of its parent, or None for the root. `is_known` means that the last
    complete run covered its file system, and `is_quiet` that its change times are older.
    """
    if above == MOVED or not is_known:
        return MOVED
    if is_quiet:
        return SAME
    # If the parent has changed too, the directory may have been renamed into it. A rename does not
    # change the times of anything below, so these times prove nothing.
    return MOVED if above == CHANGED else CHANGED


class QuickCheck:
    """Compares entries for one worker thread.

    If `is_trusted` is set, an entry with old change times was in the same directory at the last
    complete run.
    """

    def __init__(self, plan: MirrorPlan, policy: MirrorOverwritePolicy, helped: int) -> None:
        self._policy = policy
        self._details = BatchedDetails(policy.details, flags=plan.keep.flags)
        self._keeps_links = plan.keep.links
        self._quiet_ns, self._devices = plan.quiet_ns, plan.devices
        self._deletes = plan.deleting.enabled
        self._reads = read_from_ns(plan) is not None
        source = Stats(helped)
        self._looks = source, Stats(helped, sharing=source)
        self.is_trusted = True
        self._max_entries = CAPACITY // 2
        self._doubts = 0  # remaining `enter` calls that compare all details
        deletes, began_ns = plan.deleting.enabled, plan.began_ns
        self._recorded_ns = None if began_ns is None or not deletes else began_ns - _CLOCKS_NS
        self._trusts = True
        self._compared_devices = plan.devices
        self._copy = -1
        self._keeps_layouts = plan.keep.stripe
        self._type_of = cache(type_of_device)
        self._kinds = _KINDS if plan.upkeep.prunes else _KINDS | 1 << FOLDER[0]

    def is_quiet(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether a directory is unchanged on both sides since the last complete run."""
        quiet_ns = self._quiet_ns
        if quiet_ns is None:
            return False
        is_older = source.st_ctime_ns < quiet_ns[0] and target.st_ctime_ns < quiet_ns[1]
        return is_older and self.is_known(source, target)

    def is_known(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether two directories are on the file systems of the last complete run.

        The recorded state does not cover file systems that are mounted below these two.
        """
        return (source.st_dev, target.st_dev) == self._devices

    # ---- names of one directory ------------------------------------------------

    def changed_names(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Return the names that may differ, out of at most `CAPACITY` names."""
        here, missing = _look(self._looks[1], fds[1], names)
        there, gone = _look(self._looks[0], fds[0], here)
        if gone:  # the copy reports vanished names as failures
            _look(self._looks[1], fds[1], there)
        changed = self._changed(there, fds, among)
        return [*missing, *gone, *changed]

    def _changed(self, names: list[bytes], fds: tuple[int, int], among: int) -> list[bytes]:
        """Return the names that may differ. All of them were looked up on both sides."""
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
        if self._policy.details.fields & among and len(recent):
            undecided = [place for place in recent if place not in changed]
            changed |= self._details.differ(names, fds, self._looks, undecided, links)
        if not changed:
            return []
        return [name for place, name in enumerate(names) if place in changed]

    def _different(self, count: int) -> set[int]:
        """Return the places of names that differ in status or have several hard links."""
        source, target = self._looks
        found = set(self._policy.blocks(source, target, count))
        if self._keeps_links and not source.has_single_names(0, count):
            links = source.column("links", 0, count)
            found.update(place for place, number in enumerate(links) if number > 1)
        return found

    def _doubtful(self, owns: tuple[Table, Table], count: int) -> set[int]:
        """Return the places of directories that the walk must enter even if their status is equal.

        If the state of the last complete run is trusted, these are the directories that have
        changed since then. Otherwise they are the directories that have changed since this run
        began, because their listing times must be recorded. The target's own root is always
        included, in case the source contains it.
        """
        found = self._recent(owns, count, 1) if self._trusts else set[int]()
        if self._recorded_ns is not None and not self._trusts:
            times = enumerate(owns[0].times_ns("ctime", 0, count))
            found.update(place for place, time_ns in times if time_ns >= self._recorded_ns)
        if self._copy in (inodes := owns[0].column("inode", 0, count)):
            found.update(place for place, inode in enumerate(inodes) if inode == self._copy)
        return found

    def _note_recent(self, recent: int, total: int) -> None:
        """Compare all details for some time if most entries have changed recently."""
        if recent > total // 2:
            self._doubts = _DOUBTS

    def _recent(self, tables: tuple[Table, Table], count: int, unit_ns: int = NS_PER_S) -> set[int]:
        """Return the rows of entries that changed on either side since the last complete run.

        The limit is rounded down to `unit_ns`, because change times may be truncated to whole
        seconds.
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
        """Prepare to compare the subdirectories of a directory on these devices.

        `copy` identifies the target's own root. Return whether `directories` can compare them. If
        the last complete run is not trusted, it cannot compare them if look-ups are slow, files
        must be read or Lustre layouts are preserved.
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
        """Compare at least one directory.

        Return the number of compared directories, and the equal directories by place. The entries
        of an equal directory are also equal, but its subdirectories have not been compared. At most
        `max_parents` of the returned directories have subdirectories. These stay open, so that the
        caller can compare their subdirectories.
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
        """List directories and look up their entries.

        If look-ups are slow, the caller looks up the entries in parallel instead.
        """
        is_slow = any(look.is_slow for look in self._looks)
        # If extraneous entries stay, the kinds of the target's entries do not matter.
        is_any = side == 1 and not self._deletes
        keeps = is_slow or not self._trusts
        return DirectoryBatch(
            *(fds, names, self._compared_devices[side]),
            max_entries=CAPACITY // 2 if is_slow else self._max_entries,
            max_all=CAPACITY if is_slow else self._max_entries + _ROOM,
            kinds=_ANY_KIND if is_any else _KINDS if is_slow else self._kinds,
            sorts=True,
            looks=False if is_slow else 2,
            keeps=keeps,
            max_parents=0 if keeps else max_parents,
        )

    def _size_next(self, *batches: DirectoryBatch) -> None:
        """Increase the size limit of the next batch if look-ups are fast, or else reset it."""
        is_fast = max(batch.each_s for batch in batches) < _FAST_S
        self._max_entries = min(4 * self._max_entries, _MAX_ENTRIES) if is_fast else CAPACITY // 2

    def _changed_of(
        self, source: DirectoryBatch, target: DirectoryBatch, pairs: Sequence[_Pair]
    ) -> set[int]:
        """Return the places of the pairs that may differ."""
        count = len(pairs)
        if not count:
            return set()
        here, there = [pair.here for pair in pairs], [pair.there for pair in pairs]
        owns = _picked(source.own, here), _picked(target.own, there)
        changed = {*self._policy.directories(*owns, count), *self._doubtful(owns, count)}
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
            names = [source.inside[row] for pair in pairs for row in pair.ours]
            places.update(look.look_up(entry_fds[-1], names))
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
    """A directory that is equal on both sides.

    `entries` counts its entries other than directories. Its `directories` have not been compared.
    If there are any, `fds` are its open descriptors on both sides.
    """

    entries: int
    directories: list[bytes] = []
    fds: tuple[int, int] = (-1, -1)


class _Pair(msgspec.Struct, frozen=True):
    """A directory that exists on both sides, identified by its places in the two batches.

    `ours` and `theirs` are the rows of the source's entries in each batch's table of entries.
    """

    here: int
    there: int
    ours: range
    theirs: Sequence[int]


def _pairs(source: DirectoryBatch, target: DirectoryBatch, *, exact: bool) -> list[_Pair]:
    """Return the directories whose source entries all exist in the target.

    If `exact` is set, the target must not have additional names. Entries are sorted by name.
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
    """Return the result for a directory that is equal on both sides.

    Return None if it has subdirectories but is not open, or may not stay open because `opens` is
    false.
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
    """Return the rows at these places, without a copy if they are all rows in order."""
    is_all = len(places) == table.count and places == list(range(table.count))
    return table if is_all else table.picked(places)


def _look(look: Stats, fd: int, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Look up names, and return the existing and the missing ones."""
    if not names:
        return names, []
    errors = look.look_up(fd, names)
    if not errors:
        return names, []
    gone = [name for place, name in enumerate(names) if place in errors]
    there = [name for name in names if name not in set(gone)]
    return _look(look, fd, there)[0], gone


# ---- details -------------------------------------------------------------------------------------

_AT_ONCE_NS = 200_000_000  # time limit of a call, so that runs on slow file systems can be stopped

Holders = int | list[int]
"""The descriptor of the directory that contains all names, or one descriptor for each name."""


class BatchedDetails:
    """Compares the details of many entries for one worker thread."""

    def __init__(self, details: DetailComparer, *, flags: bool) -> None:
        """If `flags` is set, `have_any` also reports directories with inode flags."""
        self._details = details
        self._flags = USER_FLAGS if flags else 0
        self._listing: dict[int, bool] = {}  # by device: access control lists appear in listxattr
        self._native = within_limit()

    def differ(
        self,
        names: list[bytes],
        fds: tuple[Holders, Holders],
        looks: tuple[Stats, Stats],
        places: Sequence[int],
        links: Collection[int] | None,
    ) -> set[int]:
        """Return the places of the names whose details may differ.

        All names have been looked up. `links` are the places of symbolic links, or None if all
        names are links.
        """
        details, count = self._details, len(names)
        found: set[int] = set()
        keeps = [self._keep(look.column("device", 0, count)) for look in looks]
        rows: list[tuple[StatusRow, StatusRow]] = []

        def compare(start: int, stop: int) -> None:
            batch = places[start:stop]
            if details.fields & TARGET:
                of_links = batch if links is None else [place for place in batch if place in links]
                found.update(place for place in of_links if _link_targets_differ(names, fds, place))
            for place in self._have_any(names, fds, keeps, batch):
                if not rows:
                    rows.extend(zip(*(look.rows(count) for look in looks), strict=True))
                if self._differ(names[place], _both(fds, place), *rows[place]):
                    found.add(place)

        (looks[1] if looks[1].is_slow else looks[0]).beside(compare, 0, len(places))
        return found

    def have_any(self, fds: Sequence[int], device: int) -> set[int]:
        """Return the places of open directories that have any attributes, lists or inode flags."""
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
        """Return the places that have attributes, or were not queried before the time limit."""
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
            found = set(devices) - {0}  # 0 is the device of a name that was not found
            for device in found.difference(known):
                known[device] = lists_all(device)
            keep |= KEEP_LISTS if all(known[device] for device in found) else ASK_LISTS
        return keep

    def _differ(self, name: bytes, fds: Fds, a: StatusRow, b: StatusRow) -> bool:
        """Return whether the details of two entries differ, or cannot be read."""
        try:
            return bool(self._details.compare_names(name, fds, a, b))
        except OSError:  # the copy will encounter and report the same error
            return True


def _both(fds: tuple[Holders, Holders], place: int) -> Fds:
    first, second = (side_fds if isinstance(side_fds, int) else side_fds[place] for side_fds in fds)
    return first, second


def _link_targets_differ(names: list[bytes], fds: tuple[Holders, Holders], place: int) -> bool:
    """Return whether two symbolic links have different targets, or cannot be read."""
    name, (source_fd, target_fd) = names[place], _both(fds, place)
    try:
        return os.readlink(name, dir_fd=source_fd) != os.readlink(name, dir_fd=target_fd)
    except OSError:
        return True


_SOON_S, _LATE_S = 0.002, 0.02  # time limits for the given directories, and for those below them
_AT_ONCE = 64  # directories in a batch
_OF_OPEN, _OF_OTHERS = 20, 160  # available descriptors per open branch: first thread, others

Counts = tuple[int, int]
"""The number of directories, and the number of other entries."""


class SubtreeComparison(msgspec.Struct, frozen=True):
    """The result for subdirectories of one directory.

    The walk must enter the directories `to_walk`. The directories `later` have not been compared.
    All others are equal. `directories` counts these and all directories below them, and `entries`
    counts the other entries below them.
    """

    to_walk: list[bytes]
    later: list[bytes]
    directories: int
    entries: int


class _Branch:
    """A directory whose subdirectories are being compared.

    `pending` is the number of subdirectories that remain. `found` maps the name of a subdirectory
    to its counts, or to None if the walk must enter it.
    """

    __slots__ = ("above", "below", "entries", "fds", "found", "name", "pending")

    def __init__(
        self, above: _Branch | None, name: bytes, fds: tuple[int, int], below: int, entries: int
    ) -> None:
        self.above = above
        self.name = name
        self.fds = fds
        self.below = self.pending = below
        self.entries = entries
        self.found: dict[bytes, Counts | None] = {}

    @property
    def path(self) -> bytes:
        """The path of the directory. The topmost branch stores its path as its `name`."""
        names: list[bytes] = []
        branch: _Branch | None = self
        while branch is not None and branch.above is not None:
            names.append(branch.name)
            branch = branch.above
        top = b"" if branch is None else branch.name
        return reduce(join_path, reversed(names), top)

    def counts(self) -> Counts | None:
        """Return the counts of everything below, or None if the walk must enter the directory."""
        directories, entries = 1, self.entries
        for counts in self.found.values():
            if counts is None:
                return None
            directories += counts[0]
            entries += counts[1]
        return (directories, entries) if len(self.found) == self.below else None


class Subtrees:
    """Compares subtrees for one worker thread.

    Only the first thread may keep many branches open.
    """

    def __init__(self, quick: QuickCheck, *, is_first: bool = True) -> None:
        self._quick = quick
        self._known: dict[bytes, dict[bytes, Counts | None]] = {}
        self._open: set[_Branch] = set()
        self._max_open = max(1, affordable() // (_OF_OPEN if is_first else _OF_OTHERS))
        self._stack: list[tuple[list[_Branch], list[bytes]]] = []

    def forget(self) -> None:
        """Drop the cached results at the start of another item."""
        self._known.clear()

    def compare(
        self, path: bytes, names: list[bytes], fds: tuple[int, int], *, returns_early: bool
    ) -> SubtreeComparison:
        """Compare subdirectories of the directory at `path`, which is open on both sides.

        If `returns_early` is set, return early, because other workers are waiting for work.
        """
        top = _Branch(None, path, fds, len(names), 0)
        top.found = self._known.pop(path, {})
        untried = [name for name in names if name not in top.found]
        later: list[bytes] = []
        self._stack = [([top] * len(untried), untried)] if untried else []
        began_s, is_first = time.monotonic(), True
        try:
            while self._stack:
                holders, batch = self._stack.pop()
                spent_s = time.monotonic() - began_s
                limit_s = _SOON_S if returns_early or holders[0] is top else _LATE_S
                if is_first or spent_s < limit_s:
                    self._compare(holders, batch)
                    is_first = False
                elif holders[0] is top:
                    later = batch
                else:
                    for holder in holders:
                        self._end_one(holder)
        finally:
            for branch in self._open:  # empty unless an exception was raised
                _close(branch)
            self._open.clear()
            self._stack = []
        to_walk, directories, entries = [], 0, 0
        left = set(later)
        for name in names:
            counts = top.found.pop(name, None)
            if counts is not None:
                directories += counts[0]
                entries += counts[1]
            elif name not in left:
                to_walk.append(name)
        if top.found:
            self._known[path] = top.found
        return SubtreeComparison(to_walk, later, directories, entries)

    def _compare(self, holders: list[_Branch], names: list[bytes]) -> None:
        """Compare a batch of the directories, each in its own parent, and put the others back."""
        batch = names[:_AT_ONCE]
        max_parents = max(0, (self._max_open - len(self._open) + 1) // 2)
        fds = _fds(holders[: len(batch)], 0), _fds(holders[: len(batch)], 1)
        tried, equal = self._quick.directories(batch, fds, max_parents)
        if tried < len(names):
            self._stack.append((holders[tried:], names[tried:]))
        branches: list[_Branch] = []
        below: list[bytes] = []
        for place, (holder, name) in enumerate(zip(holders[:tried], names, strict=False)):
            found = equal.get(place)
            if found is not None and found.directories:
                branch = _Branch(holder, name, found.fds, len(found.directories), found.entries)
                self._open.add(branch)
                branches += [branch] * len(found.directories)
                below += found.directories
                continue
            holder.found[name] = None if found is None else (1, found.entries)
            self._end_one(holder)
        if below:
            self._stack.append((branches, below))

    def _end_one(self, branch: _Branch) -> None:
        """Record that a subdirectory of a branch has been compared or will not be compared."""
        branch.pending -= 1
        while not branch.pending and branch.above is not None:
            _close(branch)
            self._open.discard(branch)
            counts = branch.counts()
            if counts is None and branch.found:
                self._known[branch.path] = branch.found
            branch.above.found[branch.name] = counts
            branch = branch.above
            branch.pending -= 1


def _close(branch: _Branch) -> None:
    for fd in branch.fds:
        close_open(fd)


def _fds(holders: list[_Branch], side: int) -> Holders:
    """Return the descriptors of one side, or a single one if all branches are the same."""
    first = holders[0]
    if all(holder is first for holder in holders):
        return first.fds[side]
    return [holder.fds[side] for holder in holders]
