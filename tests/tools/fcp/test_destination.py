"""The destination of a copy: the rules of cp, compared with the real ``cp -r``; and refusals.

Each case is a command line in a small playground. The allowed ones run twice, fcp in one playground
and cp in another, and the playgrounds must end up equal. The refused ones must exit with 2, give
the reason, and leave the playground unchanged to the nanosecond.
"""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from .judge import CONTENT, METADATA, differences, snapshot
from .running import TWO, Launcher, run_fcp, some_launchers
from .trees import make_directory, write_file

AS_CP = (
    # a directory, to a name that is missing
    "d new",
    "d/ new",
    "d new/",
    "d/ new/",
    "d/. new",
    "d/./ new",
    "./d ./new",
    "d//sub// new",
    "d/sub/.. new",
    "-r d new",
    "-R d new",
    "-T d new",
    "-- d new",
    "d e/new",
    "{root}/d {root}/new",
    # a directory, into or onto one that exists
    "d e",
    "d/ e",
    "d e/",
    "d/ e/",
    "d/. e",
    "d/sub/.. e",
    "d full",
    "d full/",
    "d/. full/d",
    "-T d e",
    "--no-target-directory d e",
    "-T d e/",
    "-t e d",
    "--target-directory=e d",
    "d -t e",
    "{root}/d {root}/e/",
    # the destination is a link to a directory
    "d le",
    "d le/",
    "d/. le",
    "f le",
    "f le/",
    "-t le d f",
    # a file
    "f new",
    "f ./new",
    "f g",
    "-T f g",
    "-T f new",
    "f e",
    "f e/",
    "f e/new",
    "-t e f",
    "d/../f new",
    "f e/old",
    # several sources
    "f g e",
    "f d g e",
    "-t e f d",
    "f d g full",
    "d/x f e",
    # the source is a link
    "ld new",
    "lf new",
    "dangling new",
    "ld e",
    "lf e",
    "ld d",
    "lf ld e",
    "ld/ new",
    "ld/ e",
    "ld/. new",
    "ld/x new",
)

REFUSED = (
    # wrong in number or kind
    "",
    "d",
    "-t e",
    "f g new",
    "f d g",
    "d f",
    "d/ f",
    "d dangling",
    "-T f e",
    "-T f g new",
    "-t nowhere f",
    "-t f g",
    "-t e -T f",
    "f new/",
    "f g/",
    "f/ new",
    "f nowhere/new",
    "d nowhere/new",
    "f f/new",
    # missing
    "missing new",
    "missing e",
    "f missing e",
    "-t e f missing",
    "missing/. new",
    # two sources of one name
    "f other/f e",
    "d other/d e",
    "f ./f e",
    "d d/ e",
    "d other/d/ e",
    # into itself
    "d d",
    "d d/sub",
    "d d/new",
    "d/ d/new/",
    "d d/sub/new",
    "d d/sub/../new",
    "d ld",
    "d ld/new",
    "ld/ d/new",
    "d ./e/../d/new",
    "-T d d/new",
    "-t d d",
    "-t d/sub d",
    "d/. d/new",
    "{root}/d d/new",
    "e le",
    ". e",
    ". new",
    # onto itself
    "d .",
    "d/. d",
    "d/. ld",
    "-T d d",
    "-T d ld/",
    "f f",
    "f ./f",
    "f .",
    "f {root}/f",
    "f lf",
    "f h",
    "lf f",
    "d/sub d",
    "d/x d",
    "f e/../f",
)


def _playground(root: bytes) -> bytes:
    make_directory(root, b"d", b"sub")
    make_directory(root, b"e")
    make_directory(root, b"other", b"d")
    make_directory(root, b"full", b"d", b"sub")
    for name, data in {
        b"f": b"this is f",
        b"g": b"this is g, which is longer",
        b"d/x": b"x",
        b"d/sub/y": b"y",
        b"e/old": b"old",
        b"other/f": b"the other f",
        b"other/d/z": b"z",
        b"full/d/x": b"an older and longer x",
        b"full/d/kept": b"kept",
        b"full/d/sub/kept": b"kept",
        b"full/f": b"an older f",
    }.items():
        write_file(os.path.join(root, name), data)
    for name, link in {b"lf": b"f", b"ld": b"d", b"le": b"e", b"dangling": b"nowhere"}.items():
        os.symlink(link, os.path.join(root, name))
    os.symlink(b"x", os.path.join(root, b"d/inner link"))
    os.link(os.path.join(root, b"f"), os.path.join(root, b"h"))
    return root


def _arguments(line: str, root: bytes) -> list[str]:
    return shlex.split(line.replace("{root}", os.fsdecode(root)))


@pytest.mark.parametrize("line", AS_CP)
def test_destination_is_that_of_cp(line: str, place: bytes) -> None:
    ours, theirs = _playground(place + b"/ours"), _playground(place + b"/theirs")
    judge = _arguments(line, theirs)
    subprocess.run(
        ["cp", *([] if judge[0] in ("-r", "-R") else ["-r"]), *judge], check=True, cwd=theirs
    )
    finished = run_fcp(TWO, *_arguments(line, ours), cwd=ours)
    assert finished.code == 0, finished.said
    assert differences(theirs, ours, CONTENT) == []


@pytest.mark.parametrize(
    ("cwd", "line"),
    [(b"d", ". ../new"), (b"d", ". ../e"), (b"d", "sub .."), (b"e", "../d ."), (b"e", "../d/x .")],
)
def test_relative_to_another_directory(cwd: bytes, line: str, place: bytes) -> None:
    ours, theirs = _playground(place + b"/ours"), _playground(place + b"/theirs")
    subprocess.run(["cp", "-r", *line.split()], check=True, cwd=os.path.join(theirs, cwd))
    finished = run_fcp(TWO, *line.split(), cwd=os.path.join(ours, cwd))
    assert finished.code == 0, finished.said
    assert differences(theirs, ours, CONTENT) == []


@pytest.mark.parametrize("line", REFUSED)
def test_refused_before_anything_is_touched(line: str, place: bytes) -> None:
    root = _playground(place + b"/ours")
    before = snapshot(root, METADATA)
    finished = run_fcp(TWO, *_arguments(line, root), cwd=root)
    assert finished.code == 2, finished.said
    assert "fcp: " in finished.said
    assert b"Traceback" not in finished.err
    assert finished.out == b""
    assert snapshot(root, METADATA) == before


@some_launchers
@pytest.mark.parametrize("line", ["d d/sub/new", "f missing e", "d f"])
def test_refusals_under_every_launcher(launcher: Launcher, line: str, place: bytes) -> None:
    root = _playground(place + b"/ours")
    before = snapshot(root, METADATA)
    finished = run_fcp(launcher, *line.split(), cwd=root)
    assert finished.code == 2, finished.said
    # Only rank 0 prints.
    assert finished.said.count("fcp: ") == 1
    assert snapshot(root, METADATA) == before


@pytest.mark.parametrize("line", ["ld new", "lf new", "ld e", "dangling e"])
def test_reports_that_only_a_link_was_copied(line: str, place: bytes) -> None:
    root = _playground(place + b"/ours")
    finished = run_fcp(TWO, *line.split(), cwd=root)
    assert finished.code == 0, finished.said
    assert "link" in finished.said
    assert line.split()[0] in finished.said


def test_links_below_the_source_cause_no_message(place: bytes) -> None:
    """The message is only for the command line; a tree full of links is copied silently."""
    root = _playground(place + b"/ours")
    finished = run_fcp(TWO, "d", "new", cwd=root)
    assert (finished.code, "link" in finished.said) == (0, False)
