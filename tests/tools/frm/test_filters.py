"""Filters, compared with find: a directory is removed only if all of its contents were."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights

from .running import every_launcher, grow, paths, removed, run_frm

HOUR_S = 3600


def build(top: bytes) -> bytes:
    """Build files of three sizes, ages and owners, links, a FIFO, and directories with some."""
    os.mkdir(top)
    now = time.time()
    for number in range(60):
        inner = top + b"/d%d/e%d" % (number % 5, number % 3)
        os.makedirs(inner, exist_ok=True)
        path = inner + b"/f%d.%b" % (number, (b"o", b"c", b"keep")[number % 7 % 3])
        with open(path, "wb") as file:
            file.truncate((0, 5000, 200_000)[number % 3])
        if os.geteuid() == 0:
            os.chown(path, 100 + number % 2, 200 + number % 2)
        os.utime(path, (now - number % 4 * HOUR_S, now - number % 4 * HOUR_S))
    os.symlink(b"f0.o", top + b"/d0/link")
    os.mkfifo(top + b"/d1/fifo")
    os.makedirs(top + b"/none/at all")
    return top


CHOICES = [
    (["--older-than", "90m"], ["-mmin", "+90"]),
    (["--newer-than", "90m"], ["-mmin", "-90"]),
    (["--min-size", "5000", "--kind=f"], ["-type", "f", "-size", "+4999c"]),
    (["--max-size", "4999", "--kind=f,d"], ["-type", "f", "-size", "-5000c"]),
    (["--owner", "100"], ["-uid", "100"]),
    (["--group", "201"], ["-gid", "201"]),
    (["--kind", "l,p,d"], ["(", "-type", "l", "-o", "-type", "p", ")"]),
    (["--match", r"e1/.*\.o$"], ["-regex", r".*e1/.*\.o"]),
    (["--exclude", "*.keep"], ["!", "-name", "*.keep"]),
    (["--include", "*.o", "--include", "*/", "--exclude", "*"], ["-name", "*.o"]),
]


@pytest.mark.parametrize(("ours", "of_find"), CHOICES, ids=lambda words: " ".join(words))
def test_filters_select_the_same_as_find(place: bytes, ours: list[str], of_find: list[str]) -> None:
    tree, theirs = build(place + b"/tree"), place + b"/theirs"
    subprocess.run(["cp", "-a", tree, theirs], check=True)
    directories = "--kind=f" not in ours[-1:] and "--kind=f" not in ours
    subprocess.run(["find", theirs, "!", "-type", "d", *of_find, "-delete"], check=True)
    if directories:
        find: list[str | bytes] = ["find", theirs, "-depth", "-type", "d", "-empty"]
        # For initially empty directories, attribute filters check age, owner and path.
        stay = ours[0] in ("--older-than", "--max-size", "--owner", "--group", "--match")
        unless: list[str | bytes] = ["!", "-path", "*/none*"] if stay else []
        subprocess.run([*find, *unless, "-delete"], check=True)
    counts = removed(TWO, "-r", *ours, tree)["counts"]
    assert paths(tree) == paths(theirs)
    assert counts["failed"] == 0
    assert counts["kept"] == sum(1 for _, _, _ in os.walk(tree))


@every_launcher
def test_empty_directories_only(place: bytes, launcher: Launcher) -> None:
    """This includes directories that become empty as a result, as in find."""
    tree = build(place + b"/tree")
    for number in range(500):
        os.makedirs(tree + b"/more/%d/%d/x/y" % (number % 9, number))
        if not number % 100:
            os.mknod(tree + b"/more/%d/%d/x/file" % (number % 9, number))
    subprocess.run(["cp", "-a", tree, place + b"/theirs"], check=True)
    subprocess.run(["find", place + b"/theirs", "-type", "d", "-empty", "-delete"], check=True)
    counts = removed(launcher, "-r", "--empty-dirs", tree)["counts"]
    assert paths(tree) == paths(place + b"/theirs")
    assert counts["files"] == counts["failed"] == 0


@every_launcher
def test_a_kept_entry_keeps_all_its_ancestors(place: bytes, launcher: Launcher) -> None:
    """This holds for any division of the tree among the ranks."""
    tree = place + b"/tree"
    for number in range(2000):
        inner = tree + b"/%d/%d/%d" % (number % 7, number % 40, number)
        os.makedirs(inner)
        os.mknod(inner + b"/file")
        if not number % 251:
            os.mknod(inner + b"/x.keep")
    subprocess.run(["cp", "-a", tree, place + b"/theirs"], check=True)
    find: list[str | bytes] = ["find", place + b"/theirs", "-depth"]
    subprocess.run([*find, "-type", "f", "!", "-name", "*.keep", "-delete"], check=True)
    subprocess.run([*find, "-type", "d", "-empty", "-delete"], check=True)
    removed(launcher, "-r", "--exclude", "*.keep", tree)
    assert paths(tree) == paths(place + b"/theirs")


def test_filters_apply_to_files_given_as_path(place: bytes) -> None:
    grow(place, ["old", "new", "a.keep"])
    os.utime(place + b"/old", (0, 0))
    assert run_frm(ONE, "--older-than", "1d", "old", "new", cwd=place).code == 0
    assert paths(place) == [b"a.keep", b"new"]
    assert run_frm(ONE, "--exclude", "*.keep", "new", "a.keep", cwd=place).code == 0
    assert paths(place) == [b"a.keep"]


EMPTY = ["ar/fresh/", "ar/old/", "ar/became/file", "ar/below/old/"]


@pytest.mark.parametrize(
    ("options", "remaining"),
    [
        (["--older-than", "30d"], "ar ar/fresh"),
        (["--newer-than", "30d"], "ar ar/became ar/became/file ar/below ar/below/old ar/old"),
        (["--max-size", "1k"], "ar ar/below ar/below/old ar/fresh ar/old"),
        (["--owner", "12345"], "ar ar/became ar/became/file ar/below ar/below/old ar/fresh ar/old"),
        (["--match", "fr|file"], "ar ar/below ar/below/old ar/old"),
        (["--exclude", "old"], "ar ar/below ar/below/old ar/old"),
        (["--empty-dirs"], "ar ar/became ar/became/file"),
        (["--kind", "d,f"], ""),
    ],
)
def test_initially_empty_directories_must_match_the_filters(
    place: bytes, options: list[str], remaining: str
) -> None:
    """Directories that became empty are removed in any case, even if they held only these."""
    grow(place, EMPTY)
    for name in ("ar/old", "ar/below/old", "ar/became/file"):
        os.utime(place + b"/" + os.fsencode(name), (0, 0))
    assert removed(TWO, "-r", *options, place + b"/ar")["counts"]["failed"] == 0
    assert paths(place) == os.fsencode(remaining).split()


@pytest.mark.parametrize("below", ["", "/d"])
def test_a_new_unlistable_directory_stays(place: bytes, below: str) -> None:
    """It is removed if it is empty and no filter applies, even as PATH itself."""
    path = grow(place, [f"ar{below}/"]) + os.fsencode(f"/ar{below}")
    os.chmod(path, 0)
    prefix = without_rights("dac_override", "dac_read_search", "fowner")
    assert run_frm(ONE, "-r", "--older-than", "30d", place + b"/ar", prefix=prefix).code == 1
    assert os.path.isdir(path)
    assert run_frm(ONE, "-r", "--newer-than", "30d", place + b"/ar", prefix=prefix).code == 0
    assert paths(place) == []


@pytest.mark.parametrize("jobs", [ONE, TWO], ids=str)
def test_remaining_directories_keep_their_times(place: bytes, jobs: Launcher) -> None:
    """This includes the parent of PATH, and directories that other ranks complete later."""
    tree = build(place + b"/tree")
    for number in range(600):
        grow(tree, [f"wide/{number}/a.keep", f"wide/{number}/b", f"wide/{number}/c/d"])
    stay = [place]
    for directory, _, files in os.walk(tree):
        os.utime(directory, ns=(10**18 + 1, 10**18 + 2))
        if any(name.endswith(b".keep") for name in files):
            stay.append(directory)
    os.utime(place, ns=(10**18 + 1, 10**18 + 2))
    removed(jobs, "-r", "--keep-times", "--exclude", "*.keep", tree, place + b"/tree/d0/link")
    assert len(stay) > 600
    assert {os.stat(path).st_mtime_ns for path in stay} == {10**18 + 2}


def test_a_list_of_paths(place: bytes, tmp_path: Path) -> None:
    """Only listed entries are removed; a directory with its contents only with -r."""
    tree = grow(place + b"/tree", ["a/f", "a/g", "b/in/f", "c/", "d/in/f", "#h", "e/f", "e/g/h"])
    (tmp_path / "list").write_bytes(b"a/f\nc\nb\n./#h\ne\ne/f\ne/g\ne/g/h\nno/such\n")
    done = run_frm(TWO, "-q", "--files-from", str(tmp_path / "list"), tree)
    assert done.code == 1
    shown = tree.decode()
    assert f"cannot remove directory '{shown}/b': Directory not empty\n" in done.said
    remaining = "a a/g b b/in b/in/f d d/in d/in/f"
    assert paths(tree) == os.fsencode(remaining).split()
    done = run_frm(TWO, "-q", "-r", "--files-from", str(tmp_path / "list"), tree)
    assert done.code == 0, done.said
    assert paths(tree) == b"a a/g d d/in d/in/f".split()


@every_launcher
def test_a_long_list(place: bytes, tmp_path: Path, launcher: Launcher) -> None:
    """The list is in any order, with directories before and after their entries; NUL-terminated."""
    tree = place + b"/tree"
    names = []
    for number in range(6000):
        inner = b"%d/%d" % (number % 3, number)
        os.makedirs(tree + b"/" + inner)
        os.mknod(tree + b"/" + inner + b"/new\nline")
        os.mknod(tree + b"/%d/flat %d" % (number % 3, number))
        names += [inner, inner + b"/new\nline", b"%d/flat %d" % (number % 3, number)]
    excepted = set(names[::1000])
    listed = (name + b"\0" for name in names[::-1] if name not in excepted)
    (tmp_path / "list").write_bytes(b"".join(listed))
    report = removed(launcher, "--files-from", str(tmp_path / "list"), "-0", tree, code=1)
    wanted = {os.path.dirname(name) for name in excepted} | excepted | {b"0", b"1", b"2"}
    assert set(paths(tree)) == wanted - {b""}
    assert {failure["error"] for failure in report["failures"]} == {"ENOTEMPTY"}


def test_lists_are_input_for_other_tools(place: bytes) -> None:
    """The list of one removal is input for another; without PATH, paths are relative to `.`."""
    tree = grow(place + b"/tree", ["a/b/c", "a/d", "e"])
    subprocess.run(["cp", "-a", tree, place + b"/copy"], check=True)
    done = run_frm(ONE, "-q", "-r", "--keep-root", "--list-out", "list", "-0", "tree", cwd=place)
    assert done.code == 0, done.said
    done = run_frm(ONE, "-q", "--files-from", "../list", "-0", cwd=place + b"/copy")
    assert done.code == 0, done.said
    assert paths(place) == [b"copy", b"list", b"tree"]
