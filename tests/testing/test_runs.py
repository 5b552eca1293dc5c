"""Runs of a task: reproducible by seed, different for other seeds, with faults at any moment."""

from __future__ import annotations

import re
import threading
import time

import pytest

from pcircle import testing
from pcircle.runtime import Context
from tests.testing.sums import TOTAL, Listed, Range, Sum, found


def test_a_violation_names_the_command_that_replays_it() -> None:
    violation = found(Listed, "replay it with: ", expected=list(range(12)), ranks=(7,))
    words = str(violation)
    seed = int(re.findall(r"^seed (\d+)", words)[0])
    assert words.endswith(
        f"replay it with: pcircle.testing.play(Listed, {seed}, ranks=7, trace=print)"
    ) or re.search(r"ranks=1, trace=print\)$", words)
    command = words.rpartition("with: ")[2]
    lines: list[str] = []
    again = eval(
        command.replace("pcircle.testing", "testing"),
        {"testing": testing, "Listed": Listed, "print": lines.append},
    )
    assert f"the result is {again.result}, not" in words
    assert lines


@pytest.mark.parametrize("lost", [0, 1])
def test_the_same_seed_is_the_same_run(lost: int) -> None:
    traces = []
    for _ in range(2):
        lines: list[str] = []
        testing.play(Sum, 11, ranks=5, lost=lost, trace=lines.append)
        traces.append([line for line in lines if "ms" not in line])
    assert traces[0] == traces[1]
    assert any("spawns (0, 12), (12, 24)" in line for line in traces[0])
    lost_lines = [line for line in traces[0] if "is lost" in line]
    assert bool(lost_lines) == bool(lost)


def test_seeds_give_different_runs() -> None:
    runs = [testing.play(Sum, seed, ranks=4) for seed in range(20)]
    assert len({run.items for run in runs}) > 15
    assert {run.result for run in runs} == {TOTAL}


def test_ranks_are_lost_at_any_moment() -> None:
    runs = [testing.play(Sum, seed, ranks=4, lost=1) for seed in range(60)]
    assert {run.code for run in runs} == {0, 4}
    assert {rank for run in runs for rank in run.lost} == {0, 1, 2, 3}
    assert all(len(run.lost) <= 1 for run in runs)
    reasons = [reason for run in runs if run.code for reason in run.reasons]
    assert any(re.fullmatch(r"rank \d was lost: .*", reason) for reason in reasons)
    stopped = [testing.play(Sum, seed, ranks=4, interrupt=True) for seed in range(20)]
    assert {run.code for run in stopped} <= {0, 130}
    assert any(run.reasons == ("stopped by SIGINT",) for run in stopped)


def test_clocks_are_those_of_the_simulation_for_the_task_alone() -> None:
    sleep, monotonic, began_s = time.sleep, time.monotonic, time.monotonic()

    class Slow(Sum):
        def process(self, item: Range, context: Context[Range]) -> int:
            before_s = time.monotonic()
            time.sleep(3600 if item == (7, 8) else 0)
            if item == (7, 8) and not 3600 <= time.monotonic() - before_s < 3601:
                raise AssertionError("an hour is no hour")
            thread_times_s: list[float] = []
            thread = threading.Thread(target=lambda: thread_times_s.append(time.monotonic()))
            thread.start()
            thread.join()
            if not thread_times_s[0] > began_s:
                raise AssertionError("the clock of another thread")
            return super().process(item, context)

    with pytest.raises(testing.Violation, match="does not end"):
        testing.check(Slow, seeds=[1], expected=TOTAL)
    assert (time.sleep, time.monotonic) == (sleep, monotonic)


@testing.each(range(5), ranks=(2, 3), lost=1)
def test_the_form_for_pytest(case: testing.Case) -> None:
    run = testing.check_case(Sum, case, expected=TOTAL)
    assert run.case == case
    assert case.lost == 1


def test_there_is_something_to_check() -> None:
    with pytest.raises(ValueError, match="no seeds"):
        testing.check(Sum, seeds=())
