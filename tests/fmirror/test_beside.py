"""`--link-dest` and `--compare-dest`: what another tree has unchanged is linked, or left out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.fcp.running import TWO, Launcher
from tests.fcp.trees import write_file

from .edits import Tree, copy_of
from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    run_fmirror,
)

pytestmark = [as_root, needs_rsync]


def inodes(top: bytes) -> dict[bytes, int]:
    """The inode of each entry that is no directory, by its path below `top`."""
    found = {}
    for here, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            if os.path.islink(path) or not os.path.isdir(path):
                found[os.path.relpath(path, top)] = os.lstat(path).st_ino
    return found


def by_rsync(option: bytes, source: bytes, target: bytes, other: bytes) -> dict[bytes, int]:
    line: list[str | bytes] = ["rsync", "-aHAX", "--modify-window=-1"]
    words = [option + b"=" + other, source + b"/", target + b"/"]
    subprocess.run([*line, *words], check=True)
    return inodes(target)


@every_launcher
def test_unchanged_entries_are_those_of_the_other_tree(place: bytes, launcher: Launcher) -> None:
    """As rsync has it, but for hard-linked files, which are copied."""
    source, other = place + b"/a", place + b"/yesterday"
    for number in range(4):
        tree = Tree(source + b"/%d" % number, 30 + number)
    for number in range(50):
        os.utime(write_file(source + b"/file %d" % number, b"%d" % number), (10**9, 10**9))
    copy_of(source, other)
    for _ in range(20):
        tree.edit()
    os.chmod(source + b"/file 1", 0o600)
    os.utime(source + b"/file 2", (1, 1))
    write_file(source + b"/new", b"")
    before = inodes(other)
    expected = by_rsync(b"--link-dest", source, place + b"/judge", other)
    mirrored(launcher, "--link-dest", other, source, place + b"/b")
    assert differences(source, place + b"/b") == ""
    found = inodes(place + b"/b")
    several = {name for name in found if os.lstat(source + b"/" + name).st_nlink > 1}
    is_old = {name for name in found if found[name] == before.get(name)} - several
    assert is_old == {name for name in expected if expected[name] == before.get(name)} - several
    assert len(is_old) > 48
    assert inodes(other) == before
    assert not is_old & {b"file 1", b"file 2", b"new"}
    expected = by_rsync(b"--compare-dest", source, place + b"/sparse judge", other)
    mirrored(launcher, "--compare-dest", other, source, place + b"/sparse")
    assert inodes(place + b"/sparse").keys() | several == expected.keys() | several


def test_the_first_of_several_trees_that_has_it(place: bytes, tmp_path: Path) -> None:
    source, first, second = (place + each for each in (b"/a", b"/one", b"/two"))
    for side in (source, first, second):
        for name in (b"x", b"y", b"z"):
            os.makedirs(side + b"/d", exist_ok=True)
            path = write_file(side + b"/d/" + name, b"content")
            os.utime(path, (10**9, 10**9))
    os.chmod(first + b"/d/y", 0o600)
    os.chmod(first + b"/d/z", 0o600)
    os.chmod(second + b"/d/z", 0o600)
    words: list[str | bytes] = ["--link-dest", first, "--link-dest", second]
    dry, real = tmp_path / "dry", tmp_path / "real"
    finished = mirrored(TWO, "--dry-run", "-i", "--json", str(dry), *words, source, place + b"/b")
    assert [line[12:] for line in sorted(finished.out.splitlines())] == [b"d/z", b"./", b"d/"]
    mirrored(TWO, "--json", str(real), *words, source, place + b"/b")
    for written in (dry, real):
        report = json.loads(written.read_bytes())
        assert [report[name] for name in ("files", "skipped", "linked")] == [1, 2, 2]
    found = inodes(place + b"/b")
    assert found[b"d/x"] == inodes(first)[b"d/x"]
    assert found[b"d/y"] == inodes(second)[b"d/y"]
    assert found[b"d/z"] not in (*inodes(first).values(), *inodes(second).values())
    before = os.stat(first + b"/d/x")
    os.chmod(source + b"/d/x", 0o600)  # the other tree keeps its mode
    mirrored(TWO, *words, source, place + b"/b")
    assert os.stat(first + b"/d/x").st_mode == before.st_mode
    assert differences(source, place + b"/b") == ""


def test_never_through_a_link(place: bytes) -> None:
    source, other, outside = (place + each for each in (b"/a", b"/other", b"/outside"))
    for side in (source + b"/d", outside):
        os.makedirs(side)
        os.utime(write_file(side + b"/file", b"content"), (10**9, 10**9))
    os.mkdir(other)
    os.symlink(outside, other + b"/d")
    mirrored(TWO, "--link-dest", other, source, place + b"/b")
    assert inodes(place + b"/b") != inodes(outside)
    assert os.stat(outside + b"/file").st_nlink == 1


def test_what_makes_no_sense_is_refused(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source)
    os.makedirs(target + b"/inner")
    cases: list[tuple[list[str | bytes], str]] = [
        (["--link-dest", place + b"/missing"], "is not a directory"),
        (["--link-dest", target + b"/inner"], "lies in"),
        (["--compare-dest", source], "lies in"),
        (["--link-dest", b"/proc"], "not on the file system of"),
        (["--link-dest", place, "--signature"], "cannot be combined"),
    ]
    for words, text in cases:
        finished = run_fmirror(TWO, *words, source, target)
        assert finished.code == 2, words
        assert text in finished.said
