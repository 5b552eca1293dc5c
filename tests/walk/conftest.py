"""Fixtures of the walk's tests: a place in memory, and file systems on demand."""

from __future__ import annotations

from tests.fcp.conftest import place, shared_place
from tests.fusefs.fixture import fuse

__all__ = ["fuse", "place", "shared_place"]
