"""The seeds that the searches play: in a soak a whole range, else every second one.

``PCIRCLE_SIM_ONE_IN=40`` plays every fortieth, as ``tox`` and ``tox -e quick`` do. Where cases are
drawn (`tests.drawing`) each run has another range, so that coverage accumulates.
"""

from __future__ import annotations

import os

from tests import drawing
from tests.conftest import SOAK

ONE_IN = int(os.environ.get("PCIRCLE_SIM_ONE_IN", "1" if SOAK else "2"))
_APART = 100_000  # more than any range has


def part_of(steps: range) -> range:
    """Return the *steps* to try: the first, and every `ONE_IN`-th after it."""
    return steps[::ONE_IN]


def played(seeds: range) -> range:
    """Return the *seeds* to play, or as many other ones where cases are drawn."""
    first = 0 if drawing.budget_s() is None else _APART * int(os.environ["PCIRCLE_TESTS_SEED"])
    return part_of(range(first + seeds.start, first + seeds.stop))
