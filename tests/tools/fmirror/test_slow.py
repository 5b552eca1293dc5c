"""With slow operations, attributes of many files are read in parallel, and all are compared."""

from __future__ import annotations

import os

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE
from tests.tools.fcp.trees import write_file

from .running import mirrored

_FILES = 60


def _sides(backing: bytes) -> None:
    """Create two trees that differ only in an attribute of every seventh file."""
    for side in (b"/a", b"/b"):
        os.makedirs(backing + side)
        for number in range(_FILES):
            path = write_file(backing + side + b"/%d" % number, b"content")
            value = b"only in " + side if number % 7 == 0 else b"the same"
            try:
                os.setxattr(path, "user.kept", value)
            except OSError as error:
                pytest.skip(f"attributes cannot be set here: {error}")
            os.utime(path, (1, 1))


@pytest.mark.parametrize(("words", "least", "most"), [((), 8, 999), (("--threads=1",), 1, 1)])
def test_attributes_are_read_in_parallel(
    fuse: Mount, words: tuple[str, ...], least: int, most: int
) -> None:
    """The number of threads is the requested one; differences are still updated."""
    mounted = fuse()
    _sides(mounted.backing)
    # Below A and B alone: every five seconds, which a busy machine takes, the run also renews its
    # lock, which is not a look-up of a thread that `--threads` counts.
    mounted.rules(Rule(("listxattr", "getxattr", "lookup"), "[ab]/*", delay_s=0.002))
    mirrored(ONE, *words, mounted.path + b"/a", mounted.path + b"/b")
    assert least <= mounted.state().max_delayed <= most
    for number in range(_FILES):
        values = {
            os.getxattr(mounted.backing + b"/%b/%d" % (side, number), "user.kept")
            for side in (b"a", b"b")
        }
        assert len(values) == 1
