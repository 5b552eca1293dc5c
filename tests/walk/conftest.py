"""Fixtures of the walk's tests: a place in memory."""

from __future__ import annotations

from tests.fcp.conftest import place, shared_place

__all__ = ["place", "shared_place"]
