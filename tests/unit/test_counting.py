"""Counters are declared once: all code that goes by names includes a new counter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pcircle.circle import ProgressSums
from pcircle.core.counters import CounterSet
from pcircle.jobs.tree_task import EntryCounters, reported
from pcircle.ops.copy.entry.counts import CopyCounts


class Folded(EntryCounters):
    """A walk with a counter that no tool has."""

    folded: int
    since_s: float


class Report(msgspec.Struct):
    """A report of some counters."""

    tool: str
    files: int
    folded: int


def test_one_line_declares_a_counter() -> None:
    counters = Folded(files=3, folded=2)
    counters.folded += 5
    counters.weight = 0.5
    assert counters.names == (*EntryCounters.names, "folded")
    assert counters.sums() == ProgressSums(counters.row(), 0.5, 1)
    assert Folded.of(counters.row()) == counters
    assert Folded.total([counters.row(), counters.row()]) == Folded(files=6, folded=14)
    assert reported(Report, counters) == {"files": 3, "folded": 7}
    assert EntryCounters.row_of(counters) == counters.row()[:-1]


def test_only_numbers_are_counters() -> None:
    counters = Folded()
    counters.since_s = 1.5
    assert "since_s" not in counters.names
    assert counters.row() == (0,) * len(counters.names)


def test_undeclared_counters_are_refused() -> None:
    with pytest.raises(AttributeError):
        Folded(unfolded=1)
    with pytest.raises(AttributeError):
        Folded().unfolded = 1  # type: ignore[attr-defined]


def test_one_counter_is_a_row_as_well() -> None:
    class One(CounterSet):
        only: int

    assert One(only=4).row() == (4,)
    assert CounterSet().row() == ()


def test_annotations_may_be_types() -> None:
    """Annotations are types in a module without `from __future__ import annotations`."""
    code = compile("class Typed(EntryCounters):\n lines: int\n since_s: float", "", "exec", 0, True)
    names: dict[str, Any] = {"EntryCounters": EntryCounters, "__name__": "typed"}
    exec(code, names)
    made = names["Typed"]
    assert made.names == (*EntryCounters.names, "lines")
    assert made(lines=2).lines == 2


def test_counts_have_names() -> None:
    assert str(Folded(files=1)).startswith("Folded(found=0, ")
    assert Folded(files=1) != Folded()
    assert Folded(files=1) != "Folded"


def test_copied_files_are_counted_with_their_sizes() -> None:
    counts = CopyCounts()
    counts.add_files(3, 10)
    assert (counts.files, counts.sized, counts.bytes_found, counts.bytes_done) == (3, 3, 10, 10)
