"""Search for broken promises of broadcasts: `python -m tests.tools.fbcast FIRST SEEDS`."""

from __future__ import annotations

import sys
from collections import Counter

from pcircle.core.errors import Defect
from tests.tools.fbcast.playing import play


def main(arguments: list[str]) -> int:
    """Play a number of seeds from the first on; print those that violate a promise."""
    first, seeds = map(int, arguments)
    ends: Counter[str] = Counter()
    broken = 0
    for seed in range(first, first + seeds):
        try:
            played = play(seed)
        except (AssertionError, Defect) as error:
            broken += 1
            print(f"{seed}: {error}", flush=True)
            continue
        conductor = played.conductor
        lost = 0 in played.dead or conductor is None
        ends["reader lost" if lost or conductor is None else str(conductor.decided)] += 1
    print(f"{seeds} seeds, {broken} broken; decided: {dict(ends)}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
