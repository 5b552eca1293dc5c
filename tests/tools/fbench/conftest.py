"""Places for fbench, as the tests of fcp have them."""

from __future__ import annotations

from ...fusefs.fixture import fuse
from ..fcp.conftest import place

__all__ = ["fuse", "place"]
