"""Plans: listed entries are removed later, unless they have changed; and never too much."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.plans import with_checksums
from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import every_launcher, grow, paths, removed, run_frm
from .test_filters import build as build_aged
from .test_removal import build


@every_launcher
def test_a_plan_is_applied(place: bytes, tmp_path: Path, launcher: Launcher) -> None:
    """The plan has all of an odd tree; making it changes nothing, and its paths are relative."""
    tree = build(place + b"/tree")
    for number in range(3000):
        inner = tree + b"/wide/%d/%d" % (number % 7, number)
        os.makedirs(inner)
        os.mknod(inner + b"/file")
        os.mknod(tree + b"/wide/flat-%d" % number)
    os.mknod(place + b"/single")
    before = paths(place)
    plan = str(tmp_path / "plan")
    done = run_frm(launcher, "-q", "-r", "--plan", plan, "tree", "single", cwd=place)
    assert done.code == 0, done.said
    assert paths(place) == before
    lines = Path(plan).read_text().splitlines()
    assert len(lines) == len(before) + 2
    last = json.loads(lines[-1])
    assert (last["entries"], last["found"]) == (len(before), len(before))
    report = removed(launcher, "--apply", plan)
    assert report["counts"]["kept"] == report["counts"]["failed"] == 0
    assert os.listdir(place) == []


@every_launcher
def test_changed_entries_are_kept_and_named(
    place: bytes, tmp_path: Path, launcher: Launcher
) -> None:
    """They have other content, time, type or inode; new entries are not in the plan."""
    tree = grow(place + b"/tree", [f"d{number}/{name}" for number in range(20) for name in "abc"])
    plan = str(tmp_path / "plan")
    assert run_frm(launcher, "-q", "-r", "--plan", plan, tree).code == 0
    with open(tree + b"/d1/a", "ab") as file:
        file.write(b"more")
    os.utime(tree + b"/d2/b", (1, 1))
    os.rename(tree + b"/d3/c", tree + b"/d3/kept aside")
    os.symlink(b"kept aside", tree + b"/d3/c")
    os.rename(tree + b"/d4", tree + b"/other d4")
    grow(tree, ["d4/a", "d5/new"])
    os.unlink(tree + b"/d6/a")
    gone, lines = {"d6/a": "vanished"}, str(tmp_path / "lines")
    report = removed(launcher, "--apply", plan, "--json-lines", lines, code=1)
    remaining = "d1 d1/a d2 d2/b d3 d3/c d3/kept\\aside d4 d4/a d5 d5/new"
    remaining += " other\\d4 other\\d4/a other\\d4/b other\\d4/c"
    assert paths(tree) == sorted(os.fsencode(name.replace("\\", " ")) for name in remaining.split())
    actions = [json.loads(line) for line in Path(lines).read_text().splitlines()]
    states = {item["path"]: item["state"] for item in actions if item["state"] != "done"}
    assert states == {**dict.fromkeys(("d1/a", "d2/b", "d3/c", "d4", "d5"), "failed"), **gone}
    failures = {item["path"].partition("/tree/")[2]: item for item in report["failures"]}
    assert sorted(failures) == ["d1/a", "d2/b", "d3/c", "d4", "d5"]
    assert {failures[name]["error"] for name in ("d1/a", "d2/b", "d3/c", "d4")} == {"changed"}
    assert failures["d4"]["reason"] == "it has changed since the plan was made"
    assert failures["d5"]["error"] == "ENOTEMPTY"


def test_a_dry_run_of_a_plan_changes_nothing(place: bytes, tmp_path: Path) -> None:
    """It checks entries like the run would: changed ones are named."""
    grow(place, ["tree/d/a", "tree/d/b", "single"])
    plan = str(tmp_path / "plan")
    assert run_frm(ONE, "-q", "-r", "--plan", plan, "tree", "single", cwd=place).code == 0
    before = paths(place)
    assert removed(ONE, "--apply", plan, "--dry-run")["counts"]["found"] == 5
    assert paths(place) == before
    os.utime(place + b"/tree/d/b", (1, 1))
    report = removed(TWO, "--apply", plan, "--dry-run", code=1)
    assert [failure["error"] for failure in report["failures"]] == ["changed"]
    assert paths(place) == before


def test_a_plan_removes_only_what_it_lists(place: bytes, tmp_path: Path) -> None:
    """Filtered and new entries stay, even with -r."""
    grow(place, ["new", "old", "tree/d/f"])
    os.utime(place + b"/old", (0, 0))
    plan = str(tmp_path / "plan")
    options = ["--older-than", "30d", "--plan", plan]
    assert run_frm(ONE, "-q", *options, "new", "old", cwd=place).code == 0
    assert removed(ONE, "--apply", plan)["counts"]["kept"] == 1
    assert paths(place) == [b"new", b"tree", b"tree/d", b"tree/d/f"]
    assert run_frm(ONE, "-q", "-r", "--plan", plan, "tree", cwd=place).code == 0
    os.mkdir(place + b"/tree/d/late")
    assert run_frm(ONE, "-q", "--apply", plan, "-r").code == 1
    assert paths(place) == [b"new", b"tree", b"tree/d", b"tree/d/late"]


def test_a_plan_excludes_itself(place: bytes) -> None:
    """Its ancestors are excluded too, and the remaining entries are removed."""
    grow(place, ["d/in/f", "d/other/f", "d/f"])
    assert run_frm(ONE, "-q", "-r", "--plan", "d/in/p", "d", cwd=place).code == 0
    assert removed(ONE, "--apply", os.fsdecode(place + b"/d/in/p"))["counts"]["failed"] == 0
    assert paths(place) == [b"d", b"d/in", b"d/in/p"]


def test_a_plan_of_filters(place: bytes, tmp_path: Path) -> None:
    """The plan removes the same entries as the filters."""
    tree, theirs = build_aged(place + b"/tree"), place + b"/theirs"
    subprocess.run(["cp", "-a", tree, theirs], check=True)
    plan = str(tmp_path / "plan")
    options = ["-r", "--older-than", "90m", "--exclude", "*.keep"]
    assert run_frm(TWO, "-q", *options, "--plan", plan, tree).code == 0
    assert run_frm(TWO, "-q", "--apply", plan).code == 0
    assert run_frm(ONE, "-q", *options, theirs).code == 0
    assert paths(tree) == paths(theirs)


def test_a_plan_must_be_complete_and_owned_by_the_user(place: bytes, tmp_path: Path) -> None:
    tree = grow(place + b"/tree", ["a", "b"])
    plan = tmp_path / "plan"
    assert run_frm(ONE, "-q", "-r", "--plan", str(plan), tree).code == 0
    text = plan.read_bytes()
    lines = text.splitlines(keepends=True)
    fewer = with_checksums(b"".join(lines[:1] + lines[2:]))
    spoiled = {
        "it is not complete": [b"".join(lines[:-1]), text + text, fewer],
        "line 2 is damaged": [b"".join(lines[:1] + lines[2:])],
        "is not a plan for frm": [b"", b"{}\n", b"x" * 100, text.replace(b'"frm"', b'"fcp"')],
        "invalid path": [
            with_checksums(text.replace(b'"a"', b'"%ba"' % above)) for above in (b"../", b"/")
        ],
    }
    for said, texts in spoiled.items():
        for content in texts:
            plan.write_bytes(content)
            done = run_frm(ONE, "--apply", str(plan))
            assert (done.code, said in done.said) == (2, True), (content, done.said)
    plan.write_bytes(text)
    plan.chmod(0o666)
    done = run_frm(ONE, "--apply", str(plan))
    assert (done.code, "another user owns it or can write to it" in done.said) == (2, True)
    assert paths(tree) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("most", "is_too_much"),
    [("2003", False), ("2002", True), ("0", True), ("50%", True), ("100%", False)],
)
@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_too_many_removals_are_not_begun(
    place: bytes, launcher: Launcher, most: str, is_too_much: bool
) -> None:
    """Entries are counted before anything is removed, and none twice."""
    tree = place + b"/tree"
    for number in range(1000):
        os.makedirs(tree + b"/%d/%d" % (number % 2, number))
        os.mknod(tree + b"/%d/%d/file" % (number % 2, number))
    before = paths(tree)
    done = run_frm(launcher, "-r", "--json", "-", "--max-delete", most, tree)
    if is_too_much:
        assert done.code == 4
        of = " of 2,003" if most.endswith("%") else ""
        assert (
            f"--max-delete {most}: 2,003 entries{of} would be removed; nothing was removed"
            in done.said
        )
        assert paths(tree) == before
    else:
        assert done.code == 0, done.said
        assert json.loads(done.out)["counts"]["found"] == 2003
        assert os.listdir(place) == []


@every_launcher
def test_a_share_refers_to_all_existing_entries(place: bytes, launcher: Launcher) -> None:
    """Entries that filters exclude are part of the total."""
    tree = place + b"/tree"
    for number in range(100):
        grow(tree, [f"d{number % 10}/{number}.{'old' if number % 4 else 'keep'}"])
    # 75 files and five directories of 111 entries.
    options = ("-r", "--exclude", "*.keep", tree)
    assert run_frm(launcher, "--max-delete", "72%", *options).code == 4
    assert run_frm(launcher, "--max-delete", "73%", *options).code == 0
    assert len(paths(tree)) == 30


def test_the_maximum_applies_to_a_dry_run(place: bytes) -> None:
    grow(place, ["tree/a", "tree/b"])
    assert run_frm(ONE, "-r", "--dry-run", "--max-delete", "2", place + b"/tree").code == 4
    assert run_frm(ONE, "-r", "--dry-run", "--max-delete", "3", place + b"/tree").code == 0
    assert paths(place + b"/tree") == [b"a", b"b"]


def test_the_maximum_applies_to_a_plan(place: bytes, tmp_path: Path) -> None:
    tree = grow(place + b"/tree", ["a", "b", "c"])
    plan = str(tmp_path / "plan")
    assert run_frm(ONE, "-q", "-r", "--plan", plan, tree).code == 0
    done = run_frm(ONE, "--apply", plan, "--max-delete", "3")
    assert (done.code, "4 entries would be removed" in done.said) == (4, True)
    assert len(paths(tree)) == 3
    assert run_frm(ONE, "--apply", plan, "--max-delete", "4").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-r|--max-delete=x|tree", "--max-delete: invalid value 'x'"),
        ("-r|--max-delete=-1|tree", "--max-delete: invalid value '-1'"),
        ("-r|--max-delete=1_0|tree", "--max-delete: invalid value '1_0'"),
        ("-r|--max-delete= 5|tree", "--max-delete: invalid value ' 5'"),
        ("-r|--max-delete=\uff15|tree", "--max-delete: invalid value"),
        ("-r|--max-delete=101%|tree", "--max-delete: invalid value '101%'"),
        ("-r|--max-delete=1.5|tree", "--max-delete: invalid value '1.5'"),
        (
            "-r|--max-delete=1|--plan=p|tree",
            "--max-delete cannot be combined with --plan; add it to --apply",
        ),
        ("--apply=p|tree", "--apply takes no PATH: extra operand 'tree'"),
        ("--apply=p|--kind=f", "--apply cannot be combined with filters or --plan"),
        ("--apply=p|--exclude=x", "--apply cannot be combined with filters or --plan"),
        ("--apply=p", "--apply: cannot read 'p': No such file or directory"),
        ("-r|--plan=p|--json-lines=p|tree", "'p' is used by two options"),
        (
            "-r|--max-delete=9|tree/file|tree",
            "--max-delete: 'tree/file' is inside 'tree' and would be counted twice",
        ),
        (
            "-r|--plan=p|tree|tree-1|./tree//file",
            "--plan: './tree//file' is inside 'tree' and would be counted twice",
        ),
        ("-r|--max-delete=9|tree|tree-1|../work/tree/", "--max-delete: 'tree' is given twice"),
    ],
)
def test_refusals(place: bytes, arguments: str, said: str) -> None:
    work = grow(place + b"/work", ["tree/file", "tree-1"])
    done = run_frm(ONE, *arguments.split("|"), cwd=work)
    assert (done.code, done.out) == (2, b"")
    assert done.said.startswith(f"frm: {said}"), done.said
    assert paths(work) == [b"tree", b"tree-1", b"tree/file"]


@pytest.mark.parametrize("options", [[], ["-r"]], ids=["", "-r"])
def test_a_slash_after_a_file_fails(place: bytes, tmp_path: Path, options: list[str]) -> None:
    """As with rm, neither a file nor a link to a directory is a directory.

    Other lines succeed.
    """
    tree, names = grow(place + b"/tree", ["a", "b", "d/c", "d/e/", "f/"]), tmp_path / "names"
    os.symlink("d", tree + b"/l")
    names.write_text("a/\nb\nl/.\nd/c//\nd/e/\nf/\n")
    done = run_frm(ONE, *options, "--files-from", str(names), tree)
    assert done.code == 1
    for name in ("a", "l", "d/c"):
        assert f"/tree/{name}': Not a directory\n" in done.said
    assert "3 failures: 3 ENOTDIR" in done.said
    assert paths(tree) == [b"a", b"d", b"d/c", b"l"]
    names.write_text("a\na/\nl\nd/c\n")
    assert run_frm(ONE, *options, "--files-from", str(names), tree).code in (0, 1)
    assert not os.path.lexists(tree + b"/l")


def test_a_slash_in_a_list_does_not_remove_a_tree(place: bytes, tmp_path: Path) -> None:
    """Without -r a directory must be empty, whatever its spelling."""
    tree, names = grow(place + b"/tree", ["d/a", "e/b"]), tmp_path / "names"
    names.write_text("d/\ne/.\n")
    before = paths(tree)
    assert run_frm(ONE, "-q", "--files-from", str(names), tree).code in (0, 1)
    assert paths(tree) == before
    assert run_frm(ONE, "-q", "-r", "--files-from", str(names), tree).code == 0
    assert paths(tree) == []
