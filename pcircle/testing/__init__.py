"""Tests of a task: it runs in the simulator, by seeds, and a seed that fails is a bug report.

`check` runs a task on simulated ranks, with another order of everything in each run: messages are
late, ranks slow or stuck, work is stolen or not, ranks are lost. The engine, the runtime's loop and
the encoding of items are the real ones; time, threads and the network are played. `play` runs
one seed again and tells each step. See docs/testing-tasks.rst.

    from pcircle import testing

    def test_squares():
        testing.check(Squares, expected=332833500)
        testing.check(Squares, expected=332833500, lost=1)
"""

from __future__ import annotations

from pcircle.testing.checking import cases, check, check_case, each
from pcircle.testing.playing import Case, Run, play
from pcircle.testing.violation import Violation

__all__ = ["Case", "Run", "Violation", "cases", "check", "check_case", "each", "play"]
