"""Fixtures: the file system, and the directory of the fcp tests on it."""

from __future__ import annotations

from ..tools.fcp.conftest import place
from .fixture import fuse

__all__ = ["fuse", "place"]
