"""Places for fbench, as the tests of fcp have them."""

from __future__ import annotations

from ..fcp.conftest import place
from ..fusefs.fixture import fuse

__all__ = ["fuse", "place"]
