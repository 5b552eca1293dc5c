"""Fixtures: the file system, and the place of the fcp tests where it lies."""

from __future__ import annotations

from ..tools.fcp.conftest import place
from .fixture import fuse

__all__ = ["fuse", "place"]
