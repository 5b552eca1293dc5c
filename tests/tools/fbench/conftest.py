"""Places for fbench, like those of the fcp tests."""

from __future__ import annotations

from ...fusefs.fixture import fuse
from ..fcp.conftest import place

__all__ = ["fuse", "place"]
