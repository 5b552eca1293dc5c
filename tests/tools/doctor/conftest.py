"""Fixtures that the tests of doctor share with the tests of fcp: places and file systems."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount, place

__all__ = ["fuse", "mount", "place"]
