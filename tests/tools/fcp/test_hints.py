"""Options of other tools: the error message names the tool that has the option."""

from __future__ import annotations

import pytest

from .running import Run, run_fcp


def test_options_for_deletions_lead_to_the_right_tool() -> None:
    for option in ("--delete", "--delete-after", "--delete-excluded", "--link-dest=old"):
        finished = run_fcp(None, option, "a", "b")
        assert finished.code == 2
        assert finished.said.count("fmirror makes one directory what another is") == 1


@pytest.mark.parametrize(
    ("command_line", "said"),
    [
        ("fmirror -avn a b", "unknown option '-n' in '-avn'; --dry-run shows"),
        ("fmirror -n a b", "unknown option '-n'; --dry-run shows"),
        ("fmirror -avz a b", "unknown option '-z' in '-avz'; nothing is sent"),
        ("fmirror -D a b", "unknown option '-D'; as of dsync: --delete"),
        ("fmirror -a --progress a/ b", "always, never; on a terminal progress is shown without it"),
        ("fcp -i a b", "unknown option '-i'; -n keeps what exists"),
        ("fcp --bufsize 4M a b", "unknown option '--bufsize'; as of dcp: --chunksize"),
        ("fcp -f -al a b", "unknown option '-l' in '-al'; as of cp"),
        ("ffind . --name x", "unknown option '--name'; primaries have one dash: -name"),
        ("ffind . --delete", "unknown option '--delete'; primaries have one dash: -delete"),
        ("fcp --verfy a b", "unknown option '--verfy'; did you mean --verify?"),
    ],
)
def test_options_of_other_programs_lead_to_equivalents(command_line: str, said: str) -> None:
    tool, *words = command_line.split()
    with Run(None, *words, program=(f"pcircle.tools.{tool}",)) as run:
        finished = run.finish()
    assert finished.code == 2
    assert said in finished.said
