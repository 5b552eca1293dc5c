"""Which way a stream goes to all nodes, and in chunks of which size: by what each way would cost.

A message of n bytes takes a link alpha + n beta seconds, and a link carries both directions at
once. For N bytes to P nodes:

- *chain*, in chunks of c bytes, one node to the next: (N / c + P - 2) (alpha + c beta). The best
  c is sqrt(N alpha / ((P - 2) beta)), and each link carries the data once. (A tree with a fan-out
  of two would carry it twice.)
- *exchange*: the data is scattered, each node getting a P-th by recursive halving, and gathered by
  all: 2 log2(P) alpha + 2 (P - 1) / P N beta. So each link carries the data twice, but a node is
  reached in a logarithm of steps, which pays with very many nodes.

The second is the algorithm of van de Geijn (Barnett, Shuler, van de Geijn et al., Interprocessor
collective communication library, 1994), as Thakur, Rabenseifner and Gropp describe it
(Optimization of collective communication operations in MPICH, 2005); the gathering is Bruck's,
which takes any number of nodes. Figures of a real network need not be known well: the ways differ
much where it matters, and little where they cross.
"""

from __future__ import annotations

from math import ceil, log2, sqrt

from pcircle.tools.fbcast.messages import Way

ALPHA_S = 5e-4
"""Of a message: two turns of an interpreter, and a network's latency."""
BETA_S = 1e-9
"""Of a byte."""
MIN_CHUNK_BYTES = 64 << 10
MAX_CHUNK_BYTES = 1 << 20
MAX_PANEL_BYTES = 64 << 20
"""What is exchanged at once: each node holds two of these."""


def chain_chunk_bytes(size_bytes: int, nodes: int) -> int:
    """The best size of a chunk in a chain, within bounds."""
    hops = max(nodes - 2, 1)
    best = sqrt(size_bytes * ALPHA_S / (hops * BETA_S))
    return int(min(max(best, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES))


def chain_s(size_bytes: int, nodes: int) -> float:
    """What a chain takes."""
    chunk = chain_chunk_bytes(size_bytes, nodes)
    return (ceil(size_bytes / chunk) + max(nodes - 2, 0)) * (ALPHA_S + chunk * BETA_S)


def exchange_chunk_bytes(size_bytes: int, nodes: int) -> int:
    """A node's part of what is exchanged at once."""
    return max(min(ceil(size_bytes / nodes), MAX_PANEL_BYTES // nodes, MAX_CHUNK_BYTES), 4 << 10)


def exchange_s(size_bytes: int, nodes: int) -> float:
    """What scattering and gathering take."""
    panels = ceil(size_bytes / (nodes * exchange_chunk_bytes(size_bytes, nodes)))
    # A long message is handled piece by piece, as one chunk after another is.
    byte_s = BETA_S + ALPHA_S / MAX_CHUNK_BYTES
    return panels * 2 * ceil(log2(nodes)) * ALPHA_S + 2 * (nodes - 1) / nodes * size_bytes * byte_s


def choose(size_bytes: int, nodes: int) -> tuple[Way, int]:
    """The way for so many bytes, and the size of a chunk."""
    size_bytes = max(size_bytes, 1)
    if nodes > 2 and exchange_s(size_bytes, nodes) < chain_s(size_bytes, nodes):
        return "exchange", exchange_chunk_bytes(size_bytes, nodes)
    return "chain", chain_chunk_bytes(size_bytes, nodes)


def crossing_bytes(nodes: int) -> int:
    """Of streams from this size on nobody has to know how long they are: a chain is best."""
    size_bytes = MIN_CHUNK_BYTES
    while choose(size_bytes, nodes)[0] == "exchange":
        size_bytes *= 2
    return size_bytes
