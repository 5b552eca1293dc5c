"""--op-timeout on a file system that hangs: entries are named, and the tool continues.

The command ends, even though the hanging calls cannot: a real FUSE file system delays its replies.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pcircle
from tests.conftest import Run as Script
from tests.fusefs.fixture import Mount
from tests.fusefs.mounting import Mounted
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import FCP, Finished, Launcher, Run, command, launchers

FOREVER_S = 3600.0
LIMIT = "2"
REASON = rf"no response within {LIMIT} s"
TOOLS = {
    "fprof": ["--by", "ext"],
    "ffind": [],
    "fls": ["-lR"],
    "fsum": [],
    "fdiff": [],
}
every_tool = pytest.mark.parametrize("tool", TOOLS)
some_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2]), ids=str)


@pytest.fixture
def mount(fuse: Mount) -> Iterator[Mounted]:
    """Mount a file system with a tree; tests make some calls hang; all are answered at the end."""
    found = fuse()
    for folder in (b"a", b"hung", b"z/deep"):
        os.makedirs(found.backing + b"/t/" + folder)
        for name in (b"one", b"two", b"stuck"):
            with open(os.path.join(found.backing, b"t", folder, name), "wb") as file:
                file.write(name * 1000)
    yield found
    found.release()


def run(tool: str, launcher: Launcher | None, mount: Mounted, *more: str | bytes) -> Finished:
    """Run a tool on the tree with a limit; `finish` checks that it ends."""
    paths = [mount.path + b"/t", mount.backing + b"/t"][: 2 if tool == "fdiff" else 1]
    arguments = [*TOOLS[tool], "--op-timeout", LIMIT, "--progress=never", *more, *paths]
    with Run(launcher, *arguments, program=(f"pcircle.tools.{tool}",)) as started:
        return started.finish()


# A thread starts before the ranks do.
THREADED = """
import sys, threading
from pcircle.cli import program
begin = program._run
def late(*arguments):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return begin(*arguments)
program._run = late
from pcircle.tools.ffind.cli import main
sys.exit(main())
"""

# The command of the first rank ends at once, those of the other ranks later.
LATE = """
import sys, time
from pcircle.runtime import supervised
say_code, ranks = supervised._say_code, []
def late(fd, code):
    time.sleep(1.0 if ranks[0] else 0.0)
    say_code(fd, code)
supervised._say_code = late
from pcircle.transport import _mpi
join = _mpi._join
def noted(party):
    transport = join(party)
    ranks.append(transport.rank)
    return transport
