"""What a job begins with that does again what failed in another one.

The entries hang in a tree of their own: a directory on the way to one of them
is made if it is not there, is finished like any other, and counts as an entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from pcircle.fcp.counters import Counters
from pcircle.fcp.items import Item, Singles, Tree
from pcircle.fcp.plan import DIRECTORY, Plan


def seed_again(plan: Plan, counters: Counters) -> Iterator[Item]:
    """The items for `plan.retry`, counted as found."""
    wanted = plan.retry or ()
    counters.found += len(wanted)
    for again in wanted:
        weight = 1.0 / len(wanted)
        if plan.roots[again.root].kind == DIRECTORY:
            counters.scans_due += 1
            only = again.entries if any(again.entries) else None
            yield Tree(again.root, b"", weight, None, only)
        else:
            yield Singles(again.root, again.root + 1, weight)
