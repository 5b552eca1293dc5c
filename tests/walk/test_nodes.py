"""Ranks on several nodes, as seen by the program: device numbers differ between nodes.

So files are identified by inode numbers, plans are valid on other nodes, and one wide directory is
divided. The ranks claim to be on separate nodes; they are processes of this one.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from tests.conftest import Run
from tests.tools.frm.running import grow, paths

APART = """
import sys
from pcircle.cli import program as treetool
prepare = treetool.TreeProgram.prepare
if APART:
    treetool.TreeProgram.prepare = lambda self, nodes: prepare(self, range(len(nodes)))
from pcircle.tools.{tool}.cli import main
sys.exit(main())
"""


def ran(
    run: Run, tool: str, *words: str | bytes, apart: bool = True, hook: str = ""
) -> dict[str, Any]:
    """Return the report of a run by two ranks."""
    program = f"{hook}\nAPART = {apart}\n" + APART.format(tool=tool)
    done = run([sys.executable, "-c", program, "-j2", "-q", "--json", "-", *words])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("apart", [False, True])
def test_a_wide_directory_is_divided_among_nodes(run: Run, place: bytes, apart: bool) -> None:
    """A directory is divided only among nodes, because a kernel serializes its changes."""
    os.mkdir(place + b"/flat")
    for number in range(5000):
        os.mknod(place + b"/flat/%d" % number)
    report = ran(run, "frm", "-r", "--threads=1", place + b"/flat", apart=apart)
    assert report["counts"]["files"] == 5000
    assert (sum(rank["items"] for rank in report["ranks"]) > 1) is apart
    assert os.listdir(place) == []


def test_plans_are_applied(run: Run, place: bytes) -> None:
    """Changed entries and the plan itself are left out."""
    grow(place, ["tree/d/a", "tree/d/b", "tree/e/f/g", "tree/x", "other/a.o", "other/b.c"])
    os.link(place + b"/tree/x", place + b"/tree/e/x")
    plan = place + b"/tree/e/plan"
    ran(run, "frm", "-r", "--plan", plan, place + b"/tree")
    assert ran(run, "frm", "--apply", plan)["counts"]["failed"] == 0
    assert paths(place + b"/tree") == [b"e", b"e/plan"]
    ran(run, "ffind", place + b"/other", "-name", "*.o", "-delete", "--plan", place + b"/plan")
    ran(run, "ffind", "--apply", place + b"/plan")
    assert paths(place + b"/other") == [b"b.c"]


# The first rank waits at each directory until another rank has started one, so that both have names
# of the same files.
TOGETHER = """
import os, time
first, others, opened, calls = os.getpid(), FLAG, os.open, []
def opening(name, flags, mode=0o777, *, dir_fd=None):
    if dir_fd is not None and not os.path.exists(others):
        if os.getpid() == first:
            time.sleep(0.01)
        elif len(calls) == 3:
            os.mknod(others)
        calls.append(name)
    return opened(name, flags, mode, dir_fd=dir_fd)
os.open = opening
"""


@pytest.mark.parametrize("apart", [False, True])
def test_hard_linked_files_are_changed_once(run: Run, place: bytes, apart: bool) -> None:
    """Either rank may find either name: changing a file twice would result in another mode."""
    top = grow(place + b"/tree", [f"{number}/only" for number in range(400)])
    for number in range(20):
        first = grow(top, [f"{number}/first"]) + b"/%d/first" % number
        os.chmod(first, 0o721)
        for other in range(0, 400, 7):
            os.link(first, top + b"/%d/%d" % (other, number))
    undo, flag = place + b"/undo", place + b"/flag"
    words = ("-R", "--threads=1", "--undo", undo, "--mode", "f:u=g,g=o d:755", top)
    hook = f"FLAG = {flag!r}\n{TOGETHER}"
    report = ran(run, "fchmod", *words, apart=apart, hook=hook)
    counts = report["counts"]
    assert (counts["files"], counts["linked"]) == (400 + 20, 20 * 58)
    files = [top + b"/%d/first" % number for number in range(20)]
    assert {os.stat(file).st_mode & 0o777 for file in files} == {0o211}
    ran(run, "fchmod", "--apply", undo, apart=apart)
    assert {os.stat(file).st_mode & 0o777 for file in files} == {0o721}
