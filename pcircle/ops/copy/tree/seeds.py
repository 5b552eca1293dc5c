"""The first items of a job that copies only the paths of a list.

The entries form a tree: a directory on the path of an entry is created if it is missing, is
completed like any other, and counts as an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.ops.copy.tree.items import Item, SingleRoots
from pcircle.ops.copy.tree.plan import DIRECTORY, CopyPlan
from pcircle.walk.items import Tree

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists


def seed_listed(plan: CopyPlan, lists: Lists, counters: CopyCounters) -> Iterator[Item]:
    """Yield the items for listed paths, and count the paths as found."""
    counters.found += len(lists.parts)
    for part in lists.parts:
        weight = 1.0 / len(lists.parts)
        if plan.roots[part.root].kind == DIRECTORY:
            counters.scans_due += 1
            yield Tree(part.root, b"", weight, only=part.listed)
        else:
            yield SingleRoots(part.root, part.root + 1, weight)
