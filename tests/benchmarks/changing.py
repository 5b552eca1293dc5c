"""``python -m tests.benchmarks.changing DIR``: changes by fchmod and fchown, chmod -R and chown -R.

All commands work on the same tree in turns, and each reverts the change of the previous one, so
each run changes every entry. The start-up of each tool has a separate table, as in `removing`,
and so has a run without changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import cycle

from . import datasets, measure
from .turns import START, Costs, Place, Tree, begun, show, trees

_MODES = ["go=", "go=rX"]
_OWNERS = ["1", "2"]


def rows(ours: str, peer: str, jobs: Sequence[int]) -> dict[str, list[str]]:
    """Return the commands by name; the new mode or owner and the tree are appended."""
    module = "pcircle.tools.fchmod" + ("" if ours == "fchmod" else f".{ours}")
    command = [sys.executable, "-m", module, "-q", "-R"]
    found = {f"{peer} -R": [peer, "-R"]}
    return found | {f"{ours} -j {number}": [*command, "-j", str(number)] for number in jobs}


def measured(
    tree: Tree, commands: dict[str, list[str]], words: Sequence[str], place: Place
) -> Costs:
    """Return the costs of each command in each round."""
    turns = cycle(words)
    tree.build(place.top)

    def run(name: str) -> measure.Cost:
        return place.run(name, [*commands[name], next(turns), place.top])

    costs = place.compare(tree.name, list(commands), run)
    datasets.remove(place.top)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all benchmarks; return the exit code."""
    with begun("changing", arguments, 600_000, "ours") as (place, files, jobs):
        chmod, chown = rows("fchmod", "chmod", jobs), rows("fchown", "chown", jobs)
        many = trees(files)[0]
        cases = [
            *((tree, chmod, _MODES) for tree in (START, *trees(files))),
            (many._replace(name="nothing to change"), chmod, ["a+r"]),
            (many._replace(name="owners"), chown, _OWNERS),
        ]
        for tree, commands, words in cases:
            show(f"{tree.name}: {tree.files:,} files", measured(tree, commands, words, place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
