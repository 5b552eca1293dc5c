"""Options of other tools: who types one is told which tool has it."""

from __future__ import annotations

from .running import run_fcp


def test_who_asks_for_deletions_is_told_of_the_tool_that_has_them() -> None:
    for option in ("--delete", "--delete-after", "--delete-excluded", "--link-dest=old"):
        finished = run_fcp(None, option, "a", "b")
        assert finished.code == 2
        assert finished.said.count("fmirror makes one directory what another is") == 1
