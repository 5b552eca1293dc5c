"""The order in which subtrees are compared, and the results kept for incomplete subtrees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pcircle.tools.fmirror.work import unchanged
from pcircle.tools.fmirror.work.unchanged import EqualDirectory, SubtreeComparison, Subtrees

Tree = dict[bytes, Any]
"""Directories by name; one without an entry of its own has three files."""

TREE: Tree = {
    b"a": {b"b": {b"c": {}, b"d": {b"bad": None}}, b"e": {}},
    b"f": {b"g": {b"h": {}}},
    b"i": {},
}


class Stub:
    """A replacement of `QuickCheck`: dictionaries are directories, and None is a changed one."""

    def __init__(self) -> None:
        self.tried: list[bytes] = []
        self.entered: list[int] = []
        self._at: dict[int, Tree] = {}

    def enter(self, tree: Tree) -> tuple[int, int]:
        """Open a directory like the walk does."""
        fds = self._opened(tree)
        self.entered += fds
        return fds

    def _opened(self, tree: Tree) -> tuple[int, int]:
        fds = os.open("/", os.O_PATH), os.open("/", os.O_PATH)
        self._at[fds[0]] = tree
        return fds

    def directories(
        self, names: list[bytes], fds: tuple[Any, Any], max_parents: int
    ) -> tuple[int, dict[int, EqualDirectory]]:
        holders = [fds[0]] * len(names) if isinstance(fds[0], int) else fds[0]
        equal = {}
        for place, (holder, name) in enumerate(zip(holders, names, strict=True)):
            self.tried.append(name)
            below = self._at[holder][name]
            if below and max_parents:
                equal[place] = EqualDirectory(3, list(below), self._opened(below))
                max_parents -= 1
            elif below is not None and not below:
                equal[place] = EqualDirectory(3)
            if below and not max_parents:
                return place + 1, equal
        return len(names), equal


@pytest.fixture
def stub() -> Iterator[Stub]:
    """Return the tree above; all tests check that nothing else stays open."""
    made = Stub()
    yield made
    for fd in made.entered:
        os.close(fd)


def test_ancestors_of_a_change_are_walked(stub: Stub) -> None:
    found = Subtrees(stub)  # type: ignore[arg-type]
    result = found.compare(b"top", [b"a", b"f", b"i"], stub.enter(TREE), returns_early=False)
    assert result == SubtreeComparison([b"a"], [], 4, 12)
    tried = len(stub.tried)
    # The walk enters it and finds the known results for its entries.
    again = stub.enter(TREE[b"a"])
    assert found.compare(b"top/a", [b"b", b"e"], again, returns_early=False) == SubtreeComparison(
        [b"b"], [], 1, 3
    )
    assert len(stub.tried) == tried
    again = stub.enter(TREE[b"a"][b"b"])
    assert found.compare(b"top/a/b", [b"c", b"d"], again, returns_early=False) == SubtreeComparison(
        [b"d"], [], 1, 3
    )
    assert len(stub.tried) == tried
    found.forget()
    assert found.compare(b"top/a/b", [b"c", b"d"], again, returns_early=False) == SubtreeComparison(
        [b"d"], [], 1, 3
    )
    assert len(stub.tried) > tried


def test_the_comparison_ends_at_the_time_limit(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_SOON_S", -1.0)
    monkeypatch.setattr(unchanged, "_LATE_S", -1.0)
    found = Subtrees(stub)  # type: ignore[arg-type]
    names = [b"a", b"f", b"i"]
    # All that are tried at once; deeper directories are left to the walk.
    assert found.compare(b"", names, stub.enter(TREE), returns_early=True) == SubtreeComparison(
        [b"a", b"f"],
        [],
        1,
        3,
    )
    assert stub.tried == names


def test_untried_names_are_not_counted_as_different(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_AT_ONCE", 2)
    monkeypatch.setattr(unchanged, "_SOON_S", -1.0)
    tree: Tree = {b"%d" % number: {} for number in range(1, 6)}
    found = Subtrees(stub)  # type: ignore[arg-type]
    names = [b"1", b"2", b"3", b"4", b"5"]
    assert found.compare(b"", names, stub.enter(tree), returns_early=True) == SubtreeComparison(
        [],
        [b"3", b"4", b"5"],
        2,
        6,
    )


def test_few_directories_are_open_at_a_time(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deeper directories of a deep tree are left to the walk, which reaches them later."""
    tree: Tree = {}
    for _ in range(30):
        tree = {b"d": tree}
    found = Subtrees(stub)  # type: ignore[arg-type]
    monkeypatch.setattr(found, "_max_open", 4)
    path, holder, entered = b"", tree, 0
    while holder:
        fds = stub.enter(holder)
        result = found.compare(path, [b"d"], fds, returns_early=False)
        if not result.to_walk:
            break
        path, holder, entered = path + b"/d" if path else b"d", holder[b"d"], entered + 1
    assert entered > 20
    assert len(stub.tried) < 60
