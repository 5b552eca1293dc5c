"""Fixtures: places and file systems on demand, those of the fcp tests."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount, place

__all__ = ["fuse", "mount", "place"]
