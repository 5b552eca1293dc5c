"""`--plan` and `--apply`: planned actions are applied later, unless the entries have changed."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle import mirror
from tests.conftest import SOAK
from tests.plans import with_checksums
from tests.strace import max_calls
from tests.tools.fcp.running import ONE, TWO, Finished, Launcher, Run
from tests.tools.fcp.trees import remove_tree, write_file
from tests.tools.frm.test_costs import MAX_RANK_BYTES

from .edits import Tree, copy_of
from .running import (
    FMIRROR,
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
    searched,
)
from .test_judge import CHANGING, pair, shared, state
from .test_moments import contents_of, night

__all__ = ["shared"]
pytestmark = [as_root, needs_rsync]
_ALL = ("--delete", "--allow-empty")


def planned(launcher: Launcher | None, plan: str, source: bytes, target: bytes, *more: str) -> None:
    one = ("-j1",) if launcher is None else ()
    mirrored(launcher, *one, *_ALL, *more, "--plan", plan, source, target)


def applied(launcher: Launcher | None, plan: str, *more: str, code: int = 0) -> Finished:
    one = ("-j1",) if launcher is None else ()
    return mirrored(launcher, *one, "--allow-empty", "--apply", plan, *more, code=code)


class Listed(NamedTuple):
    """The contents of a plan: the paths of each number, with their marks."""

    steps: dict[bytes, tuple[str, str, str]]
    goes: dict[bytes, str]


def read(plan: str) -> Listed:
    found = Listed({}, {})
    for line in Path(plan).read_bytes().splitlines()[1:-1]:
        root, path, mark, _ = json.loads(line)
        name = re.sub(rb"%(..)", lambda match: bytes([int(match[1], 16)]), path.encode())
        if root == 1:
            found.goes[name] = mark
            continue
        source, target, word = mark.split(";")
        if not (word == "within" and name in found.steps):
            found.steps[name] = source, target, word
    return found


def known(top: bytes) -> dict[bytes, tuple[Any, ...]]:
    """Return the identity of each entry: for a directory its inode alone."""
    found = {}
    for here, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            more = () if stat.S_ISDIR(kind) else (status.st_size, status.st_mtime_ns)
            found[os.path.relpath(path, top)] = kind, status.st_ino, *more
    return found


# ---- planned actions are applied -----------------------------------------------------------------


@searched(40, soak=1500)
@given(seed=st.integers(0, 2**40))
def test_a_plan_is_applied(shared: bytes, seed: int) -> None:
    """The first application does everything; a second finds nothing to do."""
    source, target = pair(shared, seed)
    plan = os.fsdecode(shared + b"/plan")
    before = state(source), state(target) if os.path.isdir(target) else b""
    planned(None, plan, source, target)
    assert before == (state(source), state(target) if os.path.isdir(target) else b"")
    applied(None, plan)
    assert differences(source, target) == ""
    before = state(source), state(target)
    applied(None, plan)
    assert before == (state(source), state(target))


@every_launcher
@pytest.mark.parametrize("seed", [11, 22, 33])
def test_every_launcher_does_the_same(
    place: bytes, tmp_path: Path, launcher: Launcher, seed: int
) -> None:
    """The plan is long enough to be divided, and so is its list of removals."""
    source, target = pair(place, seed)
    os.makedirs(target, exist_ok=True)
    for number in range(1200):
        os.makedirs(source + b"/wide/%d" % (number % 40), exist_ok=True)
        write_file(source + b"/wide/%d/%d" % (number % 40, number), b"%d" % number)
        os.makedirs(target + b"/gone/%d" % (number % 40), exist_ok=True)
        os.mknod(target + b"/gone/%d/%d" % (number % 40, number))
        os.mknod(target + b"/flat %d" % number)
    for number in range(700):
        os.link(source + b"/wide/%d/%d" % (number % 40, number), source + b"/link %d" % number)
    plan = str(tmp_path / "plan")
    before = state(place)
    planned(launcher, plan, source, target)
    assert state(place) == before
    text = Path(plan).read_bytes().splitlines()
    assert json.loads(text[-1])["entries"] == len(text) - 2 > 5000
    applied(launcher, plan)
    assert differences(source, target) == ""


@pytest.mark.parametrize(
    "words", [["--checksum"], ["--size-only"], ["--ignore-times"], ["--chmod=g-w"], ["--update"]]
)
def test_options_of_a_plan_take_effect(place: bytes, tmp_path: Path, words: list[str]) -> None:
    """The result equals that of a run without a plan; a second application has nothing to do."""
    source, target = pair(place, 47)
    os.makedirs(target, exist_ok=True)
    for side, text, time_ns in ((source, b"new", 10**18), (target, b"old", 10**18 + 5)):
        for name in (b"same time", b"other time"):
            write_file(side + b"/" + name, text)
            os.utime(side + b"/" + name, ns=(10**18, 10**18 if name == b"same time" else time_ns))
    other, plan = place + b"/other", str(tmp_path / "plan")
    copy_of(target, other)
    planned(ONE, plan, source, target, *words)
    applied(TWO, plan)
    mirrored(ONE, *_ALL, *words, source, other)
    assert contents_of(target) == contents_of(other)
    assert differences(other, target) == ""
    before = state(target)
    applied(TWO, plan)
    assert state(target) == before


def test_filters_select_planned_actions(place: bytes, tmp_path: Path) -> None:
    """Nothing else is done, whatever entries exist when the plan is applied."""
    source, target, plan = place + b"/a", place + b"/b", str(tmp_path / "plan")
    for name in (b"d/new", b"d/out.tmp", b"other"):
        os.makedirs(os.path.dirname(source + b"/" + name), exist_ok=True)
        write_file(source + b"/" + name, b"1")
    os.makedirs(target + b"/d")
    for name in (b"d/gone", b"d/kept.tmp"):
        write_file(target + b"/" + name, b"2")
    planned(ONE, plan, source, target, "--exclude", "*.tmp")
    write_file(source + b"/d/late", b"3")
    write_file(target + b"/d/later", b"4")
    applied(TWO, plan)
    assert sorted(contents_of(target)) == [b"d", b"d/kept.tmp", b"d/later", b"d/new", b"other"]


def test_the_function_supports_plans(place: bytes, tmp_path: Path) -> None:
    source, target = build(place)
    plan = str(tmp_path / "plan")
    report = mirror(source, target, delete="after", plan=plan)
    assert (report.exit_code, report.dry_run, report.removed) == (0, True, 5)
    report = mirror(apply=plan, jobs=2)
    assert (report.exit_code, report.dry_run, report.removed) == (0, False, 5)
    assert differences(source, target) == ""


def untouched(path: bytes) -> list[bytes]:
    """Return a state, except for the time of the last change of the target, and its identity."""
    lines = Path(os.fsdecode(path)).read_bytes().splitlines()
    return [line for line in lines if not line.startswith((b"touched ", b"mark "))]


def test_a_plan_saves_state_only_of_listed_entries(place: bytes, tmp_path: Path) -> None:
    """A plan is not a complete run, after which unchanged times would have a meaning."""
    source, target, plan = place + b"/a", place + b"/b", str(tmp_path / "plan")
    for side in (source, target):
        os.makedirs(side + b"/d")
        os.utime(write_file(side + b"/d/f", b"1"), (1, 1))
    mirrored(ONE, *_ALL, source, target)
    (name,) = (entry for entry in os.listdir(place) if entry.endswith(b".state"))
    before = untouched(place + b"/" + name)
    write_file(source + b"/new", b"2")
    planned(ONE, plan, source, target)
    applied(ONE, plan)
    assert untouched(place + b"/" + name) == before


# ---- changes meanwhile
# ----------------------------------------------------------------------------


def put(path: bytes, text: bytes = b"other") -> None:
    if os.path.lexists(path):
        os.unlink(path)
    write_file(path, text)


def swapped(path: bytes, link: bool = True) -> None:
    """Replace an entry by a link, or by an empty directory."""
    os.rename(path, path + b".moved")
    if link:
        os.symlink(os.path.basename(path) + b".moved", path)
    else:
        os.mkdir(path)


CHANGES: dict[str, tuple[Callable[[bytes, bytes], None], str]] = {
    "its content in A": (lambda a, b: put(a + b"/new"), "new"),
    "it is gone from A": (lambda a, b: os.unlink(a + b"/new"), "new"),
    "it has come to B": (lambda a, b: put(b + b"/new"), "new"),
    "a link has come to B": (lambda a, b: os.symlink(b"old", b + b"/new"), "new"),
    "its time in A": (lambda a, b: os.utime(a + b"/changed", (5, 5)), "changed"),
    "its content in B": (lambda a, b: put(b + b"/changed"), "changed"),
    "it is gone from B": (lambda a, b: os.unlink(b + b"/changed"), "changed"),
    "a link in A": (lambda a, b: swapped(a + b"/mode"), "mode"),
    "a link in B": (lambda a, b: swapped(b + b"/mode"), "mode"),
    "it is in A again": (lambda a, b: put(a + b"/gone"), "gone"),
    "what was to go": (lambda a, b: put(b + b"/gone"), "gone"),
    "a directory in A": (lambda a, b: swapped(a + b"/d", link=False), "d"),
    "a link for a directory of A": (lambda a, b: swapped(a + b"/d"), "d"),
    "a link for a directory of B": (lambda a, b: swapped(b + b"/in"), "in"),
    "a directory has come to B": (lambda a, b: os.mkdir(b + b"/d", 0o711), "d"),
    "a directory has gone from B": (lambda a, b: remove_tree(b + b"/in"), "in"),
    "something came into what is replaced": (lambda a, b: put(b + b"/kind/in/late"), "kind"),
    "something changed in what is replaced": (lambda a, b: put(b + b"/kind/in/file"), "kind"),
}


def build(place: bytes) -> tuple[bytes, bytes]:
    """Build two trees that require each type of action."""
    a, b = place + b"/a", place + b"/b"
    for side in (a, b):
        os.makedirs(side + b"/in/deep")
        for name in (b"old", b"changed", b"mode", b"in/same"):
            os.utime(write_file(side + b"/" + name, b"content"), (10**9, 10**9))
    os.utime(write_file(a + b"/new", b"new"), (10**9, 10**9))
    os.mkdir(a + b"/d")
    write_file(a + b"/d/inner", b"inner")
    put(a + b"/changed", b"content that is new")
    os.chmod(a + b"/mode", 0o600)
    put(a + b"/in/more", b"more")
    put(b + b"/in/deep/surplus")
    put(b + b"/gone", b"surplus")
    put(a + b"/kind", b"a file")
    os.makedirs(b + b"/kind/in")
    put(b + b"/kind/in/file", b"in what is replaced")
    return a, b


def test_the_message_advises_a_new_plan(place: bytes, tmp_path: Path) -> None:
    source, target = build(place)
    plan = str(tmp_path / "plan")
    planned(TWO, plan, source, target)
    put(source + b"/changed")
    finished = run_fmirror(TWO, "--allow-empty", "--apply", plan)
    assert finished.code == 1
    assert "make a new plan" in finished.said


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_changed_entries_are_left_and_named(
    place: bytes, tmp_path: Path, launcher: Launcher, change: str
) -> None:
    """Only they are left; everything else is done."""
    source, target = build(place)
    plan, log = str(tmp_path / "plan"), tmp_path / "log"
    planned(launcher, plan, source, target)
    do, name = CHANGES[change]
    do(source, target)
    was, in_source = contents_of(target), contents_of(source)
    before = state(source), state(target)
    applied(launcher, plan, "--dry-run", "--error-log", str(log), code=1)
    foretold = [json.loads(line) for line in log.read_text().splitlines()]
    assert (state(source), state(target)) == before
    applied(launcher, plan, "--error-log", str(log), code=1)
    now, path = contents_of(target), os.fsencode(name)
    failed = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["entry"] for entry in failed] == [name], failed
    assert [(entry["entry"], entry["doing"]) for entry in foretold] == [(name, failed[0]["doing"])]
    there = {*was, *now, *in_source, *read(plan).goes}
    below = {entry for entry in there if entry == path or entry.startswith(path + b"/")}
    assert {entry: now.get(entry) for entry in below} == {entry: was.get(entry) for entry in below}
    unchanged = [entry for entry in in_source if entry in read(plan).steps and entry not in below]
    assert len(unchanged) > 5
    assert {entry: now.get(entry) for entry in unchanged} == {
        entry: in_source[entry] for entry in unchanged
    }
    for entry in read(plan).goes:
        assert entry in below or now.get(entry) != was.get(entry), entry


@searched(40, soak=1500)
@given(seed=st.integers(0, 2**40))
def test_only_planned_actions_are_applied(shared: bytes, seed: int) -> None:
    """After further edits on both sides only entries in their planned state are changed."""
    source, target = pair(shared, seed)
    if not os.path.isdir(target):
        return
    plan, log = os.fsdecode(shared + b"/plan"), os.fsdecode(shared + b"/log")
    planned(None, plan, source, target)
    then = known(source), known(target)
    random = Random(seed)
    for side in (source, target):
        tree = Tree.__new__(Tree)
        tree.top, tree.random, tree._clock_ns = side, random, 1_800_000_000 * 10**9
        for _ in range(random.randrange(1, 5)):
            tree.edit()
    now = known(source), known(target)
    done = run_fmirror(None, "-q", "-j1", "--allow-empty", "--error-log", log, "--apply", plan)
    assert done.code in (0, 1), done.said
    after, content, wanted = known(target), contents_of(target), contents_of(source)
    listed = read(plan)
    assert not [name for name in after if b".fcp-" in name]
    for path in {*now[1], *after}:
        if now[1].get(path) == after.get(path):
            continue
        if path in after and path in listed.steps:
            assert now[0].get(path) == then[0].get(path), path
            assert now[1].get(path) == then[1].get(path), path
            assert content[path] == wanted[path], path
        else:
            assert path in listed.goes, path
            assert now[1].get(path) == then[1].get(path), path
            assert path not in after, path
    for path, (_, _, word) in listed.steps.items():
        if word == "delete" or not path or done.code:
            continue
        assert content[path][0] == wanted[path][0], path


@searched(30, soak=1500)
@given(seed=st.integers(0, 2**40))
def test_a_dry_run_prints_what_a_plan_would_do(shared: bytes, seed: int) -> None:
    """It prints all actions before the plan is applied, and nothing afterwards."""
    source, target = pair(shared, seed)
    os.makedirs(target, exist_ok=True)
    plan = os.fsdecode(shared + b"/plan")
    planned(None, plan, source, target)
    words = ["-q", "-j1", "-i", "--allow-empty", "--apply", plan]
    before = state(source), state(target)
    dry = run_fmirror(None, "--dry-run", *words)
    assert dry.code == 0, dry.said
    assert (state(source), state(target)) == before
    done = run_fmirror(None, *words)
    assert done.code == 0, done.said
    assert sorted(dry.out.splitlines()) == sorted(done.out.splitlines())
    again = run_fmirror(None, "--dry-run", *words)
    assert (again.code, again.out) == (0, b""), again.said


# ---- refusals
# -------------------------------------------------------------------------------------


def test_a_plan_must_be_complete_and_owned_by_the_user(place: bytes, tmp_path: Path) -> None:
    source, target = build(place)
    plan = tmp_path / "plan"
    planned(ONE, str(plan), source, target)
    before, text = state(target), plan.read_bytes()
    lines = text.splitlines(keepends=True)
    fewer = with_checksums(b"".join(lines[:1] + lines[2:]))
    foreign = [
        (b'"known by"', b'"known"'),
        (b'"checksum"', b'"sum"'),
        (lines[1], b'[0,"","d,1"]\n' + lines[1]),  # a mark of another format
        (b";within", b";without"),
    ]
    spoiled = {
        "it is not complete": [b"".join(lines[:-1]), text + text, fewer],
        "line 2 is damaged": [b"".join(lines[:1] + lines[2:])],
        "is not a plan for fmirror": [
            b"", b"{}\n", b"x" * 100, text.replace(b'"fmirror"', b'"frm"'),
            *(with_checksums(text.replace(a, b)) for a, b in foreign),
        ],
        "invalid path": [
            with_checksums(text.replace(b'"new"', b'"%bnew"' % a)) for a in (b"../", b"/")
        ],
    }  # fmt: skip
    for said, texts in spoiled.items():
        for entry in texts:
            plan.write_bytes(entry)
            done = run_fmirror(TWO, "--apply", str(plan))
            assert (done.code, said in done.said) == (2, True), (entry, done.said)
    plan.write_bytes(text)
    plan.chmod(0o666)
    done = run_fmirror(ONE, "--apply", str(plan))
    assert (done.code, "another user owns it or can write to it" in done.said) == (2, True)
    assert state(target) == before


@pytest.mark.parametrize("name", [b"a", b"b"])
def test_other_trees_are_refused(place: bytes, tmp_path: Path, name: bytes) -> None:
    """Another directory has the name by now, or none."""
    source, target = build(place)
    plan = str(tmp_path / "plan")
    planned(ONE, plan, source, target)
    top = place + b"/" + name
    os.rename(top, place + b"/aside")
    copy_of(place + b"/aside", top)
    before = contents_of(target)
    done = run_fmirror(TWO, "--apply", plan)
    assert done.code == 2
    assert f"/{os.fsdecode(name)}' is not the directory that the plan is for" in done.said
    remove_tree(top)
    assert run_fmirror(TWO, "--apply", plan).code == 2
    os.rename(place + b"/aside", top)
    assert contents_of(target) == before
    applied(ONE, plan)
    assert differences(source, target) == ""


def test_unsafe_sources_of_a_plan_are_refused(place: bytes, tmp_path: Path) -> None:
    """A is empty by now, or another file system, as at an unmounted mount point."""
    source, target = build(place)
    plan = str(tmp_path / "plan")
    planned(ONE, plan, source, target)
    before = state(target)
    for name in os.listdir(source):
        os.rename(source + b"/" + name, place + b"/" + name)
    done = run_fmirror(TWO, "--apply", plan)
    assert (done.code, "is empty" in done.said) == (2, True), done.said
    assert state(target) == before


@pytest.mark.parametrize(("most", "code"), [("4", 4), ("5", 0), ("29%", 4), ("30%", 0)])
def test_the_limit_of_removals_holds(place: bytes, tmp_path: Path, most: str, code: int) -> None:
    """Five entries would be removed, and the source has 12."""
    source, target = build(place)
    plan = str(tmp_path / "plan")
    planned(ONE, plan, source, target)
    assert len(read(plan).goes) == 5
    applied(TWO, plan, "--max-delete", most, code=code)
    assert os.path.lexists(target + b"/gone") == bool(code)
    assert (differences(source, target) == "") == (not code)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--plan p --max-delete 3 a b",
            "combined with --plan; add it to --apply",
        ),
        ("--plan p --moved --delete a b", "--plan cannot be combined with --moved"),
        ("--plan p --backup-dir x a b", "--plan cannot be combined with --backup-dir"),
        ("--plan p --snapshot=x a b", "--plan cannot be combined with --snapshot"),
        ("--plan p --changed=auto a b", "--plan cannot be combined with --changed"),
        ("--plan p --json p a b", "'p' is used by two options"),
        ("--plan a/p a b", "--plan: 'a/p' is inside 'a'"),
        ("--plan b/d/p a b", "--plan: 'b/d/p' is inside 'b'"),
        ("--apply p a b", "--apply takes no PATH: extra operand 'a'"),
        ("--apply p --plan q", "--apply cannot be combined with filters or --plan"),
        ("--apply p --exclude x", "--apply cannot be combined with filters or --plan"),
        ("--apply p --checksum", "--apply cannot be combined with --checksum"),
        ("--apply p --link-dest x", "--apply cannot be combined with --link-dest"),
        ("--apply p --compare-dest x", "--apply cannot be combined with --compare-dest"),
        ("--apply p --delete", "--apply cannot be combined with --delete"),
        ("--apply p", "--apply: cannot read 'p': No such file or directory"),
    ],
)
def test_refusals(place: bytes, words: str, said: str) -> None:
    os.makedirs(place + b"/a/d")
    os.makedirs(place + b"/b/d")
    done = run_fmirror(ONE, *words.split(), cwd=place)
    assert (done.code, done.out) == (2, b"")
    assert said in done.said, done.said
    assert sorted(os.listdir(place)) == [b"a", b"b"]


def test_a_plan_with_failures_is_incomplete(place: bytes, tmp_path: Path) -> None:
    """As in frm, entries that could not be read are not planned."""
    source, target = build(place)
    os.makedirs(target + b"/d/in the way")
    os.rmdir(target + b"/d/in the way")
    write_file(source + b"/last", b"x")
    os.mkdir(target + b"/last")
    plan = str(tmp_path / "plan")
    done = run_fmirror(TWO, "-q", "--plan", plan, source, target)  # without --delete it stays
    assert done.code == 1
    assert "is incomplete and unusable" in done.said
    done = run_fmirror(TWO, "--apply", plan)
    assert (done.code, "it is not complete" in done.said) == (2, True)


# ---- interruptions
# --------------------------------------------------------------------------------


def killed(plan: str, moment: int) -> int:
    prefix = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={CHANGING}"]
    prefix += ["-e", f"inject={CHANGING}:signal=KILL:when={moment}"] if moment else []
    words = ("-q", "-j1", "--threads=1", "--allow-empty", "--resume", "--apply", plan)
    return run_fmirror(None, *words, prefix=prefix).code


@needs_strace
@pytest.mark.parametrize("seed", [5, 6])
def test_a_plan_continues_after_a_kill_at_any_moment(
    place: bytes, tmp_path: Path, seed: int
) -> None:
    """No name lacks its content meanwhile; the same plan then completes it."""
    source, target = night(place, seed)
    log, plan = tmp_path / "calls", str(tmp_path / "plan")
    planned(ONE, plan, source, target)
    prefix = ["strace", "-f", "-o", str(log), "-e", f"trace={CHANGING}"]
    words = ("-q", "-j1", "--threads=1", "--apply", plan)
    assert run_fmirror(None, *words, prefix=prefix).code == 0
    count = max_calls(log)
    assert count > 20
    every = range(1, count + 1)
    # At 13 a file of seed 5 has been created, and has no content yet.
    for moment in every if SOAK else sorted({13, *Random(seed).sample(every, 10)}):
        source, target = night(place, seed)
        planned(ONE, plan, source, target)
        old, new = contents_of(target), contents_of(source)
        killed(plan, moment)
        now = contents_of(target)
        for name in old.keys() & new.keys():
            above = [name[:at] for at, byte in enumerate(name) if byte == ord("/")]
            if all(stat.S_ISDIR(side[entry][0]) for entry in above for side in (old, new)):
                assert now.get(name) in (old[name], new[name]), (moment, name)
        assert killed(plan, 0) == 0, moment
        assert differences(source, target) == "", moment


# ---- costs ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_does_not_grow_with_a_plan(vast_place: bytes) -> None:
    """The plan creates as many entries as it removes."""
    source, target = vast_place + b"/a", vast_place + b"/b"
    files = 1_000_000 if SOAK else 60_000
    for side in (source, target):
        os.makedirs(side)
        fd = os.open(side, os.O_RDONLY)
        for number in range(files):
            os.mknod(b"%b, a name of some length, %d" % (side[-1:], number), dir_fd=fd)
        os.close(fd)
    plan, report = os.fsdecode(vast_place + b"/plan"), os.fsdecode(vast_place + b"/report")
    peaks = {}
    for step in ("planned", "applied"):
        if step == "planned":
            mirrored(TWO, "--delete", "--json", report, "--plan", plan, source, target)
        else:
            mirrored(TWO, "--json", report, "--apply", plan)
        said = json.loads(Path(report).read_bytes())
        assert (said["files"], said["removed"]) == (files, files)
        peaks[step] = max(rank["peak_rss_bytes"] for rank in said["ranks"])
    assert differences(source, target) == ""
    assert max(peaks.values()) < MAX_RANK_BYTES, peaks


@pytest.mark.parametrize("change", ["other", "gone", "link"])
def test_a_name_is_checked_before_it_is_replaced(place: bytes, tmp_path: Path, change: str) -> None:
    """This holds after long copies, for the file and for the names that become links to it."""
    a, b = place + b"/a", place + b"/b"
    for side in (a, b):
        os.mkdir(side)
        for name in (b"large", b"linked", b"second"):
            if side == b or name != b"second":
                write_file(side + b"/" + name, b"old")
    for name in (b"large", b"linked"):
        put(a + b"/" + name, bytes([7]) * (12 << 20))
    os.link(a + b"/linked", a + b"/second")
    plan = str(tmp_path / "plan")
    planned(None, plan, a, b)
    words = ["-j1", "--chunksize=4M", "--bwlimit=6M", "--no-checkpoint", "--apply", plan]
    with Run(None, "-q", *words, program=FMIRROR) as run:
        until_s = time.monotonic() + 60
        while not any(os.path.getsize(entry) for entry in temporaries(b)):
            assert time.monotonic() < until_s
            time.sleep(0.01)
        for name in (b"large", b"linked", b"second"):
            os.unlink(b + b"/" + name)
            if change == "other":
                write_file(b + b"/" + name, b"what has come since")
            elif change == "link":
                os.symlink("nowhere", b + b"/" + name)
        finished = run.finish()
    assert finished.code == 1
    for name in (b"large", b"linked", b"second"):
        path = b + b"/" + name
        assert f"cannot carry out the plan for '{os.fsdecode(a)}/{name.decode()}'" in finished.said
        if change == "gone":
            assert not os.path.lexists(path)
        else:
            assert os.path.lexists(path)
            assert os.lstat(path).st_size < 100, name
    assert temporaries(b) == []


def temporaries(top: bytes) -> list[bytes]:
    """Return the temporary files of a run."""
    names = [name for name in os.listdir(top) if name.startswith(b".fcp-")]
    return [os.path.join(top, name) for name in names if not name.startswith(b".fcp-mark")]
