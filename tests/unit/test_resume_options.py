"""A resumed copy must have the same value of each option that decides what it copies, and how.

An option of another section must be declared `same_on_resume`, or is listed here with a reason.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.ops.copy.tree.items import DIRECTORY, CopyPlan, CopyRoot
from pcircle.tools.common.copy_options import CopyOptions
from pcircle.tools.fcp import cli as fcp
from pcircle.tools.fcp.options import FcpOptions
from pcircle.tools.fmirror import cli as fmirror
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.walk.globs import Rule

PLAN = CopyPlan(
    tool="fcp",
    keep=PreservedAttributes(),
    large_bytes=32 << 20,
    token=b"1",
    umask=0,
    roots=(CopyRoot(b".", b"a", b"b", b"", DIRECTORY, b"a", b"b"),),
    chunk_bytes=None,
    directory=b"/",
)
# These options decide where, how fast and with which output a copy runs, but not what it copies.
FREE_SECTIONS = {"Checkpoints", "Output", "Performance", "Safety"}
FREE = {
    "target_directory": "the paths of the copies are compared",
    "exact": "the paths of the copies are compared",
    "recursive": "is part of the list of paths",
    "null": "is part of the list of paths",
    "dry": "has no checkpoint",
    "archive": "is the default of fmirror",
    "numeric_ids": "is the default of fmirror",
    "since_manifest": "starts over",
    "new_manifest": "is written after the copy",
    "full_every_s": "decides whether there is a list of paths",
    "moved": "renames before the copy",
    "state_dir": "decides whether there is a list of paths",
}
DELETIONS = "removes after the copy, or from the source"
VALUES = {
    "--by-time": ["--newer-than=1d", "--by-time=ctime"],
    "--chmod": ["--chmod=u+x"],
    "--chown": ["--chown=0:0"],
    "--group": ["--group=0"],
    "--groupmap": ["--groupmap=1:2"],
    "--kind": ["--kind=f"],
    "--match": ["--match=x"],
    "--owner": ["--owner=0"],
    "--preserve": ["--preserve=mode"],
    "--signature": ["--signature=sha256"],
    "--skip-same": ["-p", "--skip-same"],
    "--sparse": ["--sparse=never"],
    "--stripe": ["--stripe=4"],
    "--usermap": ["--usermap=1:2"],
}
BY_METAVAR = {"DIR": "tree", "SIZE": "1M", "T": "30d"}
TOOLS: dict[str, tuple[Any, type[CopyOptions]]] = {
    "fcp": (fcp, FcpOptions),
    "fmirror": (fmirror, MirrorOptions),
}


def _compared(tool: str, words: list[str]) -> dict[str, Any]:
    cli, options = TOOLS[tool]
    return options.of(cli.parser().parse([*words, "a", "b"], {})).same_on_resume(PLAN)


def _own() -> list[tuple[str, str, list[str]]]:
    """Return each option whose own value is compared, with words that set it."""
    found = []
    for tool, (_, options) in TOOLS.items():
        for field, declared in options.offered():
            for each in (declared, *declared.also):
                if declared.same_on_resume is True and each.arguments.get("const") != "none":
                    metavar = each.arguments.get("metavar")
                    value = f"={BY_METAVAR[metavar]}" if metavar in BY_METAVAR else ""
                    found.append((tool, field, VALUES.get(each.name, [each.name + value])))
    return found


@pytest.mark.parametrize(("tool", "field", "words"), _own())
def test_another_value_is_reported_by_the_name_of_the_option(
    tool: str, field: str, words: list[str]
) -> None:
    before, after = _compared(tool, words[:-1]), _compared(tool, words)
    (name,) = (name for name in before if before[name] != after[name])
    declared = TOOLS[tool][1].declared[field]
    assert (declared.called or declared.name) in name
    assert all(msgspec.msgpack.encode(values) for values in (before, after))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("fact", "value", "name"),
    [("rules", (Rule(False, b"*.o"),), "filters"), ("listed", b"digest", "--files-from")],
)
def test_lists_and_patterns_are_compared_by_their_contents(
    tool: str, fact: str, value: object, name: str
) -> None:
    cli, options = TOOLS[tool]
    found = options.of(cli.parser().parse(["a", "b"], {}))
    other = found.same_on_resume(msgspec.structs.replace(PLAN, **{fact: value}))
    (differing,) = other.items() - found.same_on_resume(PLAN).items()
    assert name in differing[0]


@pytest.mark.parametrize("tool", TOOLS)
def test_all_other_options_have_a_reason(tool: str) -> None:
    options = TOOLS[tool][1]
    free = {
        name
        for section in options.sections
        for name in section.fields
        if not options.declared[name].same_on_resume and section.title not in FREE_SECTIONS
    }
    deletions = next((s.fields for s in options.sections if s.title == "Deletions"), ())
    assert free - FREE.keys() - {*deletions} == set(), DELETIONS


def test_the_order_of_attributes_to_preserve_does_not_matter() -> None:
    words = ["--preserve=timestamps,mode", "--preserve=ownership"]
    assert _compared("fcp", words) == _compared("fcp", ["-p"])
