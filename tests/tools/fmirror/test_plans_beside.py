"""`--plan` with `--link-dest` and similar options uses the current state of the other trees."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, Launcher
from tests.tools.fcp.trees import write_file

from .edits import copy_of
from .running import as_root, differences, every_launcher, mirrored, needs_rsync
from .test_judge import state
from .test_moments import contents_of
from .test_plans import applied, planned, read

pytestmark = [as_root, needs_rsync]


def _make_trees(place: bytes) -> tuple[bytes, bytes, bytes]:
    """Create a source, an older copy of it, and a target that has only one file of it."""
    source, target, older = (place + b"/" + name for name in (b"a", b"b", b"older"))
    for number in range(8):
        os.makedirs(source + b"/d/%d" % number)
        path = write_file(source + b"/d/%d/file" % number, b"%d" % number * 5000)
        os.utime(path, (10**9, 10**9))
    copy_of(source, older)
    write_file(source + b"/d/3/new", b"new")
    with open(source + b"/d/4/file", "ab") as stream:
        stream.write(b"changed")
    os.makedirs(target + b"/d/0")
    os.utime(write_file(target + b"/d/0/file", b"old" * 100), (10**8, 10**8))
    write_file(target + b"/gone", b"")
    return source, target, older


@every_launcher
@pytest.mark.parametrize("option", ["--link-dest", "--copy-dest", "--compare-dest"])
def test_a_plan_with_other_trees(
    place: bytes, tmp_path: Path, option: str, launcher: Launcher
) -> None:
    """The result equals a run's, with the contents of the other tree at that time."""
    source, target, older = _make_trees(place)
    plan, words = str(tmp_path / "plan"), f"{option}={os.path.relpath(os.fsdecode(older))}"
    copy_of(target, place + b"/judge")
    mirrored(launcher, "--delete", words, source, place + b"/judge")
    before = state(target), state(older)
    planned(launcher, plan, source, target, words)
    assert before == (state(target), state(older))
    made = {name for name, step in read(plan).steps.items() if step[2] == "copy"}
    assert made >= set(contents_of(place + b"/judge")) - set(contents_of(target))
    finished = applied(launcher, plan, "--json", str(tmp_path / "report"))
    report = json.loads((tmp_path / "report").read_bytes())
    assert contents_of(target) == contents_of(place + b"/judge"), finished.said
    assert os.stat(older + b"/d/5/file").st_nlink == (3 if option == "--link-dest" else 1)
    if option == "--link-dest":
        assert report["linked"] == 6
        assert os.path.samefile(older + b"/d/5/file", target + b"/d/5/file")
    elif option == "--copy-dest":
        assert report["nearby"] == 7
    else:
        assert not os.path.exists(target + b"/d/5/file")
    if option != "--compare-dest":
        assert differences(source, target) == ""
        before = (state(target), state(older))
        applied(launcher, plan)
        assert before == (state(target), state(older))


@pytest.mark.parametrize("option", ["--link-dest", "--copy-dest"])
def test_another_tree_that_has_changed_since_the_plan(
    place: bytes, tmp_path: Path, option: str
) -> None:
    """Its missing files come from the source; entries that are new in the target are left."""
    source, target, older = _make_trees(place)
    plan = str(tmp_path / "plan")
    planned(ONE, plan, source, target, f"{option}={os.fsdecode(older)}")
    write_file(older + b"/d/5/file.new", b"9" * 5000)
    os.rename(older + b"/d/5/file.new", older + b"/d/5/file")
    os.unlink(older + b"/d/6/file")
    os.makedirs(target + b"/d/7")
    write_file(target + b"/d/7/file", b"by somebody else")
    finished = applied(ONE, plan, code=1)
    assert "changed since the plan was made" in finished.said
    for number in (5, 6):
        with open(target + b"/d/%d/file" % number, "rb") as stream:
            assert stream.read() == b"%d" % number * 5000
        assert os.stat(target + b"/d/%d/file" % number).st_nlink == 1
    with open(target + b"/d/7/file", "rb") as stream:
        assert stream.read() == b"by somebody else"
