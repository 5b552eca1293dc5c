"""Places for fbcast, like those of the fcp tests."""

from __future__ import annotations

from ...fusefs.fixture import fuse
from ..fcp.conftest import odd_tree, place, shared_place

__all__ = ["fuse", "odd_tree", "place", "shared_place"]
