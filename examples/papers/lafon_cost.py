"""What the algorithms of LaFon et al. 2012 cost, and what a run of one came to.

The paper gives the form only: a transfer of s units costs ``alpha + s * beta``, work is one visit
for each element. The values are chosen by us, but for the length of a path, which follows from its
fig. 1 (1.6e9 bytes on the busiest pair over 6.5 million entries), and the sizes of messages, which
are those of libcircle, the library that grew out of the authors' code: one int for a request, a
refusal or a token, and for k paths one message of ``4 * (2 + k)`` bytes and one with the paths.

`poll_s`, `pause_s` and `neighbour_s` are zero by default; the page uses them to find out what the
paper's machine must have had for what the default costs do not reproduce.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from examples.papers.lafon_paper import BUSIEST_BYTES, FS1

__all__ = ["Answer", "Costs", "Result", "Traffic", "nodes_of"]


class Costs(msgspec.Struct, frozen=True):
    """Times in seconds, sizes in bytes.

    `poll_s` is paid by each process whenever it looks at its messages between elements, `pause_s`
    after each refusal, `neighbour_s` with each element for each other rank on the node.
    `master_s` is what a message costs the master of CP, `serve_s` any other rank.
    """

    lstat_s: float = 0.0005
    readdir_s: float = 0.002
    entry_s: float = 0.00001
    near_s: float = 0.000002
    far_s: float = 0.00001
    byte_s: float = 1 / 1.6e9
    serve_s: float = 0.000005
    master_s: float = 0.00003
    path_bytes: int = round(BUSIEST_BYTES.value / FS1.value)
    word_bytes: int = 4
    poll_s: float = 0.0
    pause_s: float = 0.0
    neighbour_s: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """Elements given to a rank: when it requested them, when they were sent and received."""

    size_bytes: int
    requested_s: float
    sent_s: float
    received_s: float


class Result(msgspec.Struct, frozen=True):
    """What one run came to. Lists have one value for each rank; `pair_bytes` is [source][dest].

    Of the seconds of a process `serve_s` were spent on messages, or looking for them, while it had
    work, `idle_s` without work (asking, or waiting for an answer), `barrier_s` by threads that
    waited for others.

    Of the `requests` for work `first_requests` were sent before the first element was complete,
    and `last_requests` after the last one. Only the walks of `lafon_steal` record these two
    and the `answers`; CP has no requests of this kind.
    """

    time_s: float
    messages: int
    pair_bytes: list[list[int]]
    elements: list[int]
    lstat_s: list[float]
    readdir_s: list[float]
    serve_s: list[float]
    idle_s: list[float]
    barrier_s: list[float]
    requests: int = 0
    first_requests: int = 0
    last_requests: int = 0
    answers: list[Answer] = []

    @property
    def total_bytes(self) -> int:
        """All that was sent."""
        return sum(map(sum, self.pair_bytes))

    @property
    def busiest_bytes(self) -> int:
        """Of the pair that exchanged the greatest amount, in one direction."""
        return max(map(max, self.pair_bytes))

    @property
    def shares(self) -> list[float]:
        """Each rank's part of the visited elements, 0 to 1."""
        total = sum(self.elements)
        return [elements / total for elements in self.elements]

    @property
    def span(self) -> float:
        """The greatest share less the smallest one, over the ideal share."""
        return (max(self.shares) - min(self.shares)) * len(self.shares)


class Traffic:
    """The network: counts messages and bytes, and says when they arrive, in order for each pair."""

    def __init__(self, costs: Costs, nodes: Sequence[int]) -> None:
        size = len(nodes)
        self.messages = 0
        self.pair_bytes = [[0] * size for _ in range(size)]
        self._byte_s = costs.byte_s
        self._start_s = [
            [costs.near_s if nodes[a] == nodes[z] else costs.far_s for z in range(size)]
            for a in range(size)
        ]
        self._last_s = [[0.0] * size for _ in range(size)]

    def sent(
        self, source: int, dest: int, size_bytes: int, now_s: float, messages: int = 1
    ) -> float:
        """When so many bytes, sent now as so many messages, are all there."""
        self.messages += messages
        self.pair_bytes[source][dest] += size_bytes
        at_s = now_s + messages * self._start_s[source][dest] + size_bytes * self._byte_s
        last_s = self._last_s[source]
        if at_s < last_s[dest]:
            at_s = last_s[dest]
        else:
            last_s[dest] = at_s
        return at_s


def nodes_of(ranks: int, per_node: int) -> list[int]:
    """The node of each rank, filled one after another."""
    return [rank // per_node for rank in range(ranks)]
