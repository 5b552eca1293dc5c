"""How many of their seeds the searches play: all in a soak, else every second.

``PCIRCLE_SIM_ONE_IN=40``, as ``tox -e quick`` sets it, plays every fortieth.
"""

from __future__ import annotations

import os

from tests.conftest import SOAK

ONE_IN = int(os.environ.get("PCIRCLE_SIM_ONE_IN", "1" if SOAK else "2"))


def part_of(seeds: range) -> range:
    """Those of *seeds* that are played: the first, and every `ONE_IN`-th after it."""
    return seeds[::ONE_IN]
