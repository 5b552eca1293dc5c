"""Fixtures: those of the fcp tests, and an odd tree that no test changes."""

from __future__ import annotations

import os

import pytest

from tests.fusefs.fixture import fuse
from tests.tools.fcp.conftest import mount_tmpfs, place, shared_place, vast_place
from tests.tools.ffind.trees import build_tree

__all__ = ["fuse", "mount_tmpfs", "place", "shared_place", "vast_place"]


@pytest.fixture(scope="session")
def tree(shared_place: bytes) -> bytes:
    """Return a tree with everything that expressions can test; it is read only."""
    return build_tree(os.path.join(shared_place, b"search"))
