"""Schedulers and places for the tests of asynchronous file operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pcircle.aio import Files

from ..fusefs.fixture import fuse
from ..tools.fcp.conftest import place

__all__ = ["fuse", "io", "place"]


@pytest.fixture
def io() -> Iterator[Files]:
    """Return a scheduler with three threads for each kind of operation."""
    with Files(threads=3) as io:
        yield io
