"""How many of their seeds the searches play: all, or as few as before a commit.

``PCIRCLE_SIM_ONE_IN=40``, as ``tox -e quick`` sets it, plays every fortieth.
"""

from __future__ import annotations

import os

ONE_IN = int(os.environ.get("PCIRCLE_SIM_ONE_IN", "1"))


def part_of(seeds: range) -> range:
    """Those of *seeds* that are played: the first, and every `ONE_IN`-th after it."""
    return seeds[::ONE_IN]
