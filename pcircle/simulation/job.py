"""One simulated job: its parameters and its results.

The ideal schedule of a task, in which sharing the work costs nothing, serves as a reference.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import log2

import msgspec
import numpy as np

from pcircle.circle import EngineSettings
from pcircle.simulation.model import Simulation
from pcircle.simulation.tree import ItemTree, balanced, drawn, files, flat, geometric
from pcircle.simulation.waves import RankTree, round_duration_s
from pcircle.simulation.work_model import Machine

_DONE = -1


def ideal_s(tree: ItemTree, ranks: int) -> tuple[float, float]:
    """Return the duration of the ideal schedule, and the time when half of the ranks are busy.

    In this schedule, one queue serves all ranks at no cost, in the order in which items are made.
    The time is -1 if half of the ranks are never busy.
    """
    children, first_child = tree.children, tree.first_child
    place, until = tree.place, tree.until_s
    ready = deque([(0, 1)])
    events: list[tuple[float, int]] = []
    free, now_s, half_s = ranks, 0.0, -1.0
    while True:
        while free and ready:
            first, last = ready[0]
            if first + 1 < last:
                ready[0] = first + 1, last
            else:
                ready.popleft()
            free -= 1
            position = place[first]
            item_s = until[position + 1] - until[position]
            if children[first]:
                heappush(events, (now_s + item_s * tree.spawn_at, first))
            heappush(events, (now_s + item_s, _DONE))
        if half_s < 0 and 2 * free <= ranks:
            half_s = now_s
        if not events:
            return now_s, half_s
        now_s, item = heappop(events)
        if item == _DONE:
            free += 1
        else:
            ready.append((first_child[item], first_child[item] + children[item]))


_FAN = 32
_ENVELOPE_BYTES = 24  # overhead of a message: kind, numbers and lengths


class SimulatedTask(msgspec.Struct, frozen=True):
    """The simulated task.

    The shape "files" is a tree of `directories` that contain `entries`. An item covers up to
    `batch` entries, each of which takes `entry_s` on average. The other shapes consist of `items`
    items, which take `item_s` on average.
    """

    shape: str = "files"
    entries: int = 1_000_000
    directories: int = 10_000
    batch: int = 300
    entry_s: float = 1e-4
    items: int = 0
    item_s: float = 0.1
    times: str = "uniform"

    def tree(self, seed: int) -> ItemTree:
        """Draw the tree of items from a seed."""
        rng = np.random.default_rng(seed)
        if self.shape == "files":
            counts, sizes = files(self.entries, self.directories, self.batch, rng)
            # An empty directory must also be read.
            means_s = self.entry_s * np.maximum(1.0, sizes)
            return ItemTree(counts, drawn(self.times, means_s, rng))
        if self.shape == "balanced":
            counts = balanced(self.items, _FAN)
        elif self.shape == "geometric":
            counts = geometric(self.items, rng)
        else:
            counts = flat(self.items)
        return ItemTree(counts, drawn(self.times, np.full(len(counts), self.item_s), rng))


class Figures(msgspec.Struct, frozen=True):
    """The results of a job.

    `efficiency` is the work divided by time and ranks. `of_bound` is a lower bound on the duration
    (the longer of work per rank and span), divided by the duration. `of_ideal` is the duration of
    the ideal schedule, divided by the actual duration. `half_busy_latencies` is how much later than
    in the ideal schedule half of the ranks are busy. Its unit is one latency times log2 of the
    number of ranks.
    """

    ranks: int
    items: int
    entries: int
    work_s: float
    span_s: float
    time_s: float
    efficiency: float
    of_bound: float
    of_ideal: float
    messages: int
    messages_per_item: float
    messages_per_entry: float
    bytes: int
    max_inbox: int
    half_busy_s: float | None
    half_busy_latencies: float | None
    stop_s: float
    stop_rounds: float
    result_s: float
    round_s: float


def play(
    task: SimulatedTask,
    ranks: int,
    machine: Machine,
    settings: EngineSettings,
    seed: int,
    tree: ItemTree | None = None,
) -> Figures:
    """Simulate a job on the tree of the task, which may be given if it was drawn before."""
    tree = tree or task.tree(seed)
    counts = Simulation(tree, ranks, machine, settings, seed).run()
    best_s, best_half_s = ideal_s(tree, ranks)
    rank_tree = RankTree(ranks, settings.arity, machine.ranks_per_node)
    round_s = round_duration_s(rank_tree, machine, np.random.default_rng(seed))
    stop_s = counts.stopped_s - counts.last_work_s
    entries = task.entries + task.directories if task.shape == "files" else tree.items * task.batch
    messages = sum(counts.messages)
    time_s = counts.stopped_s
    late_s = None
    if counts.half_busy_s is not None and best_half_s >= 0:
        late_s = max(0.0, counts.half_busy_s - best_half_s)
    return Figures(
        ranks=ranks,
        items=tree.items,
        entries=entries,
        work_s=tree.work_s,
        span_s=tree.span_s,
        time_s=time_s,
        efficiency=tree.work_s / ranks / time_s,
        of_bound=tree.bound_s(ranks) / time_s,
        of_ideal=best_s / time_s,
        messages=messages,
        messages_per_item=messages / tree.items,
        messages_per_entry=messages / entries,
        bytes=messages * _ENVELOPE_BYTES
        + counts.parcels * machine.item_bytes
        + counts.results * machine.result_bytes,
        max_inbox=counts.max_inbox,
        half_busy_s=counts.half_busy_s,
        half_busy_latencies=None
        if late_s is None
        else late_s / (machine.far_s + machine.message_s) / max(1.0, log2(ranks)),
        stop_s=stop_s,
        stop_rounds=stop_s / round_s if round_s else 0.0,
        result_s=counts.root_s - counts.last_work_s,
        round_s=round_s,
    )
