"""Modes of directories: unlistable ones are counted, and modes change only on request."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights

from .running import every_launcher, grow, paths, removed, run_frm

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="looks into directories without rights")
BOUND = ("dac_override", "dac_read_search", "fowner")


def unlisted(place: bytes) -> bytes:
    """Create a directory with five empty ones that can't be listed."""
    top = grow(place + b"/top", [f"{number}/" for number in range(5)])
    for name in os.listdir(top):
        os.chmod(top + b"/" + name, 0)
    return top


def modes(top: bytes) -> dict[bytes, int]:
    """Return the modes of all directories of a tree, by path, as visible to root or the owner."""
    return {path: stat.S_IMODE(os.lstat(top + b"/" + path).st_mode) for path in paths(top)}


@every_launcher
def test_empty_unlistable_directories_count(place: bytes, launcher: Launcher) -> None:
    """They are removed, so --max-delete, a dry run and a plan include them."""
    top, prefix = unlisted(place), without_rights(*BOUND)
    for most in ("0", "4", "50%"):
        options = ("-r", "--keep-root", "--max-delete", most)
        assert run_frm(launcher, *options, top, prefix=prefix).code == 4
    assert len(paths(top)) == 5
    report = removed(launcher, "-r", "--dry-run", top, prefix=prefix)
    assert report["counts"]["directories"] == 6
    options = ("-r", "--keep-root", "--max-delete", "5")
    assert run_frm(launcher, *options, top, prefix=prefix).code == 0
    assert paths(top) == []


@as_root
def test_a_plan_contains_unlistable_directories(place: bytes, tmp_path: Path) -> None:
    """One of them is replaced before the plan is applied, and one is no longer empty."""
    top, prefix, plan = unlisted(place), without_rights(*BOUND), str(tmp_path / "plan")
    done = run_frm(ONE, "-q", "-r", "--plan", plan, top, prefix=prefix)
    assert (done.code, len(Path(plan).read_text().splitlines())) == (0, 6 + 2)
    os.rename(top + b"/1", place + b"/aside")
    os.mkdir(top + b"/1", 0)
    os.chmod(top + b"/2", 0o700)
    os.mknod(top + b"/2/file")
    os.chmod(top + b"/2", 0)
    assert run_frm(TWO, "-q", "--apply", plan, prefix=prefix).code == 1
    assert sorted(os.listdir(top)) == [b"1", b"2"]


@as_root
@pytest.mark.parametrize("option", ["--dry-run", "--plan=plan"])
def test_a_plan_or_dry_run_changes_no_mode(place: bytes, option: str) -> None:
    """Unlistable and unsearchable directories are unchanged, although a plan looks up entries."""
    grow(place, ["tree/none/f", "tree/listed/f"])
    os.chmod(place + b"/tree/none", 0)
    os.chmod(place + b"/tree/listed", 0o400)
    before = modes(place)
    arguments = ("-r", "--force-modes", option, "tree")
    assert run_frm(ONE, *arguments, cwd=place, prefix=without_rights(*BOUND)).code == 1
    assert before.items() <= modes(place).items()


def test_force_modes_and_max_delete_exclude_each_other(place: bytes) -> None:
    grow(place, ["tree/f"])
    done = run_frm(ONE, "-r", "--force-modes", "--max-delete", "9", "tree", cwd=place)
    assert done.code == 2
    assert done.said.startswith("frm: --max-delete cannot be combined with --force-modes: ")


@pytest.mark.parametrize("mode", [0o500, 0o300])
def test_the_parent_of_path_keeps_its_mode(place: bytes, mode: int) -> None:
    """This holds with --force-modes, too, because it is not an operand."""
    grow(place, ["holder/tree/f", "holder/file"])
    os.chmod(place + b"/holder/tree", 0)
    os.chmod(place + b"/holder", mode)
    names = ("holder/tree", "holder/file")
    done = run_frm(ONE, "-r", "--force-modes", *names, cwd=place, prefix=without_rights(*BOUND))
    assert done.code == (1 if mode == 0o500 else 0), done.said
    assert stat.S_IMODE(os.stat(place + b"/holder").st_mode) == mode
    assert paths(place + b"/holder") == ([b"file", b"tree"] if mode == 0o500 else [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to somebody else")
def test_times_that_cannot_be_preserved_are_named(place: bytes) -> None:
    """They belong to the parent of PATH and to a remaining directory."""
    grow(place, ["holder/mine", "holder/tree/theirs/f", "holder/tree/theirs/f.keep", "shut/f"])
    for name in (b"/holder", b"/holder/tree/theirs", b"/shut"):
        os.chown(place + name, 12345, 12345)
        os.chmod(place + name, 0o733 if name == b"/shut" else 0o777)
    prefix = without_rights(*BOUND)
    options = ("-r", "--keep-times", "--exclude", "*.keep")
    done = run_frm(ONE, *options, "holder/mine", "holder/tree", cwd=place, prefix=prefix)
    assert done.code == 1, done.said
    assert "frm: cannot keep the times of 'holder': Operation not permitted\n" in done.said
    assert "frm: cannot keep the times of 'holder/tree/theirs': Operation not" in done.said
    assert paths(place + b"/holder") == [b"tree", b"tree/theirs", b"tree/theirs/f.keep"]
    done = run_frm(ONE, *options, "shut/f", cwd=place, prefix=prefix)
    assert (done.code, done.said) == (2, "frm: cannot open 'shut': Permission denied\n")
    assert paths(place + b"/shut") == [b"f"]


def test_a_plan_sets_no_times(place: bytes) -> None:
    """Even the parent of PATH is unchanged, where other users may work."""
    grow(place, ["holder/tree/f"])
    os.utime(place + b"/holder", ns=(10**18, 10**18))
    before = os.stat(place + b"/holder").st_ctime_ns
    options = ("-r", "--keep-times", "--plan", "plan")
    assert run_frm(ONE, *options, "holder/tree", cwd=place).code == 0
    assert os.stat(place + b"/holder").st_ctime_ns == before
