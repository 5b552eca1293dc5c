"""Places for fbcast, as the tests of fcp have them."""

from __future__ import annotations

from ..fcp.conftest import odd_tree, place, shared_place
from ..fusefs.fixture import fuse

__all__ = ["fuse", "odd_tree", "place", "shared_place"]
