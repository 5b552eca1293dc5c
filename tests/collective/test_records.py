"""Decisions as files: the first decision is valid for all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier

import pytest

from pcircle.collective import Directory

MANY = 8


def test_simultaneous_decisions_agree(tmp_path: Path) -> None:
    """Threads share a process number, like processes of several hosts may."""
    rng, records = Random(7), Directory(os.fsencode(tmp_path))
    seen = set()
    for number in range(100):
        barrier = Barrier(MANY)
        wishes = [rng.random() < 0.5 for _ in range(MANY)]

        def settle(
            wish: bool, op: tuple[int, int] = (1, number), wait: Callable[[], int] = barrier.wait
        ) -> bool | None:
            wait()
            return records.settle(op, wish)

        with ThreadPoolExecutor(MANY) as pool:
            found = set(pool.map(settle, wishes))
        assert len(found) == 1, number
        assert found <= set(wishes)
        assert records.settle((1, number), not found.copy().pop()) in found
        seen |= found
    assert seen == {True, False}
    assert len(os.listdir(tmp_path)) == 100


def test_forgotten_operations_can_be_decided_again(tmp_path: Path) -> None:
    records = Directory(os.fsencode(tmp_path))
    assert records.settle((1, 2), True) is True
    records.forget((1, 2))
    assert os.listdir(tmp_path) == []
    assert records.settle((1, 2), False) is False
    records.forget((9, 9))


def test_existing_decisions_are_found_without_write_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Directory(os.fsencode(tmp_path))
    assert records.settle((1, 1), True) is True
    monkeypatch.setattr("pcircle.collective.operation.write_all", _full)
    assert records.settle((1, 1), False) is True
    assert records.settle((1, 2), True) is None
    assert os.listdir(tmp_path) == ["1-1"]
    assert Directory(os.fsencode(tmp_path / "none")).settle((1, 1), True) is None


def _full(fd: int, data: bytes) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("wish", [False, True])
def test_decisions_forgotten_by_others_came_to_nothing(
    wish: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record vanishes between the failed creation of a rank and its look-up."""
    records, second = Directory(os.fsencode(tmp_path)), Directory(os.fsencode(tmp_path))
    assert second.settle((1, 2), False) is False
    link = os.link

    def forgotten(*arguments: bytes) -> None:
        try:
            link(*arguments)
        finally:
            second.forget((1, 2))

    monkeypatch.setattr(os, "link", forgotten)
    assert records.settle((1, 2), wish) is False


def test_a_vanished_positive_decision_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Directory(os.fsencode(tmp_path))
    link = os.link

    def lost(*arguments: bytes) -> None:
        link(*arguments)
        os.unlink(arguments[1])

    monkeypatch.setattr(os, "link", lost)
    assert records.settle((1, 2), True) is None
    assert records.settle((1, 2), False) is False
