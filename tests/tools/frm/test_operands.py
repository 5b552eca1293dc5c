"""Refusals, and the effect of each option on PATH itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO

from .running import grow, paths, removed, run_frm


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "missing operand PATH"),
        ("|", "empty file name"),
        ("-r|/", "refusing to remove '/'"),
        ("-r|///", "refusing to remove '///'"),
        ("-r|.", "refusing to remove '.'"),
        ("-r|..", "refusing to remove '..'"),
        ("-r|tree/..", "refusing to remove 'tree/..'"),
        ("-r|tree/.", "refusing to remove 'tree/.'"),
        ("-r|tree/../", "refusing to remove 'tree/../'"),
        ("-r|tree|.", "refusing to remove '.'"),
        ("tree", "'tree' is a directory: add -r, or -d if it is empty"),
        ("-r|tree|no such", "cannot remove 'no such': No such file or directory"),
        ("-r|file/", "cannot remove 'file/': Not a directory"),
        ("-r|link/", "cannot remove 'link/': Not a directory"),
        ("-r|--keep-root|file", "cannot remove 'file': Not a directory"),
        ("-r|--keep-root|link", "cannot remove 'link': Not a directory"),
        ("-ri|tree", "-i and -I are not supported"),
        ("-I|-r|tree", "-i and -I are not supported"),
        ("-r|--cross-mounts|-x|tree", "--cross-mounts cannot be combined with -x"),
        ("-r|--empty-dirs|--kind=f|tree", "--empty-dirs cannot be combined with --kind"),
        ("-r|--ops-limit=0|tree", "--ops-limit: invalid value '0'"),
        ("-r|--list-out=l|tree|file", "--list-out requires one PATH, a directory"),
        ("-r|--list-out=l|--json-lines=l|tree", "'l' is used by two options"),
        ("-r|--stop-after=0|tree", "--stop-after: invalid value '0'"),
    ],
)
def test_refusals(place: bytes, arguments: str, said: str) -> None:
    """The exit code is 2, before anything is touched."""
    grow(place, ["tree/file", "file"])
    os.symlink(b"tree", place + b"/link")
    before = paths(place)
    done = run_frm(TWO, *arguments.split("|") if arguments else (), cwd=place)
    assert (done.code, done.out) == (2, b"")
    assert done.said.startswith(f"frm: {said}"), done.said
    assert paths(place) == before


def test_force_ignores_missing_paths(place: bytes) -> None:
    grow(place, ["tree/file"])
    assert removed(TWO, "-rf", place + b"/no such", place + b"/tree")["counts"]["found"] == 2
    assert removed(TWO, "-rf", place + b"/no such")["counts"]["found"] == 0
    assert run_frm(ONE, "-f", place + b"/no such").code == 0
    grow(place, ["file", "a", "b"])
    missing = ("file/x", "file/x/y", "file/", "b/../a")
    assert subprocess.run(["rm", "-f", *missing], cwd=place).returncode == 0
    assert paths(place) == [b"a", b"b", b"file"]
    assert run_frm(TWO, "-f", "a", *missing, "b", cwd=place).code == 0
    assert paths(place) == [b"file"]


def test_empty_directories_are_removed_with_d(place: bytes) -> None:
    """As with rm -d, a directory that is not empty fails, and its contents are untouched."""
    grow(place, ["empty/", "full/inner/"])
    assert removed(ONE, "-d", place + b"/empty")["counts"]["directories"] == 1
    report = removed(ONE, "-d", place + b"/full", code=1)
    assert report["failures"][0]["reason"] == "Directory not empty"
    assert paths(place) == [b"full", b"full/inner"]


def test_the_root_is_kept_on_request(place: bytes) -> None:
    grow(place, ["tree/a/b", "tree/c"])
    counts = removed(TWO, "-r", "--keep-root", place + b"/tree/")["counts"]
    assert (counts["kept"], counts["files"], counts["directories"]) == (1, 2, 1)
    assert paths(place) == [b"tree"]


def test_repeated_and_nested_paths(place: bytes) -> None:
    """Later removals find nothing, which is the desired result.

    If `a` is removed before both others list its directory, it is unknown to them.
    """
    grow(place, [f"tree/a/{number}/file" for number in range(50)])
    tree = place + b"/tree"
    counts = removed(TWO, "-r", tree, tree, tree + b"/a")["counts"]
    assert counts["vanished"] >= 1
    assert counts["failed"] == 0
    assert os.listdir(place) == []


def test_each_removal_is_shown(place: bytes) -> None:
    grow(place, ["tree/a/b", "tree/c"])
    os.symlink(b"x", place + b"/tree/two\nlines")
    done = run_frm(ONE, "-r", "-v", "tree", cwd=place)
    assert sorted(done.out.splitlines()) == [
        b"removed 'tree'",
        b"removed 'tree/a'",
        b"removed 'tree/a/b'",
        b"removed 'tree/c'",
        rb"removed 'tree/two\x0alines'",
    ]
    assert b"rank  node" not in done.err


def test_a_refused_run_leaves_no_log(place: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("precious")
    assert run_frm(ONE, "-r", "--error-log", str(log), place + b"/no such").code == 2
    assert log.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a link to somebody else")
def test_links_of_other_users_are_not_followed(place: bytes) -> None:
    """The owner of a link decides where it leads; a link of root is as good as a directory."""
    grow(place, ["real/tree/file", "real/file"])
    os.symlink(b"real", place + b"/link")
    os.chmod(place, 0o777)
    os.lchown(place + b"/link", 12345, 12345)
    for name in ("link/tree", "link/file"):
        done = run_frm(ONE, "-r", name, cwd=place)
        assert (done.code, done.said.count("cannot remove")) == (2, 1), done.said
    assert paths(place + b"/real") == [b"file", b"tree", b"tree/file"]
    os.lchown(place + b"/link", 0, 0)
    assert run_frm(ONE, "-r", "link/tree", "link/file", cwd=place).code == 0
    assert paths(place + b"/real") == []


def test_progress_is_reported_in_entries(place: bytes) -> None:
    """Bytes are not reported; the limit makes the run long enough for a line."""
    grow(place, [f"tree/{number}/x" for number in range(300)])
    options = ["--ops-limit", "600", "--interval", "0.2"]
    done = run_frm(ONE, "-r", *options, place + b"/tree")
    assert done.code == 0
    lines = [line for line in done.said.splitlines() if " after " in line]
    assert lines
    assert all(" entries/s" in line and " B" not in line for line in lines), lines
