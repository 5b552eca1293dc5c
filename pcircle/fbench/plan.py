"""What is to be measured, decided once on rank 0 and then the same on every rank."""

from __future__ import annotations

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


class Plan(msgspec.Struct, frozen=True):
    """The parameters, as the thesis names them.

    `clients` (nc) are the ranks, `threads` (nt) of each, None to adapt; each
    client has `files` (nf) of `blocks` (nb) of `block_bytes` (sb). `place` is
    an absolute path to a directory that is fbench's own.
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
