"""Ranks on several nodes, as far as the program knows: device numbers differ from node to node.

So a file is told by its inode there, plans hold elsewhere, too, and one wide directory is divided.
The ranks say that each is on a node of its own; they are processes of this one.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from tests.conftest import Run
from tests.frm.running import grow, paths

APART = """
import sys
from pcircle.tool import treetool
prepare = treetool.TreeProgram.prepare
if APART:
    treetool.TreeProgram.prepare = lambda self, nodes: prepare(self, range(len(nodes)))
from pcircle.{tool}.cli import main
sys.exit(main())
"""


def ran(run: Run, tool: str, *words: str | bytes, apart: bool = True) -> dict[str, Any]:
    """The report of a run by two ranks."""
    program = f"APART = {apart}\n" + APART.format(tool=tool)
    told = run([sys.executable, "-c", program, "-j2", "-q", "--json", "-", *words])
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("apart", [False, True])
def test_a_wide_directory_is_divided_among_nodes(run: Run, place: bytes, apart: bool) -> None:
    """And else not, as the kernel lets one at a time change it."""
    os.mkdir(place + b"/flat")
    for number in range(5000):
        os.mknod(place + b"/flat/%d" % number)
    report = ran(run, "frm", "-r", "--threads=1", place + b"/flat", apart=apart)
    assert report["counts"]["files"] == 5000
    assert (sum(rank["items"] for rank in report["ranks"]) > 1) is apart
    assert os.listdir(place) == []


def test_plans_are_carried_out(run: Run, place: bytes) -> None:
    """But for what has changed, and the plan itself."""
    grow(place, ["tree/d/a", "tree/d/b", "tree/e/f/g", "tree/x", "other/a.o", "other/b.c"])
    os.link(place + b"/tree/x", place + b"/tree/e/x")
    plan = place + b"/tree/e/plan"
    ran(run, "frm", "-r", "--plan", plan, place + b"/tree")
    assert ran(run, "frm", "--apply", plan)["counts"]["failed"] == 0
    assert paths(place + b"/tree") == [b"e", b"e/plan"]
    ran(run, "ffind", place + b"/other", "-name", "*.o", "-delete", "--plan", place + b"/plan")
    ran(run, "ffind", "--apply", place + b"/plan")
    assert paths(place + b"/other") == [b"b.c"]


def test_hard_linked_files_are_changed_once(run: Run, place: bytes) -> None:
    top = grow(place + b"/tree", [f"{number}/only" for number in range(50)])
    for number in range(20):
        first = grow(top, [f"{number}/first"]) + b"/%d/first" % number
        os.chmod(first, 0o721)
        for other in range(0, 50, 7):
            os.link(first, top + b"/%d/%d" % (other, number))
    undo = place + b"/undo"
    counts = ran(run, "fchmod", "-R", "--undo", undo, "--mode", "f:u=g,g=o d:755", top)["counts"]
    assert (counts["files"], counts["linked"]) == (50 + 20, 20 * 8)
    assert {os.stat(top + b"/%d/first" % number).st_mode & 0o777 for number in range(20)} == {0o211}
    ran(run, "fchmod", "--apply", undo)
    assert {os.stat(top + b"/%d/first" % number).st_mode & 0o777 for number in range(20)} == {0o721}
