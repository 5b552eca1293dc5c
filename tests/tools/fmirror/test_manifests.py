"""`--since-manifest`: a manifest replaces reading the target."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.conftest import SOAK
from tests.fusefs.mounting import Mounted
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher, Run
from tests.tools.fcp.trees import write_file

from .edits import Tree, cleared
from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)
from .test_dry import by_rsync, itemized
from .test_judge import state
from .test_moments import hooked_run

pytestmark = [as_root, needs_rsync]
_QUIET_S = 2.2  # younger changes at the start of a run may be missed
_SEEDS = range(100 if SOAK else 3)
_USED = "the target is not read"
_ALL = "examining the entire target"


def summed(target: bytes, *more: str) -> bytes:
    """Create a manifest of a tree, next to it."""
    path = target + b".manifest"
    with Run(
        TWO, "-q", "--force", "-o", path, *more, target, program=("pcircle.tools.fsum",)
    ) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    return path


def since(
    launcher: Launcher | None, manifest: bytes, source: bytes, target: bytes, *more: str | bytes
) -> str:
    """Return the output of a run with --delete and a manifest."""
    words = ("--delete", "--allow-empty", "--since-manifest", manifest, *more, source, target)
    finished = run_fmirror(launcher, *words)
    assert finished.code == 0, finished.said
    return finished.said


@every_launcher
def test_over_many_nights(place: bytes, launcher: Launcher) -> None:
    for seed in _SEEDS:
        source, target = place + b"/a%d" % seed, place + b"/b%d" % seed
        tree = Tree(source, seed)
        mirrored(launcher, source, target)
        for _ in range(3):
            manifest = summed(target)
            for _ in range(tree.random.randrange(1, 12)):
                tree.edit()
            how = tree.random.choice(([], ["-c"], ["--ctime"], ["--size-only"]))
            said = since(launcher, manifest, source, target, *how)
            assert (_USED in said) or "--ctime" in how, said
            assert differences(source, target) == "", (seed, how, said)
        manifest, before = summed(target), state(target)
        said = since(launcher, manifest, source, target)
        assert _USED in said
        assert state(target) == before, seed


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_dry_run_predicts_the_run(place: bytes, seed: int) -> None:
    source, target = place + b"/a", place + b"/b"
    tree = Tree(source, 100 + seed)
    mirrored(TWO, source, target)
    words = ("-i", "--since-manifest", summed(target), source, target)
    for _ in range(9):
        tree.edit()
    expected, before = by_rsync(source, target), state(target)
    assert itemized(TWO, "--dry-run", *words) == expected
    assert state(target) == before
    assert itemized(TWO, *words) == expected
    assert differences(source, target) == ""


@needs_strace
@pytest.mark.parametrize("how", [[], ["-c"], ["--exclude=none"]], ids=" ".join)
def test_unchanged_entries_are_not_looked_up(place: bytes, tmp_path: Path, how: list[str]) -> None:
    """In the target only the root, changed directories, and their changed entries are read."""
    source, target = place + b"/a", place + b"/b"
    for directory in (b"/same/deeper", b"/other"):
        os.makedirs(source + directory)
        for number in range(20):
            write_file(source + directory + b"/%d" % number, b"content")
        os.symlink("nowhere", source + directory + b"/link")
        os.mkfifo(source + directory + b"/fifo")
    time.sleep(_QUIET_S)
    mirrored(ONE, source, target)
    manifest = summed(target)
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-y", "-v", "-o", str(log), "-e", "trace=%file,%desc"]
    words: list[str | bytes] = ["-q", "--delete", "--since-manifest", manifest, *how]
    words += [source, target]
    assert run_fmirror(ONE, *words, prefix=prefix).code == 0
    top = os.fsdecode(target)
    calls = [call for call in read_calls(log) if top in call.text]
    assert [call for call in calls if re.search(re.escape(top) + "/(same|other)", call.text)] == []
    assert [call for call in calls if call.name == "getdents64" and f"{top}>" in call.text] == []
    write_file(source + b"/other/new", b"")
    os.unlink(source + b"/other/7")
    os.utime(manifest)  # the previous run has changed nothing
    assert run_fmirror(ONE, *words, prefix=prefix).code == 0
    calls = [call for call in read_calls(log) if f"{top}/" in call.text]
    assert [call for call in calls if f"{top}/same" in call.text] == []
    assert [call for call in calls if f'{top}/other>, "3"' in call.text] == []
    assert [call for call in calls if f'{top}/other>, "new"' in call.text] != []
    assert differences(source, target) == ""


def test_changes_of_modes_and_links_only(place: bytes) -> None:
    """The manifest does not contain them, even below exchanged directories."""
    source, target = place + b"/a", place + b"/b"
    for name in (b"one", b"two"):
        os.makedirs(source + b"/in/" + name + b"/deep")
        path = write_file(source + b"/in/" + name + b"/deep/file", b"content")
        os.utime(path, (10**9, 10**9))
        os.chmod(path, 0o600 if name == b"one" else 0o644)
        os.utime(source + b"/in/" + name + b"/deep", (10**9, 10**9))
        os.utime(source + b"/in/" + name, (10**9, 10**9))
    os.mkdir(source + b"/out")
    os.link(write_file(source + b"/in/one/deep/linked", b"x"), source + b"/out/linked")
    time.sleep(_QUIET_S)
    mirrored(TWO, source, target)
    manifest = summed(target)
    os.rename(source + b"/in/one", source + b"/in/aside")
    os.rename(source + b"/in/two", source + b"/in/one")
    os.rename(source + b"/in/aside", source + b"/in/two")
    assert _USED in since(TWO, manifest, source, target)
    assert differences(source, target) == ""


def test_content_is_compared_by_digest(place: bytes) -> None:
    """This finds changes with equal size and time, where change times do not count."""
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    path = write_file(source + b"/file", b"content")
    os.utime(path, (10**9, 10**9))
    keep = "--preserve=timestamps"
    mirrored(TWO, keep, source, target)
    manifest = summed(target, "--algorithm=sha256")
    with open(path, "wb") as stream:
        stream.write(b"CONTENT")
    os.utime(path, (10**9, 10**9))
    since(TWO, manifest, source, target, keep)
    assert differences(source, target) != ""
    since(TWO, summed(target), source, target, keep, "-c")
    assert differences(source, target) == ""


def test_files_with_a_new_ctime_are_read(place: bytes) -> None:
    """This holds if a manifest has all attributes, and below a renamed directory."""
    source, target = place + b"/a", place + b"/b"
    for name in (b"in/one", b"in/two"):
        os.makedirs(source + b"/" + name)
        os.utime(write_file(source + b"/" + name + b"/file", name), (10**9, 10**9))
    os.utime(write_file(source + b"/own", b"content"), (10**9, 10**9))
    time.sleep(_QUIET_S)
    keep = ("--preserve=timestamps", "--ctime")
    mirrored(TWO, *keep, source, target)
    manifest = summed(target)
    for old, new in ((b"one", b"aside"), (b"two", b"one"), (b"aside", b"two")):
        os.rename(source + b"/in/" + old, source + b"/in/" + new)
    with open(source + b"/own", "wb") as stream:
        stream.write(b"CONTENT")
    os.utime(source + b"/own", (10**9, 10**9))
    assert _USED in since(TWO, manifest, source, target, *keep)
    assert differences(source, target) == ""


def test_filtered_names_stay(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    for name in (b"one.tmp", b"two", b"three.tmp", b"d/four.tmp", b"d/five", b"kept"):
        os.makedirs(os.path.dirname(source + b"/" + name), exist_ok=True)
        write_file(source + b"/" + name, name)
    mirrored(TWO, source, target)
    manifest = summed(target)
    for name in (b"one.tmp", b"two", b"d/four.tmp", b"kept"):
        os.unlink(source + b"/" + name)
    write_file(source + b"/new.tmp", b"")
    more = ("--exclude=*.tmp", "--protect=kept")
    assert _USED in since(TWO, manifest, source, target, *more)
    assert sorted(os.listdir(target)) == [b"d", b"kept", b"one.tmp", b"three.tmp"]
    assert sorted(os.listdir(target + b"/d")) == [b"five", b"four.tmp"]


def test_changes_unknown_to_the_manifest_lose_nothing(place: bytes) -> None:
    """Correct entries in a target that another user has changed stay."""
    source, target = place + b"/a", place + b"/b"
    for name in (b"in/x/file", b"in/y/file", b"in/z/file"):
        os.makedirs(os.path.dirname(source + b"/" + name))
        write_file(source + b"/" + name, name)
    mirrored(TWO, source, target)
    manifest = summed(target)
    write_file(target + b"/in/y/own", b"somebody's")  # a directory that is not read
    os.rename(target + b"/in/z", target + b"/in/w")
    os.unlink(source + b"/in/x/file")
    os.unlink(source + b"/in/z/file")
    write_file(source + b"/in/z/new", b"")
    since(TWO, manifest, source, target)
    left = [line for line in differences(source, target).splitlines() if line.startswith("*")]
    assert {line.split()[1] for line in left} == {"in/y/own", "in/w/file", "in/w/"}
    said = since(TWO, manifest, source, target)
    assert f"{_ALL}: the target may have been changed by a run since" in said
    assert differences(source, target) == ""


def test_unsuitable_manifests_are_refused(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    write_file(source + b"/file", b"x")
    mirrored(TWO, source, target, "--state-dir", place)
    manifest = summed(target)
    os.mkdir(place + b"/none")
    assert "no earlier complete run" in since(
        TWO, manifest, source, target, "--state-dir", place + b"/none"
    )
    os.unlink(target + b"/file")
    said = since(TWO, summed(target), source, target, "--state-dir", place, "--chmod=F600")
    assert "set other owners" in said
    assert os.listdir(target) == [b"file"]
    mirrored(TWO, "--preserve=mode", "-c", source, target)
    said = since(TWO, summed(target), source, target)
    assert f"{_ALL}: the last complete run kept fewer attributes" in said
    assert _USED in since(TWO, summed(target), source, target)
    said = since(TWO, summed(target), source, target, "--ctime")
    assert (
        f"{_ALL}: the last complete run did not record the source, or ran without --ctime" in said
    )
    assert _USED in since(TWO, summed(target), source, target, "--ctime")


def test_an_interrupted_run_is_not_forgotten(place: bytes) -> None:
    """It has changed the target after the manifest, and was not completed."""
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    mirrored(TWO, source, target)
    manifest = summed(target)
    for number in range(50):
        write_file(source + b"/%d" % number, b"%d" % number)
    for limit_s in (0.5, 5, 30):  # a busy machine may change nothing in a short time
        limits = (f"--ops-limit={25 / limit_s}", f"--stop-after={limit_s}")
        assert run_fmirror(ONE, "-q", *limits, source, target).code == 4
        if os.listdir(target):
            break
    assert 0 < len(os.listdir(target)) < 50
    for number in range(50):
        os.unlink(source + b"/%d" % number)
    assert _ALL in since(TWO, manifest, source, target)
    assert differences(source, target) == ""


@needs_strace
def test_an_unreadable_directory_prevents_all_removals(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    for name in (b"x/file", b"y/file"):
        os.makedirs(os.path.dirname(source + b"/" + name))
        write_file(source + b"/" + name, name)
    mirrored(TWO, source, target)
    manifest = summed(target)
    os.unlink(source + b"/x/file")
    os.unlink(source + b"/y/file")
    path = os.fsdecode(source + b"/y")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", "inject=getdents64:error=EIO"]
    words = ("-q", "--delete", "--since-manifest", manifest, source, target)
    finished = run_fmirror(TWO, *words, prefix=prefix)
    assert finished.code == 1
    assert "could not be read" in finished.said
    assert os.path.exists(target + b"/x/file")
    assert os.path.exists(target + b"/y/file")


def test_a_name_in_another_case_is_not_removed(place: bytes, fuse: Callable[..., Mounted]) -> None:
    source, target = place + b"/a", fuse(folding="case").path + b"/b"
    os.mkdir(source)
    write_file(source + b"/Name", b"x")
    keep = ("--preserve=timestamps", "--state-dir", place)
    mirrored(TWO, *keep, source, target)
    manifest = os.fsencode(shutil.move(os.fsdecode(summed(target)), os.fsdecode(place + b"/m")))
    os.rename(source + b"/Name", source + b"/name")
    assert _USED in since(TWO, manifest, source, target, *keep)
    assert [name.lower() for name in os.listdir(target)] == [b"name"]


def test_invalid_options_are_refused(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    write_file(source + b"/file", b"x")
    mirrored(TWO, source, target)
    manifest = summed(target)
    other = summed(source)
    with open(manifest, "rb") as stream:
        text = stream.read()
    damaged = write_file(place + b"/damaged", text.replace(b" file\n", b" fole\n"))
    a_file = summed(source + b"/file")
    cases: list[tuple[list[str | bytes], str]] = [
        ([other], f"is a manifest of '{os.fsdecode(source)}', not of"),
        ([damaged], "line 5: checksum mismatch"),
        ([a_file], "is the manifest of a file"),
        ([source + b"/file"], "not an fsum manifest"),
        ([place + b"/missing"], "cannot read"),
        ([manifest, "--files-from=-"], "cannot be combined with --files-from"),
        ([manifest, "--moved", "--delete"], "cannot be combined with --moved"),
        ([manifest, "--snapshot"], "cannot be combined with --snapshot"),
        ([manifest, "--signature"], "cannot be combined with --signature"),
        ([manifest, "-I"], "cannot be combined with --ignore-times"),
        ([manifest, "--changed=fs"], "cannot be combined with --changed=fs"),
    ]
    for words, text_said in cases:
        finished = run_fmirror(TWO, "--since-manifest", *words, source, target)
        assert finished.code == 2, words
        assert text_said in finished.said, finished.said
    since(TWO, other, source, target, "--allow-foreign")  # of the same tree, elsewhere


def same_manifest(found: bytes, target: bytes) -> None:
    """Check that it equals fsum's manifest of the same tree."""
    expected = summed(target)
    with open(found, "rb") as mine, open(expected, "rb") as other:
        assert mine.read() == other.read()


