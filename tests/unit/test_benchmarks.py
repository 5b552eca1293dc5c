"""The benchmark harness itself, on tiny data with the tools that every machine has.

The tests measure no times. They check that data sets are made once and as described, that a copy
which lost an entry or a byte never gets a time, and that the folder is empty afterwards.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import datasets, measure, rounds, tools
from tests.benchmarks.__main__ import main

# The set of installed tools: rsync is not available everywhere.
PEERS = [tool for tool in ("cp", "rsync") if shutil.which(tool)]
FACTOR = "0.002"


def benchmark(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    report = folder.parent / "report.json"
    code = main([str(folder), "--scale", FACTOR, "--runs", "2", "--json", str(report), *options])
    return code, json.loads(report.read_text()) if report.exists() else {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "fs"
    made.mkdir()
    return made


def fake_rsync(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """Put first on PATH an rsync that copies correctly and then applies `damage` to the target."""
    place = folder.parent / "bin"
    place.mkdir()
    script = place / "rsync"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -a ] || exit 0\ncp -a "$2" "$3" && cd "$3" && {damage}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")


def test_real_tools_are_measured_in_rotated_rounds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = benchmark(folder, "--only", "tiny,small,mixed", "--tools", ",".join(PEERS))
    assert code == 0
    assert [data["name"] for data in report["data_sets"]] == ["tiny", "small", "mixed"]
    for data in report["data_sets"]:
        assert [row["tool"] for row in data["rows"]] == PEERS
        for row in data["rows"]:
            assert [run["round"] for run in row["runs"]] == [1, 2]
            assert [run["fault"] for run in row["runs"]] == [None, None]
            assert all(run["peak_rss_bytes"] > 0 for run in row["runs"])
        reference = data["rows"][0]
        assert reference["ratios"] == [1.0, 1.0]
    table = capsys.readouterr().out
    assert "small: 40 files of 4 KiB" in table
    assert "x cp -a" in table
    assert not list(Path(folder, datasets.FOLDER).glob("run-*"))


def test_data_sets_are_recreated_only_if_they_changed(folder: Path) -> None:
    recipe = datasets.recipes(0.002)["small"]
    tree = Path(datasets.prepare(recipe, folder).tree)
    identity = tree.stat().st_ino
    assert datasets.prepare(recipe, folder).survey.census.files == 40
    assert tree.stat().st_ino == identity
    next(tree.glob("*/file*")).unlink()
    assert datasets.prepare(recipe, folder).survey.census.files == 40


@pytest.mark.parametrize("name", list(datasets.recipes(0.002)))
def test_each_data_set_is_reproducible_and_within_its_estimate(folder: Path, name: str) -> None:
    recipe = datasets.recipes(0.002)[name]
    (folder / "again").mkdir()
    first = datasets.prepare(recipe, folder)
    second = datasets.prepare(recipe, folder / "again")
    diff = subprocess.run(["diff", "-r", first.tree, second.tree], capture_output=True, check=False)
    assert (diff.returncode, diff.stdout) == (0, b"")
    census = first.survey.census
    assert census.files + census.directories <= recipe.inodes
    assert census.bytes <= recipe.space_bytes
    assert datasets.fault(first, second.tree) is None


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("rm file0000001", "incomplete: files 2 of 3"),
        ("mkdir extra", "incomplete: directories 1 of 0"),
        ("truncate -s -1 file0000001", "incomplete: bytes"),
        ("truncate -s 0 file0000001 && truncate -s 1024 file0000001", "content differs"),
        ("echo no room; exit 7", "exit 7: no room"),
        ("kill -9 $$", "exit -9"),
    ],
)
def test_a_bad_copy_gets_no_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str, complaint: str
) -> None:
    fake_rsync(folder, monkeypatch, damage)
    code, report = benchmark(folder, "--only", "tiny", "--tools", "cp,rsync")
    assert code == 1
    good, bad = report["data_sets"][0]["rows"]
    assert good["median_s"] > 0
    assert bad["median_s"] is None
    assert len(bad["runs"]) == 1, "a row that fails in the warm-up is not tried again"
    assert bad["runs"][0]["fault"].startswith(complaint)


def test_plain_loops_make_complete_copies(folder: Path) -> None:
    tools = "loop,c-loop" if shutil.which("cc") else "loop"
    code, report = benchmark(
        folder, "--only", "fours,mixed", "--tools", f"cp,{tools}", "--scale", "0.002"
    )
    assert code == 0
    for data in report["data_sets"]:
        assert all(row["median_s"] for row in data["rows"])


def test_a_tool_that_hangs_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_rsync(folder, monkeypatch, "sleep 600")
    code, report = benchmark(
        folder, "--only", "tiny", "--tools", "rsync", "--timeout", "0.5", "--sync"
    )
    assert code == 1
    assert report["data_sets"][0]["rows"][0]["runs"][0]["fault"] == "killed after 0.5 s"


def test_fcp_rows_run_the_named_command(folder: Path) -> None:
    # Any program that accepts fcp's options works here: this one is cp behind a shell.
    command = shlex.join(["sh", "-c", 'while [ $# -gt 2 ]; do shift; done; cp -a "$1" "$2"', "x"])
    code, report = benchmark(
        folder, "--only", "tiny", "--tools", "cp,fcp,fcp-p", "--ranks", "1,3", "--fcp", command
    )
    assert code == 0
    labels = [row["label"] for row in report["data_sets"][0]["rows"]]
    assert labels == ["cp -a", "fcp -j 1", "fcp -j 3", "fcp -p -j 1", "fcp -p -j 3"]


def test_a_file_system_without_space_is_refused(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    recipe = datasets.recipes(1.0)["small"]._replace(space_bytes=free)
    with pytest.raises(datasets.NoRoom, match="small needs"):
        datasets.prepare(recipe, folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--tools", "dcp", "--dcp-mpirun", "no-such-launcher"),
        ("--tools", "fcp", "--fcp", "no-such-fcp"),
        ("--reference", "no such row", "--tools", "cp"),
    ],
)
def test_missing_requested_tools_are_refused(folder: Path, options: tuple[str]) -> None:
    code, report = benchmark(folder, "--only", "tiny", *options)
    assert (code, report) == (2, {})


def test_rotation_gives_each_row_each_place() -> None:
    rows = [tools.Row("cp", label, 1, ()) for label in "abc"]
    orders = ["".join(row.label for row in rounds.rotated(rows, by)) for by in range(4)]
    assert orders == ["abc", "bca", "cab", "abc"]


def test_cost_covers_descendants(tmp_path: Path) -> None:
    burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    log = str(tmp_path / "log")
    cost = measure.run(["sh", "-c", f"sh -c '{burn}'; echo done; exit 3"], os.environ, log, 60.0)
    assert cost.exit_code == 3
    assert cost.user_s + cost.system_s > 0
    assert measure.last_words(log) == "done"
