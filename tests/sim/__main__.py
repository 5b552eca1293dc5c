"""Replay one case: `python -m tests.sim FAMILY SEED` prints all of its steps.

The first line is the case: everything that was drawn. Then each instruction of a rank (`>`) and
each arrival at one (`<`) follows with its virtual time, in the order of the run, and finally the
violation.
"""

from __future__ import annotations

import sys

from tests.sim.cases import FAMILIES, draw
from tests.sim.judge import Run


def main(arguments: list[str]) -> int:
    """Print the case and its trace; return 1 if it violates anything."""
    if len(arguments) < 2 or arguments[0] not in FAMILIES:
        print(__doc__, f"Families: {', '.join(FAMILIES)}", sep="\n\n", file=sys.stderr)
        return 2
    case = draw(arguments[0], int(arguments[1]))
    print(case)
    run = Run(case, trace=print)
    try:
        run.play().judge()
    except Exception:
        import traceback

        traceback.print_exc(file=sys.stdout)
        return 1
    print(f"{sum(run.record.processed)} items, {run.network.messages} messages: as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
