"""A user who swaps entries for links while root removes them loses only own files; see `attacks`.

There are some thousand swaps here, a million in a soak, and any number with ``tox -e attack-frm``.
The same rounds detect a remover that follows links, which validates them.
"""

from __future__ import annotations

import re
import sys

import pytest

from tests.conftest import ROOT, SOAK, Run
from tests.programs import needs_mount_namespace

pytestmark = needs_mount_namespace
ATTACKS = [sys.executable, "-m", "tests.tools.frm.attacks"]
SWAPS = 50_000 if SOAK else 5_000
PARTS = range(20) if SOAK else range(1)  # a million, but no test of many minutes


@pytest.mark.parametrize("part", PARTS)
def test_nothing_escapes(run: Run, part: int) -> None:
    seed = str(1000 * part)
    done = run([*ATTACKS, "--swaps", str(SWAPS), "--seed", seed], cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert re.search(rb"\d+ rounds, \d{4,} swaps, 0 escapes", done.stdout)


def test_a_remover_that_follows_links_is_caught(run: Run) -> None:
    done = run([*ATTACKS, "--swaps", "3000000", "--following"], cwd=ROOT)
    assert done.returncode == 1
    assert b"/victim" in done.stdout
