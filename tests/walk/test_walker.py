"""The walk is exact for any timing, any idle workers, and any order of items.

The search must also detect each deliberate violation (`BROKEN`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from pcircle.fs import scan
from pcircle.fs.lists import record_of, sort
from pcircle.walk import open_directory as opened_module
from pcircle.walk import walker as walker_module
from pcircle.walk.items import Tree
from pcircle.walk.open_directory import ItemContext, Open
from pcircle.walk.walker import Walker

from .scheduling import Clock, Job, Odds, Paths, World, Wrong

SEEDS = range(60)
TIMELY = Odds()
HASTY = Odds(time_is_up=0.7, hungry=0.5, handed_back=0.4)
LEISURELY = Odds(time_is_up=0.0, hungry=0.0, handed_back=0.0)
FAILING = Odds(failing=0.1)
STOPPING = Odds(time_is_up=0.01, hungry=0.0, handed_back=0.0, whole=0.5, stopping=0.05)


@pytest.fixture(autouse=True)
def small_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower all limits, so that small trees reach all code for large ones."""
    monkeypatch.setattr(scan, "_LOOK_EVERY", 4)
    monkeypatch.setattr(scan, "BLOCK_ENTRIES", 8)
    monkeypatch.setattr(walker_module, "_FEW_NAMES", 1)
    monkeypatch.setattr(walker_module, "_MIN_NAMES", 4)
    monkeypatch.setattr(walker_module, "SHARES", 3)
    monkeypatch.setattr(opened_module, "_WAITED_FOR_S", -1.0)
    monkeypatch.setattr(walker_module, "inf", 1e-6)  # a tree in memory is known to be fast


def random_tree(place: bytes, random: Random) -> bytes:
    """Create a random tree: wide, deep or mixed."""
    top = os.path.join(place, b"tree-%d" % random.randrange(1 << 60))
    os.mkdir(top)
    directories = [top]
    for number in range(random.randrange(60)):
        # Some trees have nested directories, others have sibling directories.
        above = directories[-1] if random.random() < 0.3 else random.choice(directories)
        directories.append(os.path.join(above, b"d%d" % number))
        os.mkdir(directories[-1])
    for directory in directories:
        for number in range(random.choice((0, 0, 1, 3, 5, 20))):
            name = os.path.join(directory, b"\xff%d" % number)
            if random.random() < 0.1:
                os.symlink(b"nowhere", name)
            elif random.random() < 0.1:
                os.mkfifo(name)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    return top


def entries_below(top: bytes) -> dict[bytes, Paths]:
    """Return all entries below each directory, by `os.walk`."""
    below: dict[bytes, Paths] = {}
    for directory, names, files in os.walk(top, topdown=False):
        path = b"" if directory == top else os.path.relpath(directory, top)
        inside = {os.path.join(path, name) for name in (*names, *files)}
        for name in names:
            inside |= below.get(os.path.join(path, name), frozenset())
        below[path] = frozenset(inside)
    return below


def world_of(top: bytes, odds: Odds, random: Random) -> World:
    """Return the tree that the walk must find, with some failing directories."""
    below = entries_below(top)
    failing = {path for path in below if path and random.random() < odds.failing}
    hidden = frozenset().union(*(below[path] for path in failing))
    seen = {path: inside - hidden for path, inside in below.items() if path not in hidden}
    return World(random, odds, seen, frozenset(failing - hidden))


