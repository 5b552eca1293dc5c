"""Fixtures: places and file systems on demand, those of the fcp tests."""

from __future__ import annotations

from tests.fcp.conftest import mount, place
from tests.fusefs.fixture import fuse

__all__ = ["fuse", "mount", "place"]
