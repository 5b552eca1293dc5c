"""Names of more than 255 bytes, which NTFS and vfat have, are found in directories of any size."""

from __future__ import annotations

import os
import time

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.folding import LONG
from tests.tools.fcp.running import Launcher, Run

NAMES = (b"before", LONG + b"of all", b"last")
FOLDERS = 12


def names_below(path: bytes) -> list[bytes]:
    return sorted(
        os.path.join(a, name)[len(path) :] for a, _, names in os.walk(path) for name in names
    )


TOOLS = ["fcp", "fchmod", "fdiff", "ffind", "fls", "fmirror", "fprof", "frm", "fsum"]


@pytest.mark.parametrize("tool", TOOLS)
def test_long_names_are_found(tool: str, fuse: Mount, place: bytes) -> None:
    mount = fuse(folding="long")
    tree = mount.path + b"/tree"
    for number in range(FOLDERS):
        os.makedirs(tree + b"/%d" % number)
        for name in NAMES:
            with open(tree + b"/%d/" % number + name, "xb") as file:
                file.write(name)
    with open(tree + b"/" + LONG, "xb") as file:
        file.write(LONG)
    wanted = names_below(tree)
    assert len(wanted) == FOLDERS * len(NAMES) + 1
    copied = mount.path + b"/copy"
    all_words: dict[str, list[bytes]] = {
        "fchmod": [b"-R", b"600", tree],
        "fcp": [tree, copied],
        "fdiff": [tree, tree],
        "ffind": [tree, b"-type", b"f", b"-count"],
        "fls": [b"-R", tree],
        "fmirror": [b"--delete", tree, copied],
        "fprof": [tree],
        "frm": [b"-r", tree],
        "fsum": [tree],
    }
    if tool == "fmirror":
        os.mkdir(copied)
    with Run(Launcher(jobs=1), *all_words[tool], program=(f"pcircle.tools.{tool}",)) as started:
        done = started.finish()
    assert done.code == 0, done.said
    if tool in ("fcp", "fmirror"):
        assert names_below(copied) == wanted
    elif tool == "ffind":
        assert done.out.split() == [b"%d" % len(wanted)]
    elif tool == "fls":
        assert done.out.count(LONG) == FOLDERS + 1
        assert done.out.count(b"last") == FOLDERS
    elif tool == "fsum":
        assert done.out.startswith(b"pcsig1:")
    else:
        assert os.path.exists(tree) == (tool != "frm")


def test_an_extraneous_long_name_is_removed(fuse: Mount) -> None:
    """Counts by record size or digests would overlook the name."""
    mount = fuse(folding="long")
    source, target = mount.path + b"/a", mount.path + b"/b"
    for top, names in ((source, NAMES[::2]), (target, NAMES)):
        os.mkdir(top)
        for name in names:
            with open(os.path.join(top, name), "xb") as file:
                file.write(b"content")
            os.utime(os.path.join(top, name), ns=(1, 1))
    # A directory that changed just before a run may also have changed during the run.
    while time.time() - os.stat(source).st_ctime < 3:
        time.sleep(0.1)
    given: tuple[list[str], ...] = ([], ["--delete-excluded", "--exclude=before"])
    for more in given:
        with Run(
            Launcher(jobs=1), "--delete", *more, source, target, program=("pcircle.tools.fmirror",)
        ) as started:
            done = started.finish()
        assert done.code == 0, done.said
        assert names_below(target) == sorted(b"/" + name for name in NAMES[(2 if more else 0) :: 2])
