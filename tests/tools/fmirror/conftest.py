"""Fixtures of the fcp tests, which build and remove trees, and file systems on demand."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount, mount_tmpfs, place, vast_place

__all__ = ["fuse", "mount", "mount_tmpfs", "place", "vast_place"]
