"""The registry of hard links: spilled records return unchanged, and memory is bounded."""

from __future__ import annotations

import sys
from random import Random

import pytest

from pcircle.core.errors import StoppedEarly
from pcircle.core.units import timestamp
from pcircle.fs.registry import Key
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.tree.items import FinishedCopy, HardLinkedName
from pcircle.ops.copy.tree.links import CopiedInode, Inode
from pcircle.ops.copy.tree.links import registry as new_registry
from pcircle.walk.items import ANYWHERE

_STAMP = Stamp(1, 2, 3, timestamp(4), timestamp(5))


def _one(name: bytes) -> HardLinkedName:
    return HardLinkedName(0, b"\xff\n/some/path", name, 0.5, ANYWHERE, _STAMP)


def _copied(made: int, name: bytes = b"name", seal: bytes = b"") -> CopiedInode:
    return CopiedInode(_one(name), FinishedCopy(made, _STAMP), made, seal)


@pytest.mark.parametrize("seed", range(20))
def test_the_registry_behaves_like_a_dictionary(seed: int) -> None:
    rng = Random(seed)
    registry, expected = new_registry(most=8), dict[Key, Inode]()
    for step in range(600):
        key = (rng.randrange(2), rng.randrange(80) << 57)
        inode = registry.get(key)
        known = expected.get(key)
        assert (inode is None) == (known is None)
        if inode is None or known is None:
            inode, known = Inode(), Inode()
            registry.add(key, inode)
            expected[key] = known
        assert inode == known
        for entry in (inode, known):
            entry.seen += 1
            entry.first = _one(b"%d" % step)
        what = rng.choice(("make", "wait", "release", "forget"))
        for entry in (inode, known):
            if what == "make":
                entry.copied = _copied(step, seal=b"f%d" % step)
            elif what == "wait":
                entry.waiting.append((step, _one(b"waits")))
            elif what == "release":
                entry.waiting = []
        if what == "forget":
            registry.forget(key)
            del expected[key]
        assert len(registry) == len(expected)
    registry.close()


def test_inodes_at_rest_leave_memory() -> None:
    registry = new_registry(most=1000)
    for number in range(20_000):
        registry.add((0, number), Inode(copied=_copied(number), first=_one(b"name")))
        assert len(registry._at_hand) <= 1000
    busy = Inode(waiting=[(1, _one(b"name"))])
    registry.add((1, 1), busy)
    for number in range(20_000, 22_000):
        registry.add((0, number), Inode(copied=_copied(number)))
    assert registry.get((1, 1)) is busy
    assert len(registry) == 22_001
    registry.close()


def test_a_full_disk_stops_the_job() -> None:
    registry = new_registry(most=10)
    for number in range(11):
        registry.add((0, number), Inode(number, copied=_copied(1)))
    assert registry._database is not None
    registry._database.execute("PRAGMA max_page_count = 3")

    def add_many() -> None:
        for number in range(11, 2000):
            registry.add((0, number), Inode(number, copied=_copied(1, b"long" * 50)))

    with pytest.raises(StoppedEarly, match=r"temporary directory.*full"):
        add_many()
    registry.close()


def test_without_a_database_everything_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    registry = new_registry(most=10)
    for number in range(100):
        registry.add((0, number), Inode(number, copied=_copied(1)))
    assert len(registry._at_hand) == 100
    assert registry.get((0, 5)) is not None
    registry.close()
