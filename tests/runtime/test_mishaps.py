"""Errors of a task, of a program and of its command line: one exit code, a reason, a report.

A defect in any method and on any rank ends the job with 70. A tool names files that contain the
traceback; a user's task prints it on standard error, once. An error with a code of its own gives
that code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.conftest import Ended, Job, Ranks

LOCAL = [Ranks(1), Ranks(2), Ranks(4)]
MPI = pytest.param(Ranks(2, mpi=True), marks=pytest.mark.mpi)
HYBRID = pytest.param(Ranks(4, mpi=True, jobs_each=2), marks=pytest.mark.mpi)
SOME = pytest.mark.parametrize("ranks", [Ranks(1), Ranks(4), MPI, HYBRID], ids=str)


def assert_defect(ended: Ended, method: str) -> None:
    assert ended.code == 70, ended.said
    assert "ZeroDivisionError: on purpose; a report is in " in ended.said
    assert ended.reports
    for report in ended.reports:
        assert report.startswith("python ")
        assert "Traceback (most recent call last):" in report
        assert f"in {method}\n" in report
        assert report.endswith("ZeroDivisionError: on purpose\n")


def assert_traceback(ended: Ended, method: str) -> None:
    assert ended.code == 70, ended.said
    assert ended.said.count("Traceback (most recent call last):\n") == 1
    assert f"in {method}\n" in ended.said
    assert "\nZeroDivisionError: on purpose\n" in ended.said
    assert ended.reports == []


@SOME
@pytest.mark.parametrize("where", ["seed", "process", "join", "merge"])
def test_a_defect_of_a_task(job: Job, ranks: Ranks, where: str) -> None:
    ended = job(ranks, "failing", where, "defect")
    assert_traceback(ended, where)
    assert ended.known.code == 70
    assert ended.known.reasons[0] in ended.said
    assert ended.known.silent == ()


@pytest.mark.parametrize("ranks", LOCAL, ids=str)
@pytest.mark.parametrize("where", ["process", "merge", "measure"])
def test_a_defect_of_unstructured_work(job: Job, ranks: Ranks, where: str) -> None:
    assert_traceback(job(ranks, "failing-loose", where, "defect"), where)


@pytest.mark.parametrize("ranks", [Ranks(2), MPI], ids=str)
def test_a_defect_when_the_accounts_are_merged(job: Job, ranks: Ranks, tmp_path: Path) -> None:
    """It is too late to abort anything, because both ranks are done."""
    ended = job(ranks, "last-merge", tmp_path, 2)
    assert_traceback(ended, "merge")
    assert ended.known.items == (1, 1)


@SOME
@pytest.mark.parametrize("where", ["seed", "process", "join", "merge"])
@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [("nospace", 4, "the shelf is full"), ("integrity", 3, "the books differ")],
)
def test_an_error_with_a_code(
    job: Job, ranks: Ranks, where: str, kind: str, code: int, reason: str
) -> None:
    ended = job(ranks, "failing", where, kind)
    assert ended.code == code
    assert ended.said == f"tasks: {reason}\n"  # once, although several ranks may have met it
    assert ended.known.reasons == (reason,)
    assert ended.reports == []


@pytest.mark.parametrize("ranks", [Ranks(1), Ranks(3), MPI], ids=str)
def test_jobs_that_are_rejected_before_they_start(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "noting", "prepare")
    assert (ended.code, ended.output) == (4, None)
    assert ended.said == "pcircle: the shelf is full\n"


@SOME
def test_a_defect_before_the_job_begins(job: Job, ranks: Ranks) -> None:
    ended = job(ranks, "noting", "defect")
    assert ended.output is None
    assert_defect(ended, "prepare")


@pytest.mark.parametrize("ranks", [Ranks(1), Ranks(2), MPI], ids=str)
@pytest.mark.parametrize("where", ["notice", "show", "conclude"])
def test_a_defect_of_the_front_end(job: Job, ranks: Ranks, where: str) -> None:
    assert_defect(job(ranks, "noting", where), where)


def test_a_defect_while_abandoning_is_reported(job: Job) -> None:
    """It is reported whatever the job's code is, which may already be agreed on."""
    ended = job(Ranks(2), "failing-abandon")
    assert ended.code in (4, 70)
    assert "in abandon\n" in ended.said


@pytest.mark.parametrize("ranks", LOCAL, ids=str)
def test_counts_beyond_64_bits(job: Job, ranks: Ranks) -> None:
    """Numbers of more than 64 bits are a defect, and not a lost rank."""
    ended = job(ranks, "failing", "report", "defect")
    assert ended.code == 70, ended.said
    assert "OverflowError" in ended.said
    assert ended.known.silent == ()
