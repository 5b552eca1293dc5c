"""The phases of a run, as the options select them."""

import pytest

from pcircle.tools.fmirror.cli import parser
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.phases import phases_of


def names(*words: str) -> list[str]:
    """The names of the phases of a command line."""
    args = parser().parse([*words, "a", "b"], {})
    return [phase.name for phase in phases_of(MirrorOptions.of(args))]


END = ["report", "record the state"]


@pytest.mark.parametrize(
    ("words", "phases"),
    [
        ([], ["copy", *END]),
        (["--dry-run"], ["copy", "report"]),
        (["--delete"], ["copy", "check for moves", "remove", *END]),
        (
            ["--delete=during", "--max-delete=9"],
            ["count removals", "copy", "report removals", "check for moves", "remove", *END],
        ),
        (
            ["--delete", "--moved"],
            ["rename moved files", "copy", "check for moves", "remove", *END],
        ),
        (["--move"], ["copy", "remove from the source", *END]),
        (["--plan=p"], ["copy", "complete the plan", "report"]),
        (
            ["--since-manifest=m", "--new-manifest=n"],
            ["compare with the manifest", "copy", *END, "write the manifest"],
        ),
        (
            ["--snapshot", "--keep=7d"],
            [
                *("copy", "check for moves", "remove"),
                *("complete the snapshot", "remove old snapshots", *END),
            ],
        ),
    ],
    ids=str,
)
def test_phases_in_order(words: list[str], phases: list[str]) -> None:
    assert names(*words) == phases
