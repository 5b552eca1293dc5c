"""Places for fbcast, as the tests of fcp have them."""

from __future__ import annotations

from ...fusefs.fixture import fuse
from ..fcp.conftest import odd_tree, place, shared_place

__all__ = ["fuse", "odd_tree", "place", "shared_place"]
