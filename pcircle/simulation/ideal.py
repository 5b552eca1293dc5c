"""The ideal schedule of a task: a bound that no way of sharing the work can beat."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from pcircle.simulation.tree import Tree

_DONE = -1


def ideal_s(tree: Tree, ranks: int) -> tuple[float, float]:
    """Return the duration of the job, and when half of the ranks first work, with an ideal queue.

    One queue serves all ranks, at no cost, in the order in which items are made.
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
