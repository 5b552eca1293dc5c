"""Fixtures that the tests of fls share with the tests of fcp: trees and file systems."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount, mount_tmpfs, place, vast_place

__all__ = ["fuse", "mount", "mount_tmpfs", "place", "vast_place"]
