"""Calls of the function, with the result of --json; and interruptions."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pcircle import remove
from pcircle.core.errors import StoppedEarly, UsageError
from tests.conftest import Run
from tests.fusefs.fixture import Mount
from tests.fusefs.mounting import Mounted
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, TWO
from tests.tools.fcp.running import Run as Started

from .running import FRM, every_launcher, grow, paths, run_frm

TREE = [f"tree/{number % 7}/{number}/{name}" for number in range(300) for name in "abc"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_function(place: bytes, capfd: pytest.CaptureFixture[str], jobs: int) -> None:
    grow(place, [*TREE, "tree/x.keep"])
    result = remove(place + b"/tree", recursive=True, exclude=["*.keep", "x"], jobs=jobs)
    assert (result.tool, result.exit_code, len(result.ranks)) == ("frm", 0, jobs)
    assert (result.counts["files"], result.counts["kept"]) == (900, 1)
    assert paths(place) == [b"tree", b"tree/x.keep"]
    assert capfd.readouterr() == ("", "")


def test_failed_removals_are_in_the_result(place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    grow(mounted.backing, ["tree/a", "tree/b"])
    mounted.rules(Rule(("unlink",), "tree/a", errno="EIO"))
    result = remove(mounted.path + b"/tree", recursive=True, jobs=1)
    assert (result.exit_code, result.failures[0].error) == (1, "EIO")


def test_a_call_that_is_refused_raises(place: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    grow(place, TREE)
    with pytest.raises(UsageError, match="is a directory: add recursive=True"):
        remove(place + b"/tree", jobs=1)
    plan = os.fsdecode(place + b"/plan")
    remove(place + b"/tree", recursive=True, plan=plan, jobs=1)
    with pytest.raises(StoppedEarly, match="--max-delete 5"):
        remove(apply=plan, max_delete=5, jobs=1)
    with pytest.raises(StoppedEarly, match="--max-delete 5") as caught:
        remove(place + b"/tree", recursive=True, max_delete=5, jobs=1)
    assert caught.value.report.exit_code == 4
    assert len(paths(place + b"/tree")) == 7 + 300 + 900
    assert capfd.readouterr() == ("", "")


CALLER = """
import sys, threading
from pcircle import remove
if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    result = remove(sys.argv[1], recursive=True, jobs=2)
    print(result.exit_code, result.counts["files"], len(result.ranks))
"""


def test_in_a_process_with_threads(run: Run, place: bytes, tmp_path: Path) -> None:
    """The other ranks are new interpreters then."""
    assert threading.active_count() >= 1
    grow(place, TREE)
    (tmp_path / "caller.py").write_text(CALLER)
    done = run([sys.executable, tmp_path / "caller.py", place + b"/tree"])
    assert done.stdout.split() == [b"0", b"900", b"2"], done.stderr
    assert paths(place) == []


@every_launcher
def test_each_action_as_a_line(place: bytes, tmp_path: Path, launcher: object) -> None:
    grow(place, TREE)
    os.rename(place + b"/tree/0/0/a", place + b"/tree/0/0/\xff")
    expected = set(paths(place + b"/tree")) | {b"."}
    lines, listed = str(tmp_path / "lines"), str(tmp_path / "listed")
    options = ["-q", "-r", "--json-lines", lines, "--list-out", listed, "-0"]
    assert run_frm(launcher, *options, place + b"/tree").code == 0  # type: ignore[arg-type]
    actions = [json.loads(line) for line in Path(lines).read_bytes().splitlines()]
    assert {(action["tool"], action["action"], action["state"]) for action in actions} == {
        ("frm", "delete", "done")
    }
    assert len(actions) == len(expected)
    assert set(Path(listed).read_bytes().split(b"\0")[:-1]) == expected


@contextmanager
def _started(mounted: Mounted) -> Iterator[Started]:
    """Start a removal that blocks in its middle until the file system continues."""
    grow(mounted.backing, TREE)
    mounted.rules(Rule(("unlink",), "tree/*", skip=50, delay_s=3600))
    with Started(TWO, "-r", mounted.path + b"/tree", program=FRM) as started:
        while not mounted.state().delayed:
            time.sleep(0.01)
        yield started


def _check_repeated_removal(mounted: Mounted) -> None:
    """Check that entries are left, and that the same command removes them."""
    assert paths(mounted.backing) != []
    assert run_frm(TWO, "-r", mounted.path + b"/tree").code == 0
    assert paths(mounted.backing) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_removal_can_be_repeated(
    place: bytes, fuse: Mount, number: signal.Signals
) -> None:
    """It prints how many entries remain at least, and the command that removes them."""
    mounted = fuse()
    with _started(mounted) as started:
        started.signal(number)
        # The remaining work takes longer than a busy machine needs to deliver the signal.
        mounted.rules(Rule(("unlink",), "tree/*", delay_s=0.05))
        mounted.release()
        ended = started.finish()
    assert ended.code == 128 + number
    assert "entries are left\n" in ended.said
    assert "frm: to try again, run: frm -j 2 -r " in ended.said
    _check_repeated_removal(mounted)


def test_a_killed_removal_can_be_repeated(place: bytes, fuse: Mount) -> None:
    """All processes are killed in its middle: the same command removes the remaining entries."""
    mounted = fuse()
    with _started(mounted) as started:
        started.kill()
        mounted.rules()
        mounted.release()
        assert started.wait_until_gone() == []
    _check_repeated_removal(mounted)


def test_a_time_limit_stops_cleanly(place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    grow(mounted.backing, TREE)
    mounted.rules(Rule(("unlink",), "tree/*", delay_s=0.05))
    done = run_frm(ONE, "-r", "--threads", "1", "--stop-after", "0.5", mounted.path + b"/tree")
    assert done.code == 4
    assert "frm: time limit reached (--stop-after 0.5" in done.said
    mounted.rules()
    assert run_frm(ONE, "-r", mounted.path + b"/tree").code == 0


def test_operations_per_second_are_limited(place: bytes) -> None:
    """Two hundred files and their directories at a thousand a second take a measurable time."""
    grow(place, [f"tree/{number}/x" for number in range(200)])
    began_s = time.monotonic()
    assert run_frm(ONE, "-q", "-r", "--ops-limit", "1000", place + b"/tree").code == 0
    assert time.monotonic() - began_s >= (400 - 100) / 1000


def test_a_limited_removal_is_steady_and_ends_when_it_is_stopped(place: bytes) -> None:
    """A large directory is not removed in bursts, and stopping does not permit what is not due."""
    grow(place, [f"tree/{number}" for number in range(600)])
    began_s = time.monotonic()
    done = run_frm(ONE, "-r", "--ops-limit", "40", "--stop-after", "0.5", place + b"/tree")
    assert done.code == 4
    removed = 600 - len(os.listdir(place + b"/tree"))
    assert 0 < removed <= 40 * (time.monotonic() - began_s) + 8


def test_bytes_are_freed_with_the_last_name(place: bytes) -> None:
    """A file that has another name outside is not freed."""
    top = grow(place + b"/tree", ["a", "b", "d/e"])
    os.link(top + b"/a", top + b"/d/a")
    os.link(top + b"/b", place + b"/outside")
    disk = os.stat(top + b"/a").st_blocks * 512
    result = remove(top, recursive=True, bytes=True, jobs=1)
    assert result.counts["named_bytes"] == 4 * disk
    assert result.counts["freed_bytes"] == 2 * disk