@every_launcher
def test_consecutive_nights_without_changes(place: bytes, launcher: Launcher) -> None:
    for seed in _SEEDS:
        source, target = place + b"/a%d" % seed, place + b"/b%d" % seed
        tree = Tree(source, 300 + seed)
        mirrored(launcher, source, target)
        manifest = place + b"/m%d" % seed
        os.rename(summed(target), manifest)
        for _ in range(4):
            for _ in range(tree.random.randrange(0, 12)):
                tree.edit()
            said = since(launcher, manifest, source, target, "--new-manifest", manifest)
            assert _USED in said
            assert differences(source, target) == "", (seed, said)
            same_manifest(manifest, target)


def test_entries_that_stay_are_in_the_manifest(place: bytes) -> None:
    """Changes of type, wide directories, protected and filtered entries are covered."""
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/dir/deep")
    for number in range(5000):
        write_file(source + b"/dir/%d" % number, b"")
    for name in (b"dir/deep/file", b"file", b"gone/kept/file", b"gone/more", b"out.tmp"):
        os.makedirs(os.path.dirname(source + b"/" + name), exist_ok=True)
        write_file(source + b"/" + name, name)
    mirrored(TWO, source, target)
    manifest = place + b"/m"
    os.rename(summed(target, "--algorithm=sha256"), manifest)
    shutil.rmtree(source + b"/gone")
    os.unlink(source + b"/out.tmp")
    os.unlink(source + b"/file")
    os.makedirs(source + b"/file/now/a/directory")
    shutil.rmtree(source + b"/dir/deep")
    write_file(source + b"/dir/deep", b"now a file")
    os.unlink(source + b"/dir/77")
    write_file(source + b"/dir/new", b"new")
    more = ("--exclude=*.tmp", "--protect=/gone/kept", "--new-manifest", manifest)
    assert _USED in since(TWO, manifest, source, target, *more)
    assert os.listdir(target + b"/gone") == [b"kept"]
    with open(manifest, "rb") as mine:
        found = mine.read()
    with open(summed(target, "--algorithm=sha256"), "rb") as other:
        assert found == other.read()


