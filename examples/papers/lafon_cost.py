"""The costs in the models of LaFon et al. 2012, and the results of a run.

The paper states only the form: a transfer of s units costs ``alpha + s * beta``, and work is one
visit for each element. We chose the values, with two exceptions. The length of a path follows from
fig. 1 of the paper (1.6e9 bytes on the busiest pair over 6.5 million entries). The sizes of
messages are those of libcircle, the library that developed from the authors' code. A request, a
refusal or a token is one int. For k paths there is one message of ``4 * (2 + k)`` bytes, and one
with the paths.

`poll_s`, `pause_s` and `neighbour_s` are zero by default. The page varies them to explain the
results of the paper that the default costs do not reproduce.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from examples.papers.lafon_paper import BUSIEST_BYTES, FS1

__all__ = ["Answer", "Costs", "Result", "Traffic", "nodes_of"]


class Costs(msgspec.Struct, frozen=True):
    """Times in seconds, sizes in bytes.

    A process spends `poll_s` whenever it checks for messages between elements, and `pause_s` after
    each refusal. It spends `neighbour_s` on each element for each other rank on its node. A message
    takes `master_s` on the master of CP, and `serve_s` on any other rank.
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
    """Elements given to a rank: when it requested them, and when they were sent and received."""

    size_bytes: int
    requested_s: float
    sent_s: float
    received_s: float


class Result(msgspec.Struct, frozen=True):
    """The results of one run. Lists have one value for each rank; `pair_bytes` is [source][dest].

    A process spent `serve_s` on messages, or on checking for them, while it had work. It spent
    `idle_s` without work, and its threads spent `barrier_s` waiting for each other.

    Of the `requests` for work, `first_requests` were sent before the first element was complete,
    and `last_requests` after the last one was. Only the walks of `lafon_steal` record these two and
    the `answers`; CP has no requests of this kind.
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
        """The bytes of all messages."""
        return sum(map(sum, self.pair_bytes))

    @property
    def busiest_bytes(self) -> int:
        """The largest number of bytes that one rank sent to another."""
        return max(map(max, self.pair_bytes))

    @property
    def shares(self) -> list[float]:
        """Each rank's share of the visited elements, from 0 to 1."""
        total = sum(self.elements)
        return [elements / total for elements in self.elements]

    @property
    def span(self) -> float:
        """The difference between the largest and the smallest share, divided by the ideal share."""
        return (max(self.shares) - min(self.shares)) * len(self.shares)


class Traffic:
    """The network: counts messages and bytes, and computes arrivals, in order for each pair."""

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
        """Return when bytes that are sent now, in a number of messages, have all arrived."""
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
    """Return the node of each rank; nodes are filled one after another."""
    return [rank // per_node for rank in range(ranks)]
