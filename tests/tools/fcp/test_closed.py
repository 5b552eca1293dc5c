"""Standard streams that are closed or full: their numbers are not reused, no result is lost.

If a process is started without a descriptor, the next file that it opens gets its number: a
directory of the copy, or a pipe to another rank, which would then be read as the list, or receive
standard output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .running import Launcher, Run, clean_environment, launchers
from .trees import make_directory, write_file

TOOLS = ("fcp", "fsum", "fprof", "fbench", "fbcast")


def _end(script: str, place: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a shell script in `place`, where `$fcp` and similar variables are the tools."""
    environment = {
        **clean_environment(),
        **{tool: f"{sys.executable} -m pcircle.tools.{tool}" for tool in TOOLS},
    }
    return subprocess.run(
        ["sh", "-c", script],
        cwd=place,
        env=environment,
        capture_output=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def place(place: bytes) -> bytes:
    """Create a directory with a tree of some files."""
    for part in range(4):
        folder = make_directory(place, b"tree/%d" % part)
        for number in range(part, 20, 4):
            write_file(folder + b"/%d" % number, b"text")
    write_file(place + b"/list", b"0\n1/1\n")
    return place


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_list_from_a_closed_standard_input_is_refused(place: bytes, jobs: int) -> None:
    for tool, operands in (("fcp", "-T tree copy"), ("fsum", "tree"), ("fprof", "tree")):
        for name in ("-", "/dev/stdin", "/proc/self/fd/0"):
            ended = _end(f"${tool} -j{jobs} --files-from {name} {operands} <&-", place)
            assert ended.returncode == 2, (tool, name, ended)
            assert b"cannot read '%b': Bad file descriptor" % name.encode() in ended.stderr
    for option in ("--exclude-from", "--retry-from"):
        ended = _end(f"$fcp -j{jobs} {option} /dev/stdin -T tree copy <&-", place)
        assert ended.returncode == 2, (option, ended)
        assert b"Bad file descriptor" in ended.stderr
    assert sorted(os.listdir(place)) == [b"list", b"tree"]
    assert _end(f"$fcp -j{jobs} -q --files-from - -T tree copy <list", place).returncode == 0
    assert sorted(os.listdir(place + b"/copy")) == [b"0", b"1"]
    assert _end(f"$fsum -j{jobs} --files-from - tree </dev/null", place).returncode == 0


@pytest.mark.parametrize("launcher", launchers([1, 3], [2]), ids=str)
def test_every_rank_has_its_standard_descriptors(launcher: Launcher, place: bytes) -> None:
    write_file(place + b"/tree/large", bytes(100_000))
    options = ("-q", "--bwlimit", "1k", "--no-checkpoint")
    program = ("tests.tools.fcp.closing",)
    with Run(launcher, *options, "-T", "tree", "copy", cwd=place, program=program) as run:
        assert run.wait_for(place + b"/copy")
        ranks = [pid for pid in run.processes() if b"pcircle.tools.fcp" in _command_line(pid)]
        descriptors = [os.readlink(f"/proc/{pid}/fd/{fd}") for pid in ranks for fd in range(3)]
    assert descriptors == ["/dev/null"] * 3 * launcher.size


def _command_line(pid: int) -> bytes:
    return Path("/proc", str(pid), "cmdline").read_bytes()


_FULL_OR_CLOSED = [
    "$fcp -j1 -s tree copy{n}",
    "$fcp -j2 -q -s tree copy{n}",
    "$fcp -j1 -n -s tree/0/0 copy{n}",
    "$fcp -j1 --json - tree copy{n}",
    "$fsum -j1 tree",
    "$fprof -j1 tree",
    "$fbench -j1 --case metadata --files 2 .",
    *(f"${tool} {option}" for tool in TOOLS for option in ("--help", "--version")),
]


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_unwritable_results_are_failures(place: bytes, where: str) -> None:
    wrong = []
    for number, line in enumerate(_FULL_OR_CLOSED):
        ended = _end(f"{line.format(n=number)} >{where}", place)
        said = b"cannot write" in ended.stderr and b"Traceback" not in ended.stderr
        if ended.returncode != 1 or not said:
            wrong.append((line, ended))
    assert wrong == []
    assert os.path.exists(place + b"/copy0/0/0"), "the copy itself is done"


def test_a_file_that_is_a_closed_descriptor_is_refused(place: bytes) -> None:
    """It is refused before the work; the file that takes its number would accept any output."""
    for line in (
        "$fcp -j1 --json /dev/stdout tree copy >&-",
        "$fsum -j1 --json /proc/self/fd/1 tree >&-",
        "$fprof -j1 --error-log /dev/stderr tree 2>&-",
    ):
        ended = _end(line, place)
        assert ended.returncode == 2, ended
        assert b"Traceback" not in ended.stderr
    assert not os.path.exists(place + b"/copy")


def test_messages_need_no_standard_output(place: bytes) -> None:
    for number, where in enumerate((">&-", ">/dev/full", "<&- >&- 2>&-", "2>&-", "2>/dev/full")):
        ended = _end(f"$fcp -j2 tree copy{number} {where}", place)
        assert ended.returncode == 0, (where, ended)
        assert os.path.exists(place + b"/copy%d/3/19" % number)