_mpi._join = noted
from pcircle.tools.ffind.cli import main
sys.exit(main())
"""


@some_launchers
@every_tool
def test_a_hanging_directory_is_named(tool: str, launcher: Launcher, mount: Mounted) -> None:
    mount.rules(Rule(("opendir", "readdir", "readdirplus"), "t/hung", delay_s=FOREVER_S))
    done = run(tool, launcher, mount)
    assert done.code == 1, done.said
    named = [line for line in done.said.splitlines() if re.search(REASON, line)]
    assert len(named) == 1, done.said
    assert "t/hung'" in named[0]
    if not launcher.ranks:  # a launcher may not forward late output
        assert re.search(r"process \d+ remains until the file system responds", done.said)
    if tool in ("ffind", "fls"):
        assert done.out.count(b"two") == 2


@pytest.mark.mpi
def test_ranks_that_end_late_are_not_killed(place: bytes) -> None:
    """A launcher kills all ranks when one of them exits without finalizing MPI."""
    words = ("--op-timeout=9", "--progress=never", place)
    line = command(Launcher(ranks=3), words)
    at = line.index("-m")
    line[at : at + 1 + len(FCP)] = ["-c", LATE]
    with Run(None, line=line) as started:
        done = started.finish()
    assert (done.code, done.out.strip(), done.said) == (0, place, "")


@every_tool
def test_a_hanging_look_up_is_named(tool: str, mount: Mounted) -> None:
    mount.rules(Rule(("lookup", "getattr"), "t/hung/stuck", delay_s=FOREVER_S))
    newer = ["-newermt", "1990-01-01"] if tool == "ffind" else []  # else it is not looked up
    done = run(tool, Launcher(jobs=2), mount, *newer)
    assert done.code == 1, done.said
    named = [line for line in done.said.splitlines() if re.search(REASON, line)]
    assert len(named) == 1, done.said
    assert "t/hung/stuck'" in named[0]
    if tool in ("ffind", "fls"):
        assert done.out.count(b"two") == 3


def test_a_hanging_access_check_is_named(mount: Mounted) -> None:
    mount.rules(Rule(("lookup", "getattr"), "t/hung/stuck", delay_s=FOREVER_S))
    done = run("ffind", Launcher(jobs=2), mount, "-readable", "-printf", "%f\\n")
    assert done.code == 1, done.said
    named = [line for line in done.said.splitlines() if re.search(REASON, line)]
    assert len(named) == 1, done.said
    assert "t/hung/stuck'" in named[0]
    assert done.out.count(b"two") == 3


@pytest.mark.parametrize("tool", ["fsum", "fdiff"])
def test_hanging_content_is_named(tool: str, mount: Mounted) -> None:
    mount.rules(Rule(("read",), "t/hung/stuck", delay_s=FOREVER_S))
    done = run(tool, Launcher(jobs=2), mount, *(["-c"] if tool == "fdiff" else []))
    assert done.code == 1, done.said
    assert re.search(f"t/hung/stuck'.*{REASON}", done.said)


def test_a_hanging_path_is_a_failure(mount: Mounted) -> None:
    mount.rules(Rule(("lookup", "getattr"), "t", delay_s=FOREVER_S))
    done = run("fprof", Launcher(jobs=2), mount)
    assert done.code == 1, done.said
    assert re.search(f"cannot profile '.*/t': {REASON}", done.said)


@pytest.mark.parametrize("tool", TOOLS)
def test_slow_answers_within_the_limit_change_nothing(tool: str, mount: Mounted) -> None:
    """Slow reads of large files are complete; they go through another thread."""
    with open(mount.backing + b"/t/large", "wb") as file:
        file.write(os.urandom(9_000_001))
    limited = run(tool, Launcher(jobs=2), mount)
    arguments: list[str | bytes] = [*TOOLS[tool], "--progress=never", mount.path + b"/t"]
    if tool == "fdiff":
        arguments.append(mount.backing + b"/t")
    with Run(Launcher(jobs=2), *arguments, program=(f"pcircle.tools.{tool}",)) as started:
        plain = started.finish()
    assert (limited.code, sorted(limited.out.splitlines())) == (
        plain.code,
        sorted(plain.out.splitlines()),
    )
    assert limited.code == 0, limited.said


def test_too_many_hanging_calls_stop_the_job(mount: Mounted) -> None:
    """Each hanging call occupies a thread."""
    from pcircle.threads.deadline import MAX_LOST_CALLS

    for number in range(MAX_LOST_CALLS + 50):
        os.mkdir(mount.backing + b"/t/z/%d" % number)
    mount.rules(Rule(("opendir", "readdir", "readdirplus"), "t/z/[0-9]*", delay_s=FOREVER_S))
    words = ("--op-timeout", "0.5", "--progress=never", "--threads=16", mount.path + b"/t")
    with Run(Launcher(jobs=1), *words, program=("pcircle.tools.fprof",)) as started:
        done = started.finish()
    assert done.code == 4, done.said[-500:]
    assert f"{MAX_LOST_CALLS} operations did not return (--op-timeout)" in done.said


def test_a_timeout_of_the_file_system_is_an_answer(mount: Mounted) -> None:
    """Any number of such errors is accepted, because no thread hangs."""
    from pcircle.threads.deadline import MAX_LOST_CALLS

    for number in range(MAX_LOST_CALLS + 50):
        with open(mount.backing + b"/t/z/%d" % number, "xb") as file:
            file.write(b"content")
    mount.rules(Rule(("read",), "t/z/[0-9]*", errno="ETIMEDOUT"))
    words = ("--op-timeout", "60", "--progress=never", "--threads=4", mount.path + b"/t")
    with Run(Launcher(jobs=1), *words, program=("pcircle.tools.fsum",)) as started:
        done = started.finish()
    assert done.code == 1, done.said[-500:]
    assert "do not return" not in done.said


def test_a_limit_cannot_be_combined_with_removal(mount: Mounted) -> None:
    with Run(
        Launcher(jobs=1), "--op-timeout=2", mount.path, "-delete", program=("pcircle.tools.ffind",)
    ) as run_:
        done = run_.finish()
    assert done.code == 2
    assert "-delete cannot be combined with --op-timeout" in done.said
    assert os.path.exists(mount.path + b"/t")


def test_every_process_has_the_limit(place: bytes, run: Script) -> None:
    """Processes cannot be forked while a thread runs, and would have no limit."""
    done = run([sys.executable, "-c", THREADED, "-j3", "--op-timeout", "9", place])
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert b"--op-timeout has no effect in new processes" in done.stderr
    done = run([sys.executable, "-c", THREADED, "-j1", "--op-timeout", "9", place])
    assert (done.returncode, done.stdout.strip()) == (0, place), done.stderr


def test_a_limit_delays_no_process(place: bytes, run: Script) -> None:
    limit_s = 100  # a process that waits for a thread of its parent waits for the whole limit
    began_s = time.monotonic()
    words = ["-j2", "--op-timeout", str(limit_s), os.fsdecode(place)]
    assert run([sys.executable, "-m", "pcircle.tools.ffind", *words]).returncode == 0
    assert time.monotonic() - began_s < limit_s


@pytest.mark.parametrize("value", ["0", "-1", "x", "inf"])
def test_other_limits_are_refused(place: bytes, value: str) -> None:
    with Run(
        Launcher(jobs=1), f"--op-timeout={value}", place, program=("pcircle.tools.fprof",)
    ) as run_:
        done = run_.finish()
    assert done.code == 2
    assert "--op-timeout: invalid" in done.said


def test_functions_have_no_limit(place: bytes) -> None:
    """A hanging call would stay in the process of the caller."""
    functions: tuple[Any, ...] = (pcircle.find, pcircle.profile)
    for function in functions:
        with pytest.raises(TypeError, match="does not take 'op_timeout': only the command"):
            function(place, op_timeout="3")
