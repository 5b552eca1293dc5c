"""A cost model that chooses how a stream travels to all nodes, and the size of its chunks.

Sending n bytes over a link takes alpha + n beta seconds, and a link carries both directions at
once. For N bytes and P nodes:

- *chain*, in chunks of c bytes from each node to the next: (N / c + P - 2) (alpha + c beta). The
  best c is sqrt(N alpha / ((P - 2) beta)), and each link carries the data once. (A tree with a
  fan-out of two would carry it twice.)
- *exchange*: recursive halving scatters one P-th of the data to each node, and an all-gather
  collects it: 2 log2(P) alpha + 2 (P - 1) / P N beta. Each link carries the data twice, but the
  number of steps is logarithmic, which pays off for very many nodes.

The exchange is the algorithm of van de Geijn (Barnett, Shuler, van de Geijn et al., Interprocessor
collective communication library, 1994), as described by Thakur, Rabenseifner and Gropp
(Optimization of collective communication operations in MPICH, 2005). The all-gather is Bruck's,
which works for any number of nodes. The constants need not match the real network: the costs differ
greatly where the choice matters, and little where they cross.
"""

from __future__ import annotations

from math import ceil, log2, sqrt

from pcircle.tools.fbcast.messages import Way

ALPHA_S = 5e-4
"""The cost of a message: two turns of an interpreter, and the latency of the network."""
BETA_S = 1e-9
"""The cost of a byte."""
MIN_CHUNK_BYTES = 64 << 10
MAX_CHUNK_BYTES = 1 << 20
MAX_PANEL_BYTES = 64 << 20
"""The maximum size of a panel, the unit of the exchange. Each node holds two panels."""


def chain_chunk_bytes(size_bytes: int, nodes: int) -> int:
    """Return the best chunk size for a chain, within bounds."""
    hops = max(nodes - 2, 1)
    best = sqrt(size_bytes * ALPHA_S / (hops * BETA_S))
    return int(min(max(best, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES))


def chain_s(size_bytes: int, nodes: int) -> float:
    """Return the duration of a chain."""
    chunk = chain_chunk_bytes(size_bytes, nodes)
    return (ceil(size_bytes / chunk) + max(nodes - 2, 0)) * (ALPHA_S + chunk * BETA_S)


def exchange_chunk_bytes(size_bytes: int, nodes: int) -> int:
    """Return the size of a node's part of a panel."""
    return max(min(ceil(size_bytes / nodes), MAX_PANEL_BYTES // nodes, MAX_CHUNK_BYTES), 4 << 10)


def exchange_s(size_bytes: int, nodes: int) -> float:
    """Return the duration of an exchange."""
    panels = ceil(size_bytes / (nodes * exchange_chunk_bytes(size_bytes, nodes)))
    # A long message costs as much per byte as a sequence of chunks.
    byte_s = BETA_S + ALPHA_S / MAX_CHUNK_BYTES
    return panels * 2 * ceil(log2(nodes)) * ALPHA_S + 2 * (nodes - 1) / nodes * size_bytes * byte_s


def choose(size_bytes: int, nodes: int) -> tuple[Way, int]:
    """Return how a stream of this size travels, and its chunk size."""
    size_bytes = max(size_bytes, 1)
    if nodes > 2 and exchange_s(size_bytes, nodes) < chain_s(size_bytes, nodes):
        return "exchange", exchange_chunk_bytes(size_bytes, nodes)
    return "chain", chain_chunk_bytes(size_bytes, nodes)


def crossing_bytes(nodes: int) -> int:
    """Return a size from which a chain is always best, so the exact size is not needed."""
    size_bytes = MIN_CHUNK_BYTES
    while choose(size_bytes, nodes)[0] == "exchange":
        size_bytes *= 2
    return size_bytes
