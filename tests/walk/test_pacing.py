"""With `--polite` a tool has no more requests in flight than a file system serves without delay.

The file system counts the waiting requests, where they queue for one server, and where each has its
own server.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, Run
from tests.tools.frm.running import grow, paths

ALL = ("lookup", "getattr", "setattr", "unlink", "rmdir", "opendir", "readdir", "readdirplus")
TREE = [f"tree/{number % 12}/{number}" for number in range(360)]
TOOLS = {
    "frm": ["-q", "-r"],
    "ffind": ["-size", "+0", "-fprint", "/dev/null"],
    "fls": ["-lR"],
    "fchmod": ["-q", "-R", "u-r"],
}
every_tool = pytest.mark.parametrize("tool", TOOLS)


def _run(tool: str, top: bytes, *options: str) -> None:
    words: list[str | bytes]
    if tool == "ffind":
        words = [top, *TOOLS[tool], *options]
    elif tool == "fchmod":
        words = [*TOOLS[tool][:-1], *options, TOOLS[tool][-1], top]
    else:
        words = [*TOOLS[tool], *options, top]
    with Run(ONE, *words, program=(f"pcircle.tools.{tool}",)) as started:
        ended = started.finish()
    assert ended.code == 0, ended.said


@every_tool
def test_no_queue_is_built_up(place: bytes, fuse: Mount, tool: str) -> None:
    """A single server answers in turn, so few requests wait; all work is done."""
    mounted = fuse()
    grow(mounted.backing, TREE)
    mounted.rules(Rule(ALL, servers=1, busy_s=0.0005))
    _run(tool, mounted.path + b"/tree", "--polite=100%")
    assert 0 < mounted.state().max_delayed <= 4
    mounted.rules()
    if tool == "frm":
        assert paths(mounted.backing) == []
    elif tool == "fchmod":
        modes = {
            os.lstat(os.path.join(mounted.backing, path.encode())).st_mode & 0o400 for path in TREE
        }
        assert modes == {0}


@every_tool
def test_parallelism_without_delay_is_used(place: bytes, fuse: Mount, tool: str) -> None:
    """If operations stay fast under parallel load, more than one is in flight."""
    mounted = fuse()
    grow(mounted.backing, TREE)
    mounted.rules(Rule(ALL, delay_s=0.002))
    _run(tool, mounted.path + b"/tree", "--polite=100")
    assert mounted.state().max_delayed >= 2


@pytest.mark.parametrize("tool", ["ffind", "fls", "fchmod"])
def test_without_the_option_there_is_a_queue(place: bytes, fuse: Mount, tool: str) -> None:
    """This validates the tests above."""
    mounted = fuse()
    grow(mounted.backing, TREE)
    mounted.rules(Rule(ALL, servers=1, busy_s=0.0005))
    _run(tool, mounted.path + b"/tree", "--threads", "16")
    assert mounted.state().max_delayed > 4


@pytest.mark.parametrize("value", ["0", "101", "-1", "x", "50%%", "nan"])
def test_a_level_is_a_percentage(place: bytes, value: str) -> None:
    with Run(ONE, "-r", f"--polite={value}", place, program=("pcircle.tools.frm",)) as started:
        ended = started.finish()
    assert ended.code == 2
    assert "--polite: invalid value" in ended.said


@pytest.mark.parametrize("tool", ["fcp", "fmirror"])
def test_a_polite_copy_works_one_at_a_time_and_rests(place: bytes, fuse: Mount, tool: str) -> None:
    """The delays of all files add up, and rests take three times as long."""
    files, delay_s = 40, 0.005
    mounted = fuse()
    grow(mounted.backing, TREE[:files])
    mounted.rules(Rule(("open",), delay_s=delay_s))
    report = place + b"/report"
    words: list[str | bytes] = [
        "-q",
        "--polite=25",
        "--json",
        report,
        mounted.path + b"/tree",
        place + b"/copy",
    ]
    with Run(ONE, *words, program=(f"pcircle.tools.{tool}",)) as started:
        ended = started.finish()
    assert ended.code == 0, ended.said
    with open(report, "rb") as file:
        document = json.load(file)
    assert document["files"] == files
    assert document["elapsed_s"] > 4 * 0.9 * files * delay_s
    assert mounted.state().max_delayed == 1
