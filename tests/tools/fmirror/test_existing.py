"""As in rsync, `--existing` creates nothing, and `--ignore-existing` changes nothing else."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.fcp.running import Launcher, Run
from tests.tools.fcp.trees import write_file

from .edits import Tree, copy_of
from .running import (
    FMIRROR,
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    run_fmirror,
)
from .test_judge import state

pytestmark = [as_root, needs_rsync]


@every_launcher
@pytest.mark.parametrize("more", [(), ("--delete",)], ids=str)
def test_missing_entries_are_not_created(
    place: bytes, launcher: Launcher, more: tuple[str, ...]
) -> None:
    source, target, judge = (place + entry for entry in (b"/a", b"/b", b"/judge"))
    for number in range(5):
        tree = Tree(source + b"/%d" % number, 50 + number)
        if not number:
            copy_of(source, target)
        for _ in range(8):
            tree.edit()
    tree = Tree(target + b"/more", 9)
    copy_of(target, judge)
    line: list[str | bytes] = ["rsync", "-aHAX", "--existing", "--modify-window=-1", *more]
    subprocess.run([*line, source + b"/", judge + b"/"], check=True)
    words: list[str | bytes] = ["--existing", *more, source, target]
    before = state(target)
    mirrored(launcher, "--dry-run", *words)
    assert state(target) == before
    mirrored(launcher, *words)
    assert differences(judge, target) == ""
    assert differences(source, target) != ""


@every_launcher
@pytest.mark.parametrize("more", [(), ("--delete",)], ids=str)
def test_a_directory_with_the_name_of_a_file_is_protected_too(
    place: bytes, launcher: Launcher, more: tuple[str, ...]
) -> None:
    """--ignore-existing protects it; a dry run reports the same."""
    source, target, judge = (place + entry for entry in (b"/a", b"/b", b"/judge"))
    for path in (source + b"/name", source + b"/new", target + b"/name/inner"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_file(path, b"content")
    copy_of(target, judge)
    line: list[str | bytes] = ["rsync", "-a", "--ignore-existing", *more]
    subprocess.run([*line, source + b"/", judge + b"/"], check=True)
    for dry in (["--dry-run"], []):
        words: list[str | bytes] = [*dry, "--ignore-existing", *more, source, target]
        finished = run_fmirror(launcher, *words)
        assert finished.code == 0, finished.said
        assert b"1 entry skipped, " in finished.out
    assert differences(judge, target) == ""
    assert os.path.exists(target + b"/name/inner")


def _linked(source: bytes, target: bytes) -> list[bytes]:
    """Create names of linked files, links and FIFOs, some of them in the target; return all."""
    os.makedirs(source + b"/deep")
    os.makedirs(target + b"/deep")
    there = []
    for kind in (b"file", b"link", b"fifo"):
        for has in range(8):  # which of three names the target has, as something else
            names = [b"%b %d%b" % (path, has, kind) for path in (b"a", b"deep/b", b"c")]
            first = source + b"/" + names[0]
            if kind == b"file":
                write_file(first, b"new")
            elif kind == b"link":
                os.symlink(b"new", first)
            else:
                os.mkfifo(first)
            os.utime(first, (1, 1), follow_symlinks=False)
            for name in names[1:]:
                os.link(first, source + b"/" + name, follow_symlinks=False)
            for number, name in enumerate(names):
                if has >> number & 1:
                    write_file(target + b"/" + name, b"precious %d" % number)
                    there.append(name)
    return there


@every_launcher
@pytest.mark.parametrize("option", ["--ignore-existing", "-u"])
@pytest.mark.parametrize("way", ["run", "plan"])
def test_each_of_several_names_is_protected(
    place: bytes, launcher: Launcher, option: str, way: str
) -> None:
    """An entry of B under a name of a hard-linked entry of A is neither replaced nor linked."""
    source, target, judge = (place + entry for entry in (b"/a", b"/b", b"/judge"))
    there = _linked(source, target)
    copy_of(target, judge)
    subprocess.run(["rsync", "-aH", option, source + b"/", judge + b"/"], check=True)
    dry = run_fmirror(launcher, "-v", "--dry-run", option, source, target)
    assert dry.code == 0, dry.said
    shown = {line.split(b" ", 1)[1] for line in dry.out.splitlines() if line[:1] in b">ch."}
    left = [name for name in there if option != "-u" or name.endswith(b"file")]
    assert shown & set(left) == set()
    if way == "run":
        mirrored(launcher, option, source, target)
    else:
        plan = place + b"/plan"
        mirrored(launcher, option, "--plan", plan, source, target)
        mirrored(launcher, "--apply", plan)
    assert differences(judge, target, "--no-times") == ""
    for name in left:
        with open(target + b"/" + name, "rb") as stream:
            assert stream.read().startswith(b"precious")


@every_launcher
def test_a_directory_does_not_replace_a_protected_entry(place: bytes, launcher: Launcher) -> None:
    """With --ignore-existing, the run and the dry run name it, and exit with 1."""
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/name/inner")
    os.makedirs(target)
    write_file(target + b"/name", b"precious")
    for dry in (["--dry-run"], []):
        finished = run_fmirror(launcher, *dry, "--ignore-existing", source, target)
        assert finished.code == 1, finished.said
        assert b"an entry of a different kind has the same name and is kept" in finished.err
    with open(target + b"/name", "rb") as stream:
        assert stream.read() == b"precious"


@pytest.mark.parametrize("option", ["--ignore-existing", "-u"])
def test_a_killed_run_leaves_no_partial_file(place: bytes, option: str) -> None:
    """A file gets its name when it is complete, since it would not be compared again."""
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source)
    with open(source + b"/big", "wb") as stream:
        stream.truncate(4_000_000)
        stream.write(b"x" * 3_000_000)
    words = ["-q", "--sparse=never", "--no-checkpoint", "--bwlimit=1M", option]
    with Run(None, *words, source, target, program=FMIRROR) as run:
        while run.process.poll() is None and not (os.path.isdir(target) and os.listdir(target)):
            time.sleep(0.01)
        run.kill()
    assert not os.path.exists(target + b"/big")
    mirrored(None, option, source, target)
    assert differences(source, target, "--exclude=.fcp-*") == ""


@every_launcher
def test_a_correct_file_is_not_linked_to_a_different_one(place: bytes, launcher: Launcher) -> None:
    """Two inodes of A have equal size and time, and their names are one inode in B."""
    source, target = Path(os.fsdecode(place), "a"), Path(os.fsdecode(place), "b")
    for top in (source, target):
        top.mkdir()
    for name, text in (("f", "XX"), ("g", "YY")):
        (source / f"{name}1").write_text(text)
        (source / f"{name}2").hardlink_to(source / f"{name}1")
    (target / "f1").write_text("XX")
    (target / "g1").hardlink_to(target / "f1")
    (target / "g2").write_text("YY")
    for path in [*source.iterdir(), *target.iterdir()]:
        os.utime(path, (10**9, 10**9))
    sides = os.fsencode(source), os.fsencode(target)
    # The first name decides; a file that only seems equal must not be linked to.
    finished = run_fmirror(launcher, *sides)
    if finished.code:
        assert finished.code == 1, finished.said
        assert "cannot link" in finished.said
        assert "different contents" in finished.said
    else:
        assert (target / "g1").read_text() == "YY"
    assert (target / "g2").read_text() == "YY"
    mirrored(launcher, "-c", *sides)
    assert differences(*sides) == ""
    assert (target / "g1").read_text() == "YY"
