"""Test a task in the simulator with many seeds; a failing seed is a reproducible bug report.

`check` runs a task on simulated ranks, in a different order of events each time. Messages are
delayed, ranks are slow or stuck, work is stolen or not and, on request, ranks are lost. The engine,
the runtime's loop and the encoding of items are the real ones; time, threads and the network are
simulated. `play` repeats the run of one seed and can trace each step. See docs/testing-tasks.rst.

    from pcircle import testing

    def test_squares():
        testing.check(Squares, expected=332833500)
        testing.check(Squares, expected=332833500, lost=1)
"""

from __future__ import annotations

from pcircle.testing.checks import cases, check, check_case, each
from pcircle.testing.simulated_job import Case, Run, play
from pcircle.testing.watch import Violation

__all__ = ["Case", "Run", "Violation", "cases", "check", "check_case", "each", "play"]
