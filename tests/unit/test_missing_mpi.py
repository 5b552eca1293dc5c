"""Under PCIRCLE_REQUIRE_MPI a test fails without MPI, and skips without any other program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run


@pytest.mark.parametrize("required", [True, False])
def test_missing_mpi_fails_if_it_is_required(run: Run, tmp_path: Path, required: bool) -> None:
    """An mpi4py that cannot be loaded counts as missing MPI, whatever else is installed."""
    broken = tmp_path / "mpi4py"
    broken.mkdir()
    broken.joinpath("__init__.py").write_text("raise ImportError('no MPI library')\n")
    environment = {"PYTHONPATH": str(tmp_path)} | ({"PCIRCLE_REQUIRE_MPI": "1"} if required else {})
    code, report = _outcome(run, "tests/test_examples.py", environment)
    assert code == (1 if required else 0), report
    assert ("MPI is missing" if required else "skipped") in report


def test_another_missing_program_skips(run: Run, tmp_path: Path) -> None:
    """A test that needs MPI and an emulator skips if only the emulator is missing."""
    environment = {"PATH": str(tmp_path), "PCIRCLE_REQUIRE_MPI": "1"}
    code, report = _outcome(run, "tests/test_old_processor.py", environment)
    assert code == 0, report
    assert "skipped" in report


def _outcome(run: Run, module: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run the tests of *module* that need MPI; return the exit code and the report."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PCIRCLE_", "PYTEST_"))}
    line = [sys.executable, "-m", "pytest", "-m", "mpi", "-p", "no:cacheprovider", module]
    done = run(line, cwd=ROOT, env=inherited | environment)
    return done.returncode, done.stdout.decode()
