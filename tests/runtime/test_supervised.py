"""The exit code of a job under a launcher that has a child process of its own."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import Run

# A launcher's variables without a launcher: MPI is not initialized.
PLAYED = """
import ctypes, os, signal
os.environ.update(PMI_SIZE="2", PMI_RANK="0")
from pcircle.runtime import supervised
close_descriptors = supervised.close_descriptors
def run():
    {job}
def late(fd):
    {late}
    close_descriptors(fd)
supervised.close_descriptors = late
raise SystemExit(supervised.supervised("x", 9.0, run))
"""


def code_of(run: Run, job: str, late: str = "pass") -> tuple[int, bytes]:
    done = run([sys.executable, "-c", PLAYED.format(job=job, late=late)])
    return done.returncode, done.stderr


def test_a_job_ends_with_its_code(run: Run) -> None:
    assert code_of(run, "return 3") == (3, b"")


def test_a_library_ends_with_its_own(run: Run) -> None:
    """It ends as after MPI_Abort."""
    assert code_of(run, "ctypes.CDLL(None).exit(42)") == (42, b"")


def test_a_forked_process_does_not_end_the_job(run: Run) -> None:
    job = "os.waitpid(os.fork() or ctypes.CDLL(None).exit(42), 0); return 3"
    assert code_of(run, job) == (3, b"")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_at_the_end_changes_nothing(run: Run, number: str) -> None:
    late = f"os.kill(os.getpid(), signal.{number}); import time; time.sleep(0.02)"
    assert code_of(run, "return 3", late) == (3, b"")


def test_a_failure_at_the_end_keeps_the_code(run: Run) -> None:
    assert code_of(run, "return 3", "raise OSError")[0] == 3
