"""Both backends, for the tests that hold for either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pcircle.aio import Files
from pcircle.aio.scheduler import Backend
from pcircle.aio.uring import missing

from ..fcp.conftest import place
from ..fusefs.fixture import fuse

__all__ = ["backend", "fuse", "io", "place", "uring"]


@pytest.fixture(params=["threads", "uring"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The name of each backend that can be used here."""
    name: Backend = request.param
    if name == "uring":
        request.getfixturevalue("uring")
    return name


@pytest.fixture
def uring() -> None:
    """Skips the test where the kernel, or a filter, or a missing package, refuses io_uring."""
    if missing():
        pytest.skip(missing())


@pytest.fixture
def io(backend: Backend) -> Iterator[Files]:
    """Three operations of each kind at once."""
    with Files(threads=3, backend=backend) as io:
        yield io