def test_no_new_manifest_where_it_could_not_be_right(place: bytes) -> None:
    source, target, new = place + b"/a", place + b"/b", place + b"/new"
    os.mkdir(source)
    write_file(source + b"/file", b"x")
    mirrored(TWO, source, target)
    manifest = summed(target)
    finished = run_fmirror(TWO, "--new-manifest", new, source, target)
    assert (finished.code, finished.out) == (2, b"")
    assert "--new-manifest requires --since-manifest" in finished.said
    words = ("--since-manifest", manifest, "--new-manifest")
    finished = run_fmirror(TWO, *words, target + b"/m", source, target)
    assert finished.code == 2
    assert "--new-manifest" in finished.said
    assert "is inside" in finished.said
    since(TWO, manifest, source, target, "--dry-run", "--new-manifest", new)
    assert not os.path.exists(new)
    finished = run_fmirror(TWO, *words, place + b"/none/m", source, target)
    assert finished.code == 1
    assert "cannot write the manifest" in finished.said
    said = since(TWO, manifest, source, target, "--new-manifest", new)
    assert "no new manifest was written because the entire target was examined" in said
    assert not os.path.exists(new)


def test_the_run_after_a_kill_at_any_change_is_correct(place: bytes, tmp_path: Path) -> None:
    """Changes of the killed run are in no manifest, but are found nevertheless."""
    log, manifest = tmp_path / "changes", place + b"/m"

    def pair() -> tuple[bytes, bytes]:
        source, target = cleared(place)
        tree = Tree(source, 17)
        mirrored(ONE, source, target)
        os.rename(summed(target), manifest)
        for _ in range(20):
            tree.edit()
        write_file(source + b"/only this night", b"")
        return source, target

    words = [f"--{name}-manifest={os.fsdecode(manifest)}" for name in ("since", "new")]
    assert hooked_run(pair(), words, log) == 0
    every = range(1, log.stat().st_size + 1)
    assert len(every) > 20
    for moment in every if SOAK else sorted(Random(3).sample(every, 8)):
        source, target = sides = pair()
        assert hooked_run(sides, words, log, moment) in (0, -9)
        os.unlink(source + b"/only this night")
        assert hooked_run(sides, words, log, 10**9) == 0, moment
        assert differences(source, target) == "", moment
