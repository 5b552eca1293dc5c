"""A user who swaps entries for links while root mirrors gains nothing; see `attacks`.

There are some thousand swaps here, a million in a soak, and any number with ``tox -e
attack-fmirror``. The same rounds detect a mirror that follows links, which validates them.
"""

from __future__ import annotations

import re
import sys

from tests.conftest import ROOT, SOAK, Run
from tests.programs import needs_mount_namespace

pytestmark = needs_mount_namespace
ATTACKS = [sys.executable, "-m", "tests.tools.fmirror.attacks"]
SWAPS = 1_000_000 if SOAK else 50_000


def test_nothing_escapes(run: Run) -> None:
    done = run([*ATTACKS, "--swaps", str(SWAPS)], cwd=ROOT, deadline_s=SWAPS / 250)
    assert done.returncode == 0, (done.stdout[-9000:], done.stderr[-9000:])
    assert re.search(rb"\d+ rounds, \d{5,} swaps, 0 escapes", done.stdout)


def test_a_mirror_that_follows_links_is_caught(run: Run) -> None:
    done = run([*ATTACKS, "--swaps", "3000000", "--following"], cwd=ROOT)
    assert done.returncode == 1
    assert b"/victim" in done.stdout or b"secret" in done.stdout
