"""Directories with more entries than fit in memory, whose parts several ranks have gathered."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, Run

__all__ = ["place"]

_FEW_BYTES = 1000
# With these limits a shelf holds a few dozen entries, instead of 16 MiB of them.
_SCRIPT = f"""
import runpy
import sys

from pcircle.ops.digest import RunStore

RunStore.__init__.__defaults__ = {_FEW_BYTES}, 0
sys.argv = sys.argv[1:]
runpy.run_module("pcircle.tools." + sys.argv[0], run_name="__main__")
"""


def _run(*words: str | bytes) -> bytes:
    """Return the output of a tool that keeps few entries in memory."""
    with Run(None, line=[sys.executable, "-c", _SCRIPT, *words]) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    return finished.out


@pytest.fixture(name="wide")
def _wide(place: bytes) -> bytes:
    """Create many files in one directory, and many directories in another."""
    files = trees.make_directory(place, b"wide", b"files")
    for number in range(8000):
        os.mknod(files + b"/file-%05d" % number)
    directories = trees.make_directory(place, b"wide", b"directories")
    for number in range(3000):
        os.mkdir(directories + b"/%d" % number)
    return place + b"/wide"


def _signature(tree: bytes) -> bytes:
    with Run(ONE, "-q", tree, program=("pcircle.tools.fsum",)) as run:
        return run.finish().out.split()[0]


def test_fsum_sends_the_shelf_of_a_rank(wide: bytes) -> None:
    signature = _signature(wide)
    for jobs in ("-j2", "-j4"):
        assert _run("fsum", "-q", jobs, wide).split()[0] == signature


def test_fcp_sends_the_shelf_of_a_rank(wide: bytes, place: bytes) -> None:
    signature = _signature(wide).decode()
    report = json.loads(_run("fcp", "-q", "-j4", "-s", "--json", "-", wide, place + b"/copy"))
    assert [entry["signature"] for entry in report["signatures"]] == [signature]
