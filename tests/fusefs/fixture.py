"""The fixture: file systems on demand, unmounted at the end of the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .mounting import Mounted, missing, mounted
from .passing import Caching

Mount = Callable[..., Mounted]


@pytest.fixture
def fuse(place: bytes) -> Iterator[Mount]:
    """Return a function that mounts an empty FUSE file system.

    Its arguments are those of `Caching`. The directory behind it is in `place`. Skips the test,
    with the reason, where a mount is impossible.
    """
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:

        def mount(**caching: bool | float | str) -> Mounted:
            number = len(os.listdir(place))
            folder = os.path.join(place, b"fuse %d" % number)
            backing = os.path.join(place, b"backing %d" % number)
            os.mkdir(folder)
            os.mkdir(backing)
            try:
                found = stack.enter_context(
                    mounted(folder, backing, Caching(**caching))  # type: ignore[arg-type]
                )
            except PermissionError as error:
                pytest.skip(f"mounting is not allowed here: {error}")
            return found

        yield mount
