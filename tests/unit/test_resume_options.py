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
from pcircle.tools.fcp.cli import FcpOptions
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


@pytest.mark.parametrize(
    ("tool", "words", "same"),
    [
        ("fcp", "--preserve=timestamps,mode --preserve=ownership", "-p"),
        ("fcp", "-a -p", "-a"),
        ("fcp", "-a --preserve=all", "-a"),
        ("fcp", "--preserve=acl,mode", "--preserve=acl"),
        ("fcp", "-n -u -f", "-n"),
        ("fcp", "-p -n --skip-same", "-p -n"),
        ("fcp", "--newer-than=1d --by-time=mtime", "--newer-than=24h"),
        ("fcp", "-P --sparse=auto", ""),
        ("fcp", "--match=x --match=y --match=x", "--match=y --match=x"),
        ("fcp", "--kind=f,d --owner=0,1", "--kind=d,f --owner=1,0,1"),
        ("fmirror", "-a --changed=walk", ""),
        ("fmirror", "--preserve=all", ""),
        ("fmirror", "--preserve=all,mode", "--preserve"),
        ("fmirror", "--ignore-existing -u", "--ignore-existing"),
    ],
)
def test_options_with_the_same_effect_are_equal(tool: str, words: str, same: str) -> None:
    assert _compared(tool, words.split()) == _compared(tool, same.split())


@pytest.mark.parametrize(
    ("tool", "words", "others"),
    [
        ("fcp", "-a", "--preserve=all"),  # does not copy special files
        ("fcp", "-a", "-a --preserve=xattr"),  # entries whose attributes are not kept fail
        ("fcp", "-n", "-u"),
        ("fmirror", "--preserve=mode", ""),
    ],
)
def test_options_with_different_effects_differ(tool: str, words: str, others: str) -> None:
    assert _compared(tool, words.split()) != _compared(tool, others.split())
