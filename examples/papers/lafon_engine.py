"""pcircle's own engine on the trees and costs of LaFon et al. 2012, as an additional series.

The engine itself runs (`examples.papers.engine_player`), with one rank on each node and, as in
H-DRQS, several workers on one queue. Its items are those of `pcircle.walk`. An item reads a
directory, visits its files if they are few, and continues with the subdirectories, depth first. It
does so for some milliseconds, or longer if no rank is waiting. The remaining directories become
items, and the files of a large directory become batches. The limits (`FEW_NAMES`, `ITEM_S`,
`MORE_S`) are the walker's; a batch has at most `FEW_NAMES` names. The costs are those of `Costs`,
and a name in a batch takes `NAME_BYTES` (chosen by us). Messages are answered at once, because the
workers have their own threads.
"""

from __future__ import annotations

from random import Random
from typing import Any

from examples.papers.engine_player import EnginePlayer, Steps
from examples.papers.lafon_cost import Costs, Result
from examples.papers.lafon_tree import Tree
from pcircle.circle import EngineSettings
from pcircle.circle.messages import (
    LifelineRequest,
    PinnedWork,
    SafraToken,
    StealRefusal,
    StealRequest,
    WorkTransfer,
)
from pcircle.transport._sim import Conditions, Network, Program

__all__ = ["walk_by_engine"]

FEW_NAMES = 64
ITEM_S = 0.01
MORE_S = 0.04
NAME_BYTES = 16
_OTHER_WORDS = 8  # of a message of a round

# An item: the number of a directory, or minus the number of files in a batch.
_Item = int


def walk_by_engine(
    tree: Tree, ranks: int, workers: int, seed: int, costs: Costs | None = None
) -> Result:
    """Visit all elements with *ranks* ranks, one on each node, and several workers on each."""
    costs = costs or Costs()
    conditions = Conditions(
        near_s=costs.near_s,
        far_s=costs.far_s,
        byte_s=costs.byte_s,
        jitter=0.0,
        step_s=costs.serve_s,
    )
    requests = 0

    def size_bytes(message: object) -> int:
        nonlocal requests
        requests += isinstance(message, StealRequest | LifelineRequest)
        return _size_bytes(costs, message)

    network = Network(
        range(ranks),
        Random(f"lafon network {seed}"),
        conditions,
        size_bytes=size_bytes,
    )
    settings = EngineSettings(workers=workers, structured=False)
    players = [_Player(tree, rank, ranks, settings, seed, costs) for rank in range(ranks)]
    programs: list[Program] = [player.play for player in players]
    network.run(programs)
    time_s = network.now_s
    busy_s = [player.lstat_s + player.readdir_s for player in players]
    return Result(
        time_s=time_s,
        messages=network.messages,
        pair_bytes=network.pair_bytes,
        elements=[player.elements for player in players],
        lstat_s=[player.lstat_s for player in players],
        readdir_s=[player.readdir_s for player in players],
        serve_s=[0.0] * ranks,
        idle_s=[time_s - each_s / workers for each_s in busy_s],
        barrier_s=[0.0] * ranks,
        requests=requests,
    )


def _size_bytes(costs: Costs, message: Any) -> int:
    """Return the size of a message, by the same rules as for the paper's algorithms."""
    word = costs.word_bytes
    if isinstance(message, StealRequest | StealRefusal | SafraToken):
        return word
    if isinstance(message, WorkTransfer):
        items: list[_Item] = [item for group in message.groups for item in group]
    elif isinstance(message, PinnedWork):
        items = [parcel.item for parcel in message.parcels]
    else:
        return _OTHER_WORDS * word
    names = sum(-item for item in items if item < 0)
    return word * (2 + len(items)) + costs.path_bytes * len(items) + NAME_BYTES * names


class _Player(EnginePlayer[_Item]):
    """A rank whose items visit directories and files."""

    def __init__(
        self, tree: Tree, rank: int, ranks: int, settings: EngineSettings, seed: int, costs: Costs
    ) -> None:
        super().__init__(rank, range(ranks), settings, Random(f"lafon engine {seed} {rank}"), [0])
        self._tree, self._costs = tree, costs
        self.elements = 0
        self.lstat_s = self.readdir_s = 0.0

    def steps(self, item: _Item) -> Steps[_Item]:
        item_s, found, visited = self._visit(item)
        yield self.now_s + item_s
        self.elements += visited
        return found, visited

    def _visit(self, item: _Item) -> tuple[float, list[_Item], int]:
        """Return an item's duration, the items that it creates, and the elements that it visits."""
        costs = self._costs
        if item < 0:
            self.lstat_s -= item * costs.lstat_s
            return -item * costs.lstat_s, [], -item
        limit_s = ITEM_S if self.has_idle_workers() else MORE_S
        waiting, batches = [item], []
        item_s, visited = 0.0, 0
        while waiting and item_s < limit_s:
            directory = waiting.pop()
            files, below = self._tree.files[directory], self._tree.subdirectories[directory]
            in_place = files if files <= FEW_NAMES else 0
            if not in_place and files:
                whole, rest = divmod(files, FEW_NAMES)
                batches += [-FEW_NAMES] * whole + [-rest] * bool(rest)
            waiting.extend(below)
            lstat_s = (1 + in_place) * costs.lstat_s
            readdir_s = costs.readdir_s + (files + len(below)) * costs.entry_s
            self.lstat_s += lstat_s
            self.readdir_s += readdir_s
            item_s += lstat_s + readdir_s
            visited += 1 + in_place
        return item_s, waiting + batches, visited
