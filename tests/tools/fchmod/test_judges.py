"""On odd trees the tools have the same effect as chmod -R, chown -R and setfacl -R.

Each launcher is tested.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess

import pytest

from tests.tools.fcp.access import drawn_seed
from tests.tools.fcp.running import Launcher

from .running import changed, differences, every_launcher, pair

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may set all owners and modes"),
    pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed"),
]
# Modes that are idempotent: chmod -R changes a hard-linked file under each of its names.
MODES = ("g+rwX", "u=rwx,go=rX", "2750", "00755", "a-x+X", "ug+s,o+t", "o=u", "-w", "=rw", "u-s,+X")
OWNERS = ("{}", "{}:{}", ":{}", "+{}:+{}")
SPECS = (
    "u:1001:rwX",
    "g:2002:r-x,o::-",
    "u:1001:0,m::rwx",
    "u:1001:rw,d:u:1001:rwx",
    "u::rwX,g::r",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    return pair(os.fsencode(tmp_path_factory.mktemp("judges")))


@every_launcher
def test_modes_and_owners_and_lists(both: tuple[bytes, bytes], launcher: Launcher) -> None:
    """Changes are made in sequence: each run starts with the result of the previous one."""
    ours, theirs = both
    rng = random.Random(f"{drawn_seed()} {launcher}")
    few = launcher.ranks or launcher.size == 4
    for mode in rng.sample(MODES, 2 if few else 4):
        changed("fchmod", launcher, "-R", "--", mode, ours, umask=0o027)
        subprocess.run(["chmod", "-R", "--", mode, theirs], check=True, umask=0o027)
        assert differences(ours, theirs) == [], mode
    for form in rng.sample(OWNERS, 1 if few else 3):
        # Owners that no entry of the tree has: chown clears set-id bits even of unchanged entries.
        owner = form.format(*rng.sample(range(3000, 1 << 30), 2))
        changed("fchown", launcher, "-R", owner, ours)
        subprocess.run(["chown", "-R", owner, theirs], check=True)
        assert differences(ours, theirs) == [], owner
    for spec in rng.sample(SPECS, 1 if few else 2):
        changed("fchmod", launcher, "-R", "--acl", spec, ours)
        subprocess.run(["setfacl", "-R", "-P", "-m", spec, theirs], check=True)
        assert differences(ours, theirs) == [], spec