def walk(top: bytes, odds: Odds, seed: int, monkeypatch: pytest.MonkeyPatch) -> World:
    """Walk a tree, and check that the result equals the tree."""
    random = Random(seed)
    world = world_of(top, odds, random)
    monkeypatch.setattr(walker_module, "time", Clock(world))
    job = Job(top, world, workers=3)
    part = job.run()
    if part is None:
        return world
    everything = world.below[b""] | {b""}
    directories = set(world.below) - world.failing | world.failing
    if part != everything:
        raise Wrong(f"missing: {everything - part}, and not there: {part - everything}")
    if world.left != directories:
        raise Wrong(f"left: {world.left}, and not {directories}")
    if world.looked_at != everything - directories:
        raise Wrong("not all was looked at")
    tally = job.tally
    if (tally.scans_due, tally.scans_done) != (len(directories), len(directories)):
        raise Wrong(f"{tally.scans_due} scans due and {tally.scans_done} done")
    if tally.found != len(everything) - 1 or abs(tally.weight - 1) > 1e-9:
        raise Wrong(f"{tally.found} found, of the weight {tally.weight}")
    return world


@pytest.mark.parametrize("odds", [TIMELY, HASTY, LEISURELY, FAILING])
def test_every_directory_is_left_once_after_its_subtree(
    odds: Odds, place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in SEEDS:
        top = random_tree(place, Random(seed))
        walk(top, odds, seed, monkeypatch)


def test_directories_left_to_the_walk_are_forgotten(place: bytes) -> None:
    """Their number must not affect the memory of a walk."""
    for seed in SEEDS:
        top = random_tree(place, Random(seed))
        job = Job(top, world_of(top, TIMELY, Random(seed)), 3)
        assert job.run() == job.world.below[b""] | {b""}
        assert not any(walker._begun for walker in job.walkers)


def test_a_stopping_job_completes_nothing_in_place(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = 0
    for seed in SEEDS:
        top = random_tree(place, Random(seed))
        stopped += walk(top, STOPPING, seed, monkeypatch).stopped
    assert stopped > len(SEEDS) // 4


def test_an_item_continues_into_small_directories(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hurry, one item walks the whole tree of small directories."""
    monkeypatch.undo()
    monkeypatch.setattr(walker_module, "inf", 1e-6)
    for number in range(200):
        os.makedirs(os.path.join(place, b"tree", b"%d" % (number % 7), b"%d" % number))
    top = os.path.join(place, b"tree")
    items = 0
    process = Job._process

    def counting(self: Job, item: Any, walker: Walker[Paths], line: Any) -> Any:
        nonlocal items
        items += 1
        return process(self, item, walker, line)

    monkeypatch.setattr(Job, "_process", counting)
    walk(top, LEISURELY, 1, monkeypatch)
    assert items == 1


def listed_of(top: bytes, random: Random) -> tuple[list[bytes], dict[bytes, Paths]]:
    """Draw some paths of a tree; return them with the entries that they select, by directory."""
    below = entries_below(top)
    every = sorted(below[b""])
    chosen = random.sample(every, random.randrange(len(every) + 1)) if every else []
    records, meant = [], set()
    for path in chosen:
        whole = path in below and random.random() < 0.3
        records.append(record_of(path, whole=whole))
        meant |= {path} | (below[path] if whole else frozenset())
        while b"/" in path:
            path = os.path.dirname(path)
            meant.add(path)
    known = {path: inside & meant for path, inside in below.items() if path in meant | {b""}}
    return records, known


def test_exactly_the_listed_entries_are_visited(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is divided by names, by its text, or by ranges that rank 0 keeps."""
    monkeypatch.setattr("pcircle.fs.lists._PORTION_BYTES", 40)
    monkeypatch.setattr("pcircle.fs.lists._PORTION_NAMES", 3)
    for seed in SEEDS:
        random = Random(seed)
        top = random_tree(place, random)
        records, known = listed_of(top, random)
        if not records:
            continue
        world = World(random, TIMELY, known)
        monkeypatch.setattr(walker_module, "time", Clock(world))
        job = Job(top, world, workers=2, lists=sort([(0, records)]))
        assert job.run() == known[b""] | {b""}
        assert world.left == set(known)
        assert 0 < job.tally.weight < 1.000001  # lines of directories also have a size


# ---- deliberate violations
# ------------------------------------------------------------------------


def lose_a_slot(patch: pytest.MonkeyPatch) -> None:
    """Count the entries handed out in the directory that the item began with."""
    right = opened_module.left_of

    def wrong(*given: Any, **named: Any) -> list[Tree]:
        return [msgspec.structs.replace(tree, slot=0) for tree in right(*given, **named)]

    patch.setattr(walker_module, "left_of", wrong)


def forget_a_name(patch: pytest.MonkeyPatch) -> None:
    """Hand out one directory less than intended."""
    right = opened_module.left_of

    def wrong(*given: Any, **named: Any) -> list[Tree]:
        return right(*given, **named)[1:]

    patch.setattr(walker_module, "left_of", wrong)


def wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Complete a directory in place while other items have entries of it."""

    def wrong(self: ItemContext[Any], slot: int) -> None:
        self.spawned += 1

    patch.setattr(ItemContext, "wait", wrong)


def wait_alone(patch: pytest.MonkeyPatch) -> None:
    """Let a directory wait, but not its parent."""
    right = Walker._settle

    def wrong(self: Walker[Any], opened: Open[Any], above: Open[Any], context: Any) -> None:
        waited = above.waits
        right(self, opened, above, context)
        above.waits = waited

    patch.setattr(Walker, "_settle", wrong)


def complete_while_stopping(patch: pytest.MonkeyPatch) -> None:
    """Ignore that the job stops."""
    right = Walker._settle

    def wrong(self: Walker[Any], opened: Open[Any], above: Open[Any], context: Any) -> None:
        stopping, context.is_stopping = context.is_stopping, lambda: False
        right(self, opened, above, context)
        context.is_stopping = stopping

    patch.setattr(Walker, "_settle", wrong)


def complete_the_shallow_first(patch: pytest.MonkeyPatch) -> None:
    """Begin a join with the parent."""
    right = Walker.join

    def wrong(self: Walker[Any], opens: list[Open[Any]], slots: Any, context: Any) -> Any:
        return right(self, [opens[0], *reversed(opens[1:])], slots, context)

    patch.setattr(Walker, "join", wrong)


def forget_what_was_not_tried(patch: pytest.MonkeyPatch) -> None:
    """Forget small directories that there was no time to scan."""
    right = Walker._process_batches

    def wrong(self: Walker[Any], *given: Any) -> tuple[list[bytes], list[bytes]]:
        return [], right(self, *given)[1]

    patch.setattr(Walker, "_process_batches", wrong)


def count_twice(patch: pytest.MonkeyPatch) -> None:
    """Count a directory as done at once that a visitor has begun."""
    right = Walker._complete

    def wrong(self: Walker[Any], opened: Open[Any], context: Any) -> None:
        right(self, opened, context)
        self._begun.clear()

    patch.setattr(Walker, "_complete", wrong)


BROKEN = [
    (forget_what_was_not_tried, TIMELY),
    (count_twice, LEISURELY),
    (lose_a_slot, TIMELY),
    (forget_a_name, TIMELY),
    (wait_for_nobody, TIMELY),
    (wait_alone, TIMELY),
    (complete_while_stopping, STOPPING),
    (complete_the_shallow_first, TIMELY),
]


@pytest.mark.parametrize(("breaking", "odds"), BROKEN)
def test_a_broken_promise_is_missed(
    breaking: Any, odds: Odds, place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch)
    missed = 0
    for seed in range(300):
        try:
            walk(random_tree(place, Random(seed)), odds, seed, monkeypatch)
        except (Wrong, IndexError):
            missed += 1
        if missed > 3:
            break
    assert missed > 3


def test_the_expected_tree_is_correct(place: bytes) -> None:
    """The reference for the comparisons is correct itself."""
    top = random_tree(place, Random(7))
    below = entries_below(top)
    assert len(below[b""]) == sum(1 for _ in _entries(top))
    assert all(inside >= below[path] for path in below for inside in [below[b""]])


def _entries(top: bytes) -> Iterator[os.DirEntry[bytes]]:
    entries: Sequence[os.DirEntry[bytes]] = list(os.scandir(top))
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(entry.path)
