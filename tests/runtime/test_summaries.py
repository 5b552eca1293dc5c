"""The report of many ranks without rows: the same sums, and the distribution of the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run

TOOLS = {
    "fsum": [],
    "fprof": [],
    "frm": ["-r", "--dry-run"],
    "fmirror": ["--dry-run"],
    "fcp": ["-a"],
}
OF_LISTS = ("steals_asked", "items", "messages", "cpu_s", "threads", "peak_rss_bytes")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for number in range(60):
        (root / f"directory-{number}").mkdir()
        for file in range(10):
            (root / f"directory-{number}" / f"file-{file}").write_bytes(bytes(100 * number))
    return root


def started(run: Run, command: list[str], rows: int, tool: str, *arguments: object) -> Any:
    """Run a tool on these ranks; return its report and its output."""
    target = arguments[-1] if tool in ("fcp", "fmirror") else None
    result = f"{arguments[0]}-{tool}-{rows}.json"
    jobs = [] if "mpi" in command[0] else ["-j4"]
    words = [*TOOLS[tool], *jobs, "--stats", "--stats", "--json", result, arguments[1]]
    words += [] if target is None else [target]
    done = run([*command, "-m", "tests.runtime.summing", str(rows), tool, *map(str, words)])
    assert done.returncode == 0, done.stderr
    return json.loads(Path(result).read_bytes()), (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_summary_has_the_sums_of_the_rows(
    run: Run, tool: str, tree: Path, tmp_path: Path
) -> None:
    command = [sys.executable]
    for number, rows in enumerate((4, 3)):
        arguments = (tmp_path / "result", tree, tmp_path / f"copy-{number}")
        report, said = started(run, [*command], rows, tool, *arguments)
        if rows == 4:
            assert "rank_summary" not in report
            in_rows = report
            continue
        assert report["ranks"] == []
        summary = report["rank_summary"]
        assert summary["ranks"] == 4
        names = set(in_rows["ranks"][0]) - {"rank", "node", "work_per_s", "sent", "sent_block"}
        assert set(summary["figures"]) == names
        for name in ("entries", "bytes"):
            total = sum(rank[name] for rank in in_rows["ranks"])
            assert summary["figures"][name]["sum"] == total
        for name in (*OF_LISTS, "entries"):
            check(summary["figures"][name])
        for same in ("entries", "counts", "bytes", "failed", "files", "found"):
            assert report.get(same) == in_rows.get(same), same
        assert "4 processes" in said
        assert "peak memory" in said


def check(figure: dict[str, Any]) -> None:
    """Check the invariants of the figures of four ranks."""
    assert figure["min"] <= figure["p5"] <= figure["median"] <= figure["p95"] <= figure["max"]
    assert sum(ranks for _, ranks in figure["bins"]) == 4
    assert {figure["min_rank"], figure["max_rank"]} <= set(range(4))
    assert figure["mean"] == pytest.approx(figure["sum"] / 4, abs=0.01)


@pytest.mark.mpi
def test_under_a_launcher(
    run: Run, mpirun: Callable[[int], list[str]], tree: Path, tmp_path: Path
) -> None:
    """Three ranks run, none of which has a row."""
    command = [*mpirun(3), sys.executable]
    report, _ = started(run, command, 1, "fsum", tmp_path / "result", tree)
    alone, _ = started(run, [sys.executable], 9, "fsum", tmp_path / "alone", tree)
    assert report["signatures"] == alone["signatures"]
    assert report["rank_summary"]["ranks"] == 3
    assert report["rank_summary"]["figures"]["entries"]["sum"] == alone["entries"]
