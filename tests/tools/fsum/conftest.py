"""Fixtures of fsum's tests: a place to work in, and file systems that misbehave."""

from __future__ import annotations

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import odd_tree, place, shared_place, vast_place

__all__ = ["fuse", "odd_tree", "place", "shared_place", "vast_place"]
