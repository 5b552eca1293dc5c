"""Plans: -delete with a plan records the entries, and removes later those that have not changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.ffind.calling import find

from .running import run_ffind
from .test_actions import below, grow

every_plan = pytest.mark.parametrize("launcher", [ONE, TWO, Launcher(jobs=4)], ids=str)


def planned(plan: Path) -> set[str]:
    """Return the paths in a plan, below its PATHs."""
    lines = plan.read_text().splitlines()
    paths = [json.loads(line)[1] for line in lines[1:-1]]
    assert json.loads(lines[-1])["entries"] == len(paths)
    return set(paths)


@every_plan
@pytest.mark.parametrize(
    "words",
    [
        (".", "-name", "*.o", "-delete"),
        (".", "-delete"),
        ("a", "c", "7.o", "link.o", "d/dir.o", "-delete"),
        (".", "-mindepth", "2", "-print", "-delete"),
        ("a/", "./d", "-type", "f", "-delete"),
        ("-H", "to a", "-name", "*.c", "-delete"),
    ],
)
def test_a_plan_is_applied(tmp_path: Path, launcher: Launcher, words: tuple[str, ...]) -> None:
    """The result equals that of -delete itself; making a plan changes nothing."""
    ours, theirs = grow(tmp_path / "ours"), grow(tmp_path / "theirs")
    for top in (ours, theirs):
        (top / "to a").symlink_to("a")
    plan, before = tmp_path / "plan", below(ours)
    made = run_ffind(launcher, *words, "--plan", str(plan), cwd=bytes(ours))
    assert (made.code, " would be removed, " in made.said) == (0, True)
    assert below(ours) == before
    deleted = run_ffind(ONE, *words, cwd=bytes(theirs))
    assert (deleted.code, sorted(deleted.out)) == (0, sorted(made.out))
    applied = run_ffind(launcher, "--apply", str(plan))
    assert (applied.code, applied.said, applied.out) == (0, "", b"")
    assert below(ours) == below(theirs) != before


@every_plan
def test_changed_entries_are_kept_and_named(tmp_path: Path, launcher: Launcher) -> None:
    """They have other content, time, type or inode; new entries are not in the plan."""
    top = tmp_path / "tree"
    for number in range(20):
        (top / f"d{number}").mkdir(parents=True)
        for name in "abc":
            (top / f"d{number}" / name).write_bytes(b"x")
    plan, report = tmp_path / "plan", tmp_path / "report"
    assert run_ffind(launcher, str(top), "-mindepth", "1", "-delete", "--plan", str(plan)).code == 0
    assert len(planned(plan)) == 80
    (top / "d1/a").write_bytes(b"more")
    os.utime(top / "d2/b", (1, 1))
    (top / "d3/c").rename(top / "aside")
    (top / "d3/c").symlink_to("a")
    (top / "d4").rename(top / "other")
    (top / "d4").mkdir()
    (top / "d4/a").write_bytes(b"x")
    (top / "d5/new").write_bytes(b"x")
    (top / "d6/a").unlink()
    before = below(top)
    dry = run_ffind(launcher, "--apply", str(plan), "--dry-run")
    assert dry.code == 1
    assert below(top) == before
    done = run_ffind(launcher, "--apply", str(plan), "--json", str(report))
    assert done.code == 1
    remaining = "aside d1 d1/a d2 d2/b d3 d3/c d4 d4/a d5 d5/new other other/a other/b other/c"
    assert below(top) == remaining.split()
    for name in ("d1/a", "d2/b", "d3/c", "d4"):
        assert f"tree/{name}': it has changed since the plan was made" in done.said
    counts = json.loads(report.read_text())["counts"]
    assert (counts["failed"], counts["vanished"]) == (5, 1)  # d5 has a new entry


def test_a_plan_excludes_itself(tmp_path: Path) -> None:
    """The directories that contain it are excluded as well."""
    top = grow(tmp_path / "tree")
    made = run_ffind(TWO, ".", "-delete", "--plan", "d/e/plan", cwd=bytes(top))
    assert made.code == 0
    assert planned(top / "d/e/plan").isdisjoint({"d", "d/e", "d/e/plan"})
    assert run_ffind(TWO, "--apply", "d/e/plan", cwd=bytes(top)).code == 0
    assert below(top) == ["d", "d/e", "d/e/plan"]


def test_a_path_behind_a_link_is_not_planned(tmp_path: Path) -> None:
    """-delete itself fails there; the plan is complete for the remaining entries."""
    top, plan = grow(tmp_path / "tree"), tmp_path / "plan"
    (top / "to a").symlink_to("a")
    words = ("-H", "to a", "-delete", "--plan", str(plan))
    made = run_ffind(ONE, *words, cwd=bytes(top))
    assert (made.code, "Not a directory" in made.said) == (1, True)
    assert planned(plan) == {"1", "2", "b", "b/3.o", "b/4.c"}


def test_a_link_that_takes_a_directorys_place_is_not_followed(tmp_path: Path) -> None:
    top, other = grow(tmp_path / "tree"), grow(tmp_path / "other")
    plan = tmp_path / "plan"
    words = (str(top), "-type", "f", "-delete", "--plan", str(plan))
    assert run_ffind(TWO, *words).code == 0
    (top / "a").rename(tmp_path / "was")
    (top / "a").symlink_to(other / "a")
    before = below(other)
    assert run_ffind(TWO, "--apply", str(plan)).code == 1
    assert below(other) == before
    assert below(tmp_path / "was") == ["1", "2", "b", "b/3.o", "b/4.c"]
    assert not (top / "c/5.o").exists()


@every_plan
def test_the_maximum_applies_to_a_plan(tmp_path: Path, launcher: Launcher) -> None:
    top, plan = grow(tmp_path / "tree"), str(tmp_path / "plan")
    words = (".", "-name", "*.o", "-delete", "--plan", plan)
    assert run_ffind(launcher, *words, cwd=bytes(top)).code == 0
    before = below(top)
    for most in ("5", "30%"):
        refused = run_ffind(launcher, "--apply", plan, "--max-delete", most)
        assert (refused.code, "6 entries" in refused.said) == (4, True)
        assert below(top) == before
    assert run_ffind(launcher, "--apply", plan, "--max-delete", "6").code == 0
    assert len(below(top)) == len(before) - 6


def test_a_program_plans_and_applies(tmp_path: Path) -> None:
    top, plan = grow(tmp_path / "tree"), str(tmp_path / "plan")
    assert find(str(top), "-name", "*.c", "-delete", plan=plan, jobs=1) is not None
    done = find(apply=plan, jobs=1)
    assert (done.report.exit_code, done.report.counts["files"], done.text) == (0, 1, b"")
    assert not (top / "a/b/4.c").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (". --plan p", "--plan requires -delete"),
        (". -delete -exec true ; --plan p", "--plan cannot be combined with -exec"),
        (
            ". -delete --plan p --max-delete 3",
            "--max-delete cannot be combined with --plan; add it to --apply",
        ),
        ("a a/b -delete --plan p", "--plan: 'a/b' is inside 'a' and would be counted twice"),
        ("a ./a -delete --plan p", "--plan: 'a' is given twice"),
        ("--apply p", "--apply: cannot read 'p': No such file or directory"),
        ("--apply frm", "--apply: 'frm' is not a plan for ffind: it is a plan for frm"),
        ("--apply frm .", "--apply takes no PATH: extra operand '.'"),
        ("--apply frm -delete", "--apply takes no expression"),
        ("--apply frm --exclude x", "--apply cannot be combined with filters or --plan"),
        ("--apply frm --plan p", "--apply cannot be combined with filters or --plan"),
        ("--apply frm --sort", "--apply cannot be combined with --sort"),
        ("--apply frm --stat=never", "--apply cannot be combined with --stat=never"),
    ],
)
def test_refusals(tmp_path: Path, words: str, said: str) -> None:
    top = grow(tmp_path / "tree")
    (top / "frm").write_text('{"plan":1,"tool":"frm","directory":"/","roots":[]}\n')
    before = below(top)
    done = run_ffind(ONE, *words.split(), cwd=bytes(top))
    assert (done.code, done.out) == (2, b"")
    assert done.said.startswith(f"ffind: {said}"), done.said
    assert below(top) == before
