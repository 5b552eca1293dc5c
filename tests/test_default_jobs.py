"""The number of processes without -j: one for a few small files, else one per core."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.cli.program import has_little_work
from pcircle.fs.file_system import obeys_noatime
from tests.conftest import ROOT, Run

USUAL = min(8, len(os.sched_getaffinity(0)))
_COMMANDS: dict[str, list[str]] = {
    "fcp": ["{}", "copy"],
    "fmirror": ["{}", "mirror"],
    "fsum": ["{}"],
    "fprof": ["{}"],
    "ffind": ["{}"],
    "fls": ["{}"],
    "fdiff": ["{}", "{}"],
    "fchmod": ["-R", "u+r", "{}"],
    "frm": ["-r", "{}"],
}


@pytest.fixture
def knows_directories(tmp_path: Path) -> bool:
    """Return whether directories of the file system are looked into."""
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        return obeys_noatime(fd)
    finally:
        os.close(fd)


@pytest.fixture
def ranks(run: Run, tmp_path: Path) -> Callable[[str, list[str]], int]:
    """Run a tool, and return the number of processes in its JSON document."""

    def counted(tool: str, words: list[str]) -> int:
        command = [sys.executable, str(ROOT / "bin" / tool), "--json", "result", *words]
        done = run(command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return len(json.loads((tmp_path / "result").read_bytes())["ranks"])

    return counted


def _grown(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"x")


@pytest.mark.parametrize("tool", _COMMANDS)
def test_few_files_take_one_process(
    ranks: Callable[[str, list[str]], int], tmp_path: Path, knows_directories: bool, tool: str
) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    _grown(few, "a", "b")
    _grown(many, "a", "below/b")
    one = 1 if knows_directories else USUAL
    for tree, expected in ((few, one), (many, USUAL)):
        words = [word.replace("{}", tree.name) for word in _COMMANDS[tool]]
        assert ranks(tool, words) == expected, tree.name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-j2", "few"], 2),
        (["few", "-exec", "true", ";"], USUAL),
        (["--op-timeout", "60", "few"], USUAL),
        (["few/a"], 1),
    ],
)
def test_processes_of_a_search(
    ranks: Callable[[str, list[str]], int], tmp_path: Path, words: list[str], expected: int
) -> None:
    _grown(tmp_path, "few/a")
    assert ranks("ffind", words) == expected


def test_both_sides_of_a_mirror_count(
    ranks: Callable[[str, list[str]], int], tmp_path: Path
) -> None:
    _grown(tmp_path, "few/a", "mirror/below/b")
    assert ranks("fmirror", ["--delete", "few", "mirror"]) == USUAL
    assert not (tmp_path / "mirror/below").exists()


def test_little_work(tmp_path: Path, knows_directories: bool) -> None:
    here = os.fsencode(tmp_path)
    _grown(tmp_path, "few/a", "deep/below/a", *(f"full/{n}" for n in range(17)))
    os.symlink("few/a", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked").mkdir()
    os.symlink("../few", tmp_path / "linked/link")
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate((8 << 20) + 1)
    found = {
        name: has_little_work([os.path.join(here, name)])
        for name in map(os.fsencode, ("few/a", *sorted(os.listdir(tmp_path)), "missing"))
    }
    assert {name for name, little in found.items() if not little} - {b"few"} == {
        *(b"deep", b"full", b"large", b"link", b"linked", b"pipe"),
    }
    assert found[b"few"] == knows_directories
    full = [os.path.join(here, b"full", b"%d" % number) for number in range(16)]
    assert has_little_work(full)
    assert not has_little_work([*full, full[0]])
    assert not has_little_work([])


def test_no_access_time_changes(tmp_path: Path) -> None:
    _grown(tmp_path, "few/a")
    os.utime(tmp_path / "few", (1, 1))
    has_little_work([os.fsencode(tmp_path / "few")])
    assert (tmp_path / "few").stat().st_atime == 1
