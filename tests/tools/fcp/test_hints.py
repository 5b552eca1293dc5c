"""Options of other tools: the error message names the tool that has the option."""

from __future__ import annotations

import pytest

from .running import Run, run_fcp


def test_options_for_deletions_lead_to_the_right_tool() -> None:
    for option in ("--delete", "--delete-after", "--delete-excluded", "--link-dest=old"):
        finished = run_fcp(None, option, "a", "b")
        assert finished.code == 2
        assert finished.said.count("fmirror") == 1


@pytest.mark.parametrize(
    ("command_line", "unknown", "named"),
    [
        ("fmirror -avn a b", "'-n' in '-avn'", "--dry-run"),
        ("fmirror -n a b", "'-n'", "--dry-run"),
        ("fmirror -avz a b", "'-z' in '-avz'", ""),
        ("fmirror -D a b", "'-D'", "dsync"),
        ("fmirror -D a b", "'-D'", "--delete"),
        ("fcp -i a b", "'-i'", "-n"),
        ("fcp --bufsize 4M a b", "'--bufsize'", "--chunksize"),
        ("fcp -f -al a b", "'-l' in '-al'", "cp"),
        ("ffind . --name x", "'--name'", "-name"),
        ("ffind . --delete", "'--delete'", "-delete"),
        ("fcp --verfy a b", "'--verfy'", "did you mean --verify?"),
    ],
)
def test_options_of_other_programs_lead_to_equivalents(
    command_line: str, unknown: str, named: str
) -> None:
    before, _, hint = _refusal(command_line).partition(f"unknown option {unknown}; ")
    assert before.endswith(": ")
    assert hint.partition("\n")[0].count(named)


def test_progress_without_a_value_is_explained() -> None:
    assert "terminal" in _refusal("fmirror -a --progress a/ b")


def _refusal(command_line: str) -> str:
    tool, *words = command_line.split()
    with Run(None, *words, program=(f"pcircle.tools.{tool}",)) as run:
        finished = run.finish()
    assert finished.code == 2
    return finished.said
