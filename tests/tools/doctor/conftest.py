"""Fixtures of the fcp tests: places and file systems on demand."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount, place

__all__ = ["fuse", "mount", "place"]
