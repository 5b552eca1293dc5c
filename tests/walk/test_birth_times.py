"""`--by-time=btime` in all tools that walk matches stat(1), or is missing on the file system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcircle.fs.status import birth_ns
from tests.programs import needs_mount_namespace

NAMES = [b"%d" % number for number in range(6)]
STEP_S = 0.02  # more than a clock tick of the kernel
every_number = pytest.mark.parametrize("jobs", ["-j1", "-j3"])


@pytest.fixture
def born(tmp_path: Path) -> tuple[Path, list[int]]:
    """Create a tree; return it with its birth times.

    By all other times the last file is the oldest.
    """
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in NAMES:
        (tree / os.fsdecode(name)).write_bytes(b"x")
        time.sleep(STEP_S)
    for age, name in enumerate(NAMES):
        os.utime(tree / os.fsdecode(name), (1e9 - age, 1e9 - age))
    times = [birth_ns(os.fsencode(tree / os.fsdecode(name)), None, follow=False) for name in NAMES]
    if None in times:
        pytest.skip("no birth times are kept here")
    known = [birth_time for birth_time in times if birth_time is not None]
    assert known == sorted(set(known))
    return tree, known


def _tool(tool: str, *arguments: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"pcircle.tools.{tool}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def _moment(ns: int) -> str:
    return f"@{ns // 10**9}.{ns % 10**9:09d}"


def _later(tree: Path, ns: int) -> set[str]:
    """Return the names of files that are newer according to stat."""
    command = ["stat", "-c", "%.9W %n", "--", *sorted(os.listdir(tree))]
    said = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout
    lines = (line.split(" ") for line in said.splitlines())
    return {name for born, name in lines if int(born.replace(".", "")) > ns}


@every_number
@pytest.mark.parametrize("at", [0, 2, 5])
def test_fls_matches_stat(born: tuple[Path, list[int]], at: int, jobs: str) -> None:
    tree, times = born
    later = _later(tree, times[at])
    assert later == {str(number) for number in range(at + 1, len(NAMES))}
    moment = _moment(times[at])
    found = _tool("fls", jobs, "-1", "--by-time=btime", "--newer-than", moment, tree)
    assert set(found.split()) == later
    listed = _tool("fls", jobs, "-1", "--by-time=btime", "--older-than", moment, tree)
    assert set(listed.split()) == set(os.listdir(tree)) - later


@every_number
def test_frm_and_fchmod_use_birth_times(born: tuple[Path, list[int]], jobs: str) -> None:
    tree, times = born
    about = (jobs, "--by-time=btime", "--older-than", _moment(times[2]), "--kind", "f")
    _tool("fchmod", *about, "-R", "0600", tree)
    modes = {name: (tree / name).stat().st_mode & 0o777 for name in os.listdir(tree)}
    assert {name for name, mode in modes.items() if mode == 0o600} == {"0", "1", "2"}
    _tool("frm", *about, "-r", tree)
    assert sorted(os.listdir(tree)) == ["3", "4", "5"]


@every_number
def test_copies_sums_and_differences_use_birth_times(
    born: tuple[Path, list[int]], tmp_path: Path, jobs: str
) -> None:
    tree, times = born
    about = (jobs, "-q", "--by-time=btime", "--newer-than", _moment(times[3]))
    _tool("fcp", *about, tree, tmp_path / "copy")
    assert sorted(os.listdir(tmp_path / "copy")) == ["4", "5"]
    _tool("fmirror", *about, tree, tmp_path / "mirror")
    assert sorted(os.listdir(tmp_path / "mirror")) == ["4", "5"]
    (tmp_path / "empty").mkdir()
    output = _tool("fdiff", *about[0:1], *about[2:], tree, tmp_path / "empty", code=3)
    assert [name for name in "012345" if f" {name}\n" in output] == ["4", "5"]
    one = _tool("fsum", *about, tree / "4", tree)
    assert len(one.splitlines()) == 2


@every_number
def test_frm_uses_birth_times_of_empty_directories(tmp_path: Path, jobs: str) -> None:
    tree = tmp_path / "tree"
    for name in ("old", "new"):
        (tree / name).mkdir(parents=True)
        time.sleep(STEP_S)
    os.utime(tree / "new", (1e9, 1e9))
    at = birth_ns(os.fsencode(tree / "old"), None, follow=False)
    if at is None:
        pytest.skip("no birth times are kept here")
    _tool("frm", jobs, "-r", "--by-time=btime", "--older-than", _moment(at), tree)
    assert os.listdir(tree) == ["new"]


HEAD = """
mount --make-rprivate /
cd "$1"
shift
mount -t ramfs none "$1" || exit 99
mkdir "$1/empty" "$1/full"
touch "$1/file" "$1/full/file"
shift
"$@"
"""


LOOK = """
import subprocess, sys
from pathlib import Path
code = subprocess.run([sys.executable, "-m", *sys.argv[1:]]).returncode
print(sorted((str(path), oct(path.stat().st_mode)) for path in Path("tree").rglob("*")))
sys.exit(code)
"""


def _with_ramfs(place: Path, at: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a private mount namespace, on a file system without birth times."""
    words = ["unshare", "-m", "sh", "-c", HEAD, "sh", str(place), at, sys.executable]
    done = subprocess.run([*words, *command], capture_output=True, text=True, check=False)
    if done.returncode == 99:
        pytest.skip(f"ramfs can't be mounted: {done.stderr}")
    return done


@needs_mount_namespace
@pytest.mark.parametrize(
    "tool", ["fls", "fprof", "fsum", "frm", "fchmod", "fcp", "fmirror", "fdiff"]
)
def test_a_path_without_birth_times_is_refused(tmp_path: Path, tool: str) -> None:
    (tmp_path / "ageless").mkdir()
    (tmp_path / "other").mkdir()
    more = {"frm": ["-r"], "fchmod": ["-R", "0600"]}.get(tool, [])
    paths = ["ageless/full", *(["other"] if tool in ("fcp", "fmirror", "fdiff") else [])]
    about = ["-j1", "--by-time=btime", "--older-than", "0s"]
    done = _with_ramfs(tmp_path, "ageless", "-m", f"pcircle.tools.{tool}", *about, *more, *paths)
    text = "--by-time=btime: 'ageless/full': its file system does not store birth times"
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"{tool}: {text}")


@needs_mount_namespace
@every_number
@pytest.mark.parametrize("tool", ["fls", "fprof", "frm", "fchmod", "fcp"])
def test_a_mount_without_birth_times_fails_unchanged(tmp_path: Path, tool: str, jobs: str) -> None:
    (tmp_path / "tree" / "ageless").mkdir(parents=True)
    (tmp_path / "tree" / "file").touch()
    operands = {
        "frm": ["-r", "--cross-mounts", "tree"],
        "fchmod": ["-R", "0600", "tree"],
        "fls": ["-R", "tree"],
        "fcp": ["tree", "copy"],
    }.get(tool, ["tree"])
    about = [jobs, "--by-time=btime", "--older-than", "0s"]
    done = _with_ramfs(
        tmp_path, "tree/ageless", "-c", LOOK, f"pcircle.tools.{tool}", *about, *operands
    )
    assert done.returncode == 1, done.stderr
    assert "does not store birth times" in done.stderr
    last_line = done.stdout.splitlines()[-1]
    for name, mode in (("empty", "0o40755"), ("full", "0o40755"), ("full/file", "0o100644")):
        assert f"('tree/ageless/{name}', '{mode}')" in last_line
