"""The plan of a benchmark, which rank 0 makes for all ranks, and its figures.

A `BenchFigure` is a measured value. Its unit determines how the values of several clients are
combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

How: TypeAlias = Literal["sum", "mean", "slowest"]

TOGETHER = "B/s together"
UNITS: dict[str, How] = {
    "B/s": "sum",
    TOGETHER: "slowest",
    "op/s": "sum",
    "us": "mean",
    "%": "mean",
    "threads": "mean",
}
"""How the figures of several clients are combined, by unit.

All clients begin a phase at the same time, so the slowest client limits the combined rate.
"""


class BenchFigure(msgspec.Struct, frozen=True, array_like=True):
    """A value measured in a case with a backend, in one of the `UNITS`."""

    case: str
    what: str
    backend: str
    unit: str
    value: float


class BenchResult(msgspec.Struct, frozen=True, array_like=True):
    """The figures, failures and warnings of one or more clients."""

    figures: tuple[BenchFigure, ...] = ()
    trouble: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def together(figures: Sequence[BenchFigure]) -> list[BenchFigure]:
    """Combine the figures of all clients, in the order in which they first occur."""
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for figure in figures:
        key = figure.case, figure.what, figure.backend, figure.unit
        groups.setdefault(key, []).append(figure.value)
    return [BenchFigure(*key, _one(UNITS[key[3]], values)) for key, values in groups.items()]


def _one(how: How, values: Sequence[float]) -> float:
    if how == "slowest":
        return min(values) * len(values)
    return sum(values) / (1 if how == "sum" else len(values))


CASES = ("random", "stream", "overlap", "metadata", "blocking", "continuation")
PAPER_CASES = (
    "case1",
    "case2",
    "case3",
    "sweep",
    "latency",
    "submission",
    "continuation",
    "small",
    "large",
)
BACKENDS = ("blocking", "threads")
MAX_ENTRIES = 10_000_000
"""The maximum number of entries of one kind in a test tree."""

WORKLOADS = {"small": 64 << 10, "large": 1 << 20}
"""The cases for many clients, and their block sizes in bytes."""
_WORKLOAD_THREADS = (1, 2, 4)


class BenchPhase(msgspec.Struct, frozen=True):
    """A part of a workload, which all clients begin at the same time."""

    workload: str
    threads: int
    backend: str
    what: str

    @property
    def name(self) -> str:
        """The name of the phase among the cases of a plan."""
        return f"{self.workload}/{self.threads}/{self.backend}/{self.what}"


def phases(workload: str, backends: Sequence[str]) -> list[BenchPhase]:
    """Return the phases of a workload; each write is followed by a read of the same files."""
    return [
        BenchPhase(workload, threads, backend, what)
        for threads in _WORKLOAD_THREADS
        for backend in backends
        for what in ("write", "read")
    ]


def in_phases(cases: Sequence[str], backends: Sequence[str]) -> tuple[str, ...]:
    """Return the cases, with each workload replaced by its phases."""
    return tuple(
        name
        for case in cases
        for name in (
            [phase.name for phase in phases(case, backends)] if case in WORKLOADS else [case]
        )
    )


class BenchPlan(msgspec.Struct, frozen=True):
    """The parameters of a benchmark, with their names in the thesis in parentheses.

    `clients` (nc) is the number of ranks. `threads` (nt) is the number of threads per client, or
    None if it is adaptive. Each client uses `files` (nf) files of `blocks` (nb) blocks of
    `block_bytes` (sb) bytes. `place` is the absolute path of the temporary directory. In `cases`,
    workloads are replaced by their phases.
    """

    place: bytes
    cases: tuple[str, ...] = CASES
    backends: tuple[str, ...] = BACKENDS
    threads: int | None = None
    files: int = 4
    blocks: int = 64
    block_bytes: int = 1 << 20
    clients: int = 1

    @property
    def client_bytes(self) -> int:
        """The number of bytes that a client writes and reads in a case that transfers data."""
        return self.files * self.blocks * self.block_bytes
