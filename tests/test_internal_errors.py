"""An exception that nothing expects ends a tool with exit code 70 and a report, wherever it occurs.

The job itself reports exceptions of its items; here the task fails before the job begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run

PROGRAM = """\
import sys
from pcircle.{module} import {owner}
def fail(*_args, **_options):
    raise AttributeError("nobody expects this")
{owner}.{method} = fail
from pcircle.tools.{tool}.__main__ import main
main()
"""
TREE_PROGRAM = ("cli.program", "TreeProgram")


@pytest.mark.parametrize("jobs", ["-j1", "-j2"])
@pytest.mark.parametrize(
    ("tool", "words", "place"),
    [
        ("fchmod", ["-R", "g+w"], (*TREE_PROGRAM, "new_task")),
        ("ffind", [], (*TREE_PROGRAM, "new_task")),
        ("fls", ["-R"], (*TREE_PROGRAM, "run")),
    ],
)
def test_an_exception_outside_the_job_is_an_internal_error(
    run: Run, tmp_path: Path, tool: str, words: list[str], place: tuple[str, str, str], jobs: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    module, owner, method = place
    program = PROGRAM.format(module=module, owner=owner, method=method, tool=tool)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = run([sys.executable, "-c", program, jobs, *words, data], env=environment)
    said = done.stderr.decode()
    assert done.returncode == 70, said
    reports = list((tmp_path / "pcircle").iterdir())  # of each rank that failed
    assert any(str(report) in said for report in reports), said
    assert all("nobody expects this" in report.read_text() for report in reports)
    assert "internal error" in said
    assert "Traceback" not in said


@pytest.mark.mpi
def test_a_task_that_cannot_be_created_is_reported_under_mpi(
    run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    module, owner = TREE_PROGRAM
    program = PROGRAM.format(module=module, owner=owner, method="new_task", tool="fls")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    start = [*mpirun(2), sys.executable, "-c", program, "-R", str(tmp_path / "data")]
    done = run(start, env=environment)
    said = done.stderr.decode()
    assert done.returncode == 70, said
    reports = list((tmp_path / "pcircle").iterdir())
    assert any(str(report) in said for report in reports), said
    assert "Traceback" not in said


@pytest.mark.mpi
@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_before_mpi_begins_ends_the_others(
    run: Run, mpirun: Callable[[int], list[str]], tmp_path: Path, failing: int
) -> None:
    """The other rank is waiting for it in MPI_Init."""
    (tmp_path / "data").mkdir()
    lines = PROGRAM.format(module="cli.program", owner="TreeProgram", method="run", tool="fls")
    program = lines.replace(
        "TreeProgram.run = fail",
        "import os\n"
        'rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]\n'
        f'if rank == "{failing}":\n    TreeProgram.run = fail',
    )
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    start = [*mpirun(2), sys.executable, "-c", program, "-R", str(tmp_path / "data")]
    done = run(start, env=environment)
    said = done.stderr.decode()
    assert done.returncode == 70, said
    assert "internal error" in said
