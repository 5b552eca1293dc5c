"""What is to be measured, decided once on rank 0 and then the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

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

WORKLOADS = {"small": 64 << 10, "large": 1 << 20}
"""The cases that many clients do together, and their blocks in bytes."""
_WORKLOAD_THREADS = (1, 2, 4)


class Phase(msgspec.Struct, frozen=True):
    """A part of a workload, which all clients begin at once."""

    workload: str
    threads: int
    backend: str
    what: str

    @property
    def name(self) -> str:
        """What it is called among a plan's cases."""
        return f"{self.workload}/{self.threads}/{self.backend}/{self.what}"


def phases(workload: str, backends: Sequence[str]) -> list[Phase]:
    """The parts of a workload: what is written is read next."""
    return [
        Phase(workload, threads, backend, what)
        for threads in _WORKLOAD_THREADS
        for backend in backends
        for what in ("write", "read")
    ]


def in_phases(cases: Sequence[str], backends: Sequence[str]) -> tuple[str, ...]:
    """The cases, with each workload as its phases."""
    return tuple(
        name
        for case in cases
        for name in (
            [phase.name for phase in phases(case, backends)] if case in WORKLOADS else [case]
        )
    )


class Plan(msgspec.Struct, frozen=True):
    """The parameters, as the thesis names them.

    `clients` (nc) are the ranks, `threads` (nt) of each, None to adapt; each
    client has `files` (nf) of `blocks` (nb) of `block_bytes` (sb). `place` is
    an absolute path to a directory that is fbench's own. Of a workload `cases`
    has the phases.
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
        """How much each client writes and reads in a case on data."""
        return self.files * self.blocks * self.block_bytes
