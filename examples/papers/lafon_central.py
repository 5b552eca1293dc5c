"""CP, the centralised walk with which LaFon et al. 2012 compare, and its variant CP+.

Section 3 of the paper: rank 0 keeps the queue and does no other work. An idle worker sends a
request and receives one path. The worker visits a file and sends the next request. The children of
a directory all go back to rank 0. Only one worker (here rank 1) reads directories, as in LANL's
program. In CP it keeps no child; in CP+ it keeps one, and the others go back. At the end a sentinel
is sent to each worker.

The master handles one message at a time. We chose its time for a received message, including the
answer (`Costs.master_s`). We also chose that the newest directories are given out first, because
this keeps the queue short. In CP+ the worker that reads directories keeps a child that is a
directory, if there is one.

Files are equal, so the master's queue is a number of files and a stack of directories.
"""

from __future__ import annotations

from heapq import heappop, heappush

from examples.papers.lafon_cost import Costs, Result, Traffic, nodes_of
from examples.papers.lafon_tree import Tree

__all__ = ["traffic_of", "walk_centrally"]

_READER = 1  # the rank that reads directories


def walk_centrally(
    tree: Tree, ranks: int, *, keeps: bool = False, costs: Costs | None = None, per_node: int = 2
) -> Result:
    """Visit all elements with one master and `ranks - 1` workers; `keeps` selects CP+."""
    if ranks < 3:
        raise ValueError("a centralised walk takes a master, a reader and a worker")
    return _Central(tree, ranks, keeps, costs or Costs(), per_node).result()


def traffic_of(
    elements: int, directories: int, ranks: int, costs: Costs | None = None
) -> tuple[int, int]:
    """Return the number of messages and bytes of CP, without simulating the walk.

    Each element is requested and sent, and each except the root was returned before. Each worker
    sends one request that is answered with a sentinel. The function is for sizes at which a
    simulation would take too long. At other sizes, the tests compare it with the simulation.
    """
    costs = costs or Costs()
    word, path = costs.word_bytes, costs.path_bytes
    workers = ranks - 1
    messages = 2 * elements + directories + 2 * workers
    asks = word * (elements + workers)
    paths = path * (2 * elements - 1) + word * directories
    return messages, asks + paths + word * workers


class _Central:
    def __init__(self, tree: Tree, ranks: int, keeps: bool, costs: Costs, per_node: int) -> None:
        self._tree, self._keeps, self._costs = tree, keeps, costs
        self._net = Traffic(costs, nodes_of(ranks, per_node))
        self._size = ranks
        self._files = 0
        self._directories = [0]
        self._waiting: list[int] = []  # workers whose requests came when there was no file
        self._reader_waits = False
        # Messages to the master: time, tie breaker, sender, the directory that was read or -1.
        self._events: list[tuple[float, int, int, int]] = []
        self._serial = 0
        self._free_s = 0.0  # when the master has handled all earlier messages
        self._elements = [0] * ranks
        self._lstat_s = [0.0] * ranks
        self._readdir_s = [0.0] * ranks
        self._serve_s = [0.0] * ranks

    def result(self) -> Result:
        """Simulate the walk to its end."""
        for rank in range(1, self._size):
            self._ask(rank, 0.0)
        master_s = self._costs.master_s
        events = self._events
        while events:
            at_s, _, rank, directory = heappop(events)
            now_s = (self._free_s if self._free_s > at_s else at_s) + master_s
            self._free_s = now_s
            if directory >= 0:
                self._returned(directory)
            elif rank == _READER:
                self._reader_waits = True
            else:
                self._waiting.append(rank)
            self._hand_out()
        word = self._costs.word_bytes
        ends = [self._net.sent(0, rank, word, self._free_s) for rank in range(1, self._size)]
        return self._summed(max(ends))

    def _summed(self, time_s: float) -> Result:
        busy_s = [sum(parts) for parts in zip(self._lstat_s, self._readdir_s, strict=True)]
        idle_s = [0.0, *(time_s - worker_s for worker_s in busy_s[1:])]
        return Result(
            time_s=time_s,
            messages=self._net.messages,
            pair_bytes=self._net.pair_bytes,
            elements=self._elements,
            lstat_s=self._lstat_s,
            readdir_s=self._readdir_s,
            serve_s=[time_s, *([0.0] * (self._size - 1))],
            idle_s=idle_s,
            barrier_s=[0.0] * self._size,
        )

    def _ask(self, rank: int, now_s: float) -> None:
        self._to_master(rank, -1, self._costs.word_bytes, now_s)

    def _to_master(self, rank: int, directory: int, size_bytes: int, now_s: float) -> None:
        self._serial += 1
        at_s = self._net.sent(rank, 0, size_bytes, now_s)
        heappush(self._events, (at_s, self._serial, rank, directory))

    def _returned(self, directory: int) -> None:
        """Queue the children of a directory, except one that CP+ has kept."""
        below = self._tree.subdirectories[directory]
        self._files += self._tree.files[directory]
        if self._keeps and below:
            self._directories.extend(below[1:])
        elif self._keeps and self._tree.files[directory]:
            self._files -= 1
            self._directories.extend(below)
        else:
            self._directories.extend(below)

    def _hand_out(self) -> None:
        """Send one path to each waiting worker, as long as there are paths."""
        costs = self._costs
        if self._reader_waits and self._directories:
            self._reader_waits = False
            at_s = self._net.sent(0, _READER, costs.path_bytes, self._free_s) + costs.serve_s
            self._read(self._directories.pop(), at_s)
        waiting = self._waiting
        given = min(len(waiting), self._files)
        if not given:
            return
        self._files -= given
        for rank in waiting[:given]:
            at_s = self._net.sent(0, rank, costs.path_bytes, self._free_s) + costs.serve_s
            self._elements[rank] += 1
            self._lstat_s[rank] += costs.lstat_s
            self._ask(rank, at_s + costs.lstat_s)
        del waiting[:given]

    def _read(self, directory: int, now_s: float) -> None:
        """Let the reader read a directory and, in CP+, visit a child; then it sends a request."""
        costs = self._costs
        while True:
            below = self._tree.subdirectories[directory]
            files = self._tree.files[directory]
            entries = files + len(below)
            read_s = costs.readdir_s + entries * costs.entry_s
            now_s += costs.lstat_s + read_s
            self._visited(costs.lstat_s, read_s)
            kept = self._keeps and entries > 0
            back = entries - kept
            size_bytes = costs.word_bytes + back * costs.path_bytes
            self._to_master(_READER, directory, size_bytes, now_s)
            if not kept:
                break
            if not below:
                now_s += costs.lstat_s
                self._visited(costs.lstat_s, 0.0)
                break
            directory = below[0]
        self._ask(_READER, now_s)

    def _visited(self, lstat_s: float, read_s: float) -> None:
        self._elements[_READER] += 1
        self._lstat_s[_READER] += lstat_s
        self._readdir_s[_READER] += read_s
