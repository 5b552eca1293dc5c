"""Fixtures of the walk's tests: a place in memory, and file systems on demand."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount_tmpfs, place, shared_place

__all__ = ["fuse", "mount_tmpfs", "place", "shared_place"]
