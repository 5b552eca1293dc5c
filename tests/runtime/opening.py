"""A tool that prints the size of the plan that rank 0 sends down the tree.

``python -m tests.runtime.opening TOOL ARGUMENT...``
"""

from __future__ import annotations

import sys

from pcircle.cli.startup import command
from pcircle.runtime import Program, job
from pcircle.runtime.signals import Signals
from pcircle.transport.contract import Delivery, LostRank, Transport

_usual = job._open


def opened(
    program: Program, transport: Transport, signals: Signals
) -> tuple[job._Opening, list[Delivery | LostRank]]:
    """Open the job as usual; rank 0 prints the size of the plan."""
    opening, early = _usual(program, transport, signals)
    if transport.rank == 0:
        print(f"plan of {len(opening.plan)} bytes", file=sys.stderr, flush=True)
    return opening, early


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    job._open = opened
    sys.exit(command(sys.argv[0])())
