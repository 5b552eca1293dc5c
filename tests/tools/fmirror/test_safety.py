"""Conditions under which nothing is removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pcircle.fs.status import birth_ns
from pcircle.tools.fmirror.state.state import lock_place_of as place_of
from tests.fusefs.mounting import Mounted
from tests.tools.fcp.running import TWO, Launcher, Run
from tests.tools.fcp.trees import make_directory, write_file

from .running import (
    FMIRROR,
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)


@pytest.fixture
def pair(place: bytes) -> tuple[bytes, bytes]:
    """Create a source, and a target that has additional entries."""
    for side in (b"a", b"b"):
        for name in (b"one", b"two"):
            make_directory(place, side, name)
            path = write_file(place + b"/%b/%b/file" % (side, name), b"content")
            os.utime(path, (10**9, 10**9))
    for number in range(10):
        write_file(place + b"/b/one/surplus %d" % number, b"x")
    return place + b"/a", place + b"/b"


def rewrite(path: bytes, data: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(data)


def names_below(top: bytes) -> set[bytes]:
    return {
        os.path.relpath(os.path.join(here, name), top)
        for here, directories, files in os.walk(top)
        for name in directories + files
    }


def surplus(target: bytes) -> int:
    return sum(name.startswith(b"surplus") for name in os.listdir(target + b"/one"))


def test_nothing_is_removed_without_delete(pair: tuple[bytes, bytes]) -> None:
    mirrored(TWO, *pair)
    assert surplus(pair[1]) == 10


@needs_strace
@pytest.mark.parametrize("call", ["getdents64", "openat"])
def test_an_unreadable_directory_prevents_all_removals(
    pair: tuple[bytes, bytes], call: str
) -> None:
    source, target = pair
    other = source + b"/two"
    inject = f"inject={call}:error=EIO"
    path = os.fsdecode(other if call == "getdents64" else b"two")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", inject]
    finished = run_fmirror(None, "-q", "-j1", "--delete", source, target, prefix=prefix)
    assert finished.code == 1
    assert (
        "not removed from the target: 1 directory of the source could not be read" in finished.said
    )
    assert surplus(target) == 10
    finished = run_fmirror(
        None, "-q", "-j1", "--delete", "--ignore-errors", source, target, prefix=prefix
    )
    assert finished.code == 1
    assert surplus(target) == 0


@needs_strace
@every_launcher
def test_every_launcher_prevents_removals(pair: tuple[bytes, bytes], launcher: Launcher) -> None:
    """Any rank may have found the directory."""
    source, target = pair
    path = os.fsdecode(source + b"/two")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", "inject=getdents64:error=EIO"]
    finished = run_fmirror(launcher, "-q", "--delete", source, target, prefix=prefix)
    assert finished.code == 1
    assert (
        "not removed from the target: 1 directory of the source could not be read" in finished.said
    )
    assert surplus(target) == 10


@needs_strace
def test_an_unreadable_directory_of_the_target(pair: tuple[bytes, bytes]) -> None:
    """The message names the target's directory, which keeps its contents, not the source's."""
    source, target = pair
    write_file(target + b"/two/surplus", b"x")
    prefix = ["strace", "-f", "-o", "/dev/null", "-P", os.fsdecode(target + b"/one")]
    prefix += ["-e", "inject=getdents64:error=EIO"]
    finished = run_fmirror(None, "-q", "-j1", "--delete", source, target, prefix=prefix)
    assert finished.code == 1
    assert f"cannot list directory '{os.fsdecode(target)}/one'" in finished.said
    assert surplus(target) == 10
    assert os.listdir(target + b"/two") == [b"file"]


@needs_strace
@pytest.mark.parametrize("words", [[], ["--link-dest"]], ids=str)
def test_an_entry_that_changes_during_its_look_up(
    pair: tuple[bytes, bytes], place: bytes, words: list[str | bytes]
) -> None:
    """A link is a file when its text is read: only this entry fails."""
    source, target = pair
    for side in pair:
        os.symlink(b"somewhere", side + b"/one/link")
    write_file(source + b"/one/new", b"content")
    if words:
        os.unlink(target + b"/one/link")
        words = [*words, make_directory(place, b"other")]
        os.mkdir(place + b"/other/one")
        os.symlink(b"somewhere", place + b"/other/one/link")
    prefix = ["strace", "-f", "-o", "/dev/null", "-e", "inject=readlinkat:error=EINVAL"]
    finished = run_fmirror(None, "-q", "-j1", *words, source, target, prefix=prefix)
    assert finished.code == 1, finished.said
    assert "one/link': Invalid argument" in finished.said
    assert os.path.exists(target + b"/one/new")


def test_an_empty_source_is_refused(pair: tuple[bytes, bytes], place: bytes) -> None:
    empty = place + b"/empty"
    os.mkdir(empty)
    finished = mirrored(TWO, "--delete", empty, pair[1], code=2)
    assert "is empty" in finished.said
    assert surplus(pair[1]) == 10
    mirrored(TWO, "--delete", "--allow-empty", empty, pair[1])
    assert os.listdir(pair[1]) == []


@as_root
def test_an_unmounted_source_is_refused(pair: tuple[bytes, bytes], place: bytes) -> None:
    """A mounted tree is copied; later its mount point, with a file in it, is refused."""
    source, target = pair
    disk = place + b"/disk"
    os.mkdir(disk)
    write_file(disk + b"/note", b"mount the disk here")
    subprocess.run(["mount", "--bind", source, disk], check=True)
    try:
        mirrored(TWO, "--delete", disk, target)
        assert surplus(target) == 0
    finally:
        subprocess.run(["umount", disk], check=True)
    finished = mirrored(TWO, "--delete", disk, target, code=2)
    assert "not the source of the last complete run" in finished.said
    assert os.path.exists(target + b"/one/file")
    mirrored(TWO, disk, target)  # nothing is removed, so nothing is refused


@as_root
def test_another_disk_at_the_same_path_is_refused(
    pair: tuple[bytes, bytes], place: bytes, mount: Callable[..., bytes]
) -> None:
    """Both have the same type, and roots with the same inode: they differ only in identity."""
    disks = [mount("ext4", 16 << 20) for _ in range(2)]
    point = make_directory(place, b"point")
    for number, code in ((0, 0), (0, 0), (1, 2)):
        write_file(disks[number] + b"/of %d" % len(os.listdir(disks[number])), b"content")
        subprocess.run(["mount", "--bind", disks[number], point], check=True)
        try:
            finished = mirrored(TWO, "--delete", point, pair[1], code=code)
        finally:
            subprocess.run(["umount", point], check=True)
    assert "not the source of the last complete run" in finished.said
    assert b"of 2" in os.listdir(pair[1])


@pytest.mark.parametrize(
    ("most", "code"), [("10", 0), ("9", 4), ("50%", 4), ("75%", 0), ("0", 4)], ids=str
)
def test_too_much_to_remove(pair: tuple[bytes, bytes], most: str, code: int) -> None:
    """The source has 5 entries, so 10 are two thirds of those of the target."""
    source, target = pair
    finished = mirrored(TWO, "--delete", "--max-delete", most, source, target, code=code)
    assert surplus(target) == (10 if code else 0)
    if code:
        assert "10 entries would be removed; nothing was removed" in finished.said


@needs_rsync
@pytest.mark.parametrize("how", ["removed", "backup", "during"])
def test_excluded_entries_keep_their_directories(place: bytes, tmp_path: Path, how: str) -> None:
    """As in rsync, the directory of an excluded entry stays, without its other entries."""
    keeps, source = how == "backup", place + b"/a"
    option = "--delete=during" if how == "during" else "--delete"
    os.makedirs(source)
    write_file(source + b"/file", b"where the target has a directory")
    for words in (
        ["--exclude", "*.o"],
        ["--exclude", "/old/deep/x.o"],
        ["--include", "y*", "--exclude", "*.o", "--exclude", "deep/"],
        ["--exclude", "- *.o"],
        ["--exclude", "*.o", "--delete-excluded"],
    ):
        targets = [place + b"/" + side for side in (b"b", b"judge")]
        backups = [place + b"/old of " + side for side in (b"b", b"judge")]
        for target in targets:
            for entry in (target, *backups):
                shutil.rmtree(os.fsdecode(entry), ignore_errors=True)
            for path in (b"old/deep/x.o", b"old/deep/y.c", b"old/y.o", b"gone/z", b"o/n.o/x"):
                os.makedirs(os.path.dirname(target + b"/" + path), exist_ok=True)
                write_file(target + b"/" + path, path)
        os.makedirs(targets[0] + b"/file")
        write_file(targets[0] + b"/file/x.o", b"")
        added = [["--backup-dir", os.fsdecode(entry)] if keeps else [] for entry in backups]
        mirrored(TWO, option, *words, *added[0], source, targets[0])
        line = ["rsync", "-ab" if keeps else "-a", "--delete", *words, *added[1]]
        tops = [os.fsdecode(entry) + "/" for entry in (source, targets[1])]
        subprocess.run([*line, *tops], check=True, capture_output=True)
        assert names_below(targets[0]) == names_below(targets[1]), words
        if keeps:
            was_there = {b"file", b"file/x.o"}
            assert names_below(backups[0]) - was_there == names_below(backups[1]), words
    if keeps:
        return
    listed = tmp_path / "rules"
    listed.write_bytes(b"*.o\n")
    excluded = place + b"/b/old/kept.o"
    os.makedirs(os.path.dirname(excluded))
    write_file(excluded, b"")
    write_file(place + b"/b/old/also", b"")
    mirrored(TWO, option, "--exclude-from", str(listed), "--protect", "also", source, place + b"/b")
    assert sorted(os.listdir(place + b"/b/old")) == [b"also", b"kept.o"]


def test_filtered_entries_are_protected(pair: tuple[bytes, bytes]) -> None:
    source, target = pair
    mirrored(TWO, "--delete", "--exclude", "surplus [0-4]", source, target)
    assert surplus(target) == 5
    mirrored(TWO, "--delete", "--protect", "surplus 3", source, target)
    assert surplus(target) == 1
    for words in (["--exclude", "surplus 3"], ["--exclude", "surplus 3", "--delete-excluded"]):
        mirrored(TWO, "--delete", *words, source, target)
        assert surplus(target) == (0 if "--delete-excluded" in words else 1)


def test_a_file_excluded_by_size_is_not_extraneous(pair: tuple[bytes, bytes]) -> None:
    source, target = pair
    mirrored(TWO, "--delete", "--min-size", "1M", source, target)
    assert os.path.exists(target + b"/one/file")
    assert surplus(target) == 0


def test_removed_entries_are_backed_up_with_their_paths(
    pair: tuple[bytes, bytes], place: bytes
) -> None:
    source, target = pair
    rewrite(source + b"/two/file", b"other content")
    os.mkdir(target + b"/two/more")
    write_file(target + b"/two/more/file", b"deep")
    backup = place + b"/old"
    mirrored(TWO, "--delete", "--backup-dir", backup, source, target)
    with open(backup + b"/two/file", "rb") as stream:
        assert stream.read() == b"content"
    with open(backup + b"/two/more/file", "rb") as stream:
        assert stream.read() == b"deep"
    assert surplus(backup) == 10
    rewrite(source + b"/two/file", b"third content")
    mirrored(TWO, "--delete", "--backup-dir", backup, source, target)
    with open(backup + b"/two/file.1", "rb") as stream:
        assert stream.read() == b"other content"


@as_root
@needs_rsync
def test_no_differences_remain_after_a_backup(pair: tuple[bytes, bytes], place: bytes) -> None:
    """The times of directories from which entries were moved are correct as well."""
    source, target = pair
    for side in pair:
        for inner in (b"/one", b"/two", b""):
            os.utime(side + inner, (10**9, 10**9))
    write_file(target + b"/loose", b"x")
    mirrored(TWO, "--delete", "--backup-dir", place + b"/old", source, target)
    assert differences(source, target) == ""


@every_launcher
def test_max_delete_limits_backups(
    pair: tuple[bytes, bytes], place: bytes, launcher: Launcher
) -> None:
    source, target = pair
    os.mkdir(target + b"/two/more")
    words: list[str | bytes] = ["--delete", "--backup-dir", place + b"/old", "-i", source, target]
    mirrored(launcher, "--max-delete", "10", *words, code=4)
    assert surplus(target) == 10
    lines = mirrored(launcher, "--max-delete", "11", *words).out.splitlines()
    assert sum(line.startswith(b"*deleting   ") for line in lines) == 11
    assert surplus(target) == 0
    assert surplus(place + b"/old") == 10
    assert os.path.isdir(place + b"/old/two/more")


def test_the_report_has_the_actions(pair: tuple[bytes, bytes], tmp_path: Path) -> None:
    source, target = pair
    os.chmod(target + b"/two/file", 0o600)
    write_file(source + b"/two/new", b"12")
    path = tmp_path / "report"
    mirrored(TWO, "--delete", "--json", str(path), source, target)
    report = json.loads(path.read_bytes())
    assert report["tool"] == "fmirror"
    names = ("exit_code", "files", "touched", "removed", "surplus", "withheld")
    assert [report[name] for name in names] == [0, 1, 1, 10, 10, None]


def _refused(words: Sequence[str | bytes], text: str) -> None:
    finished = run_fmirror(TWO, *words)
    assert finished.code == 2
    assert text in finished.said


def test_refusals(pair: tuple[bytes, bytes], place: bytes) -> None:
    source, target = pair
    _refused([source], f"missing operand B after '{os.fsdecode(source)}'")
    _refused([source, target, target], f"extra operand '{os.fsdecode(target)}'")
    _refused([source + b"/one/file", target], "not a directory")
    _refused([source, source], "into itself")
    _refused([source, source + b"/one"], "into itself")
    _refused([source + b"/one", source], "is inside")
    _refused(["-c", "--size-only", *pair], "cannot be combined")
    _refused(["--max-delete", "1", *pair], "requires --delete")
    _refused(["--delete", "--backup-dir", target + b"/old", *pair], "is inside")
    missing = place + b"/missing"
    _refused([source, missing + b"/below/copy"], f"'{os.fsdecode(missing)}' does not exist")
    assert surplus(target) == 10


@as_root
def test_a_full_disk_leaves_existing_entries(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    disk = mount_tmpfs("size=4m")
    source, target = place + b"/source", disk + b"/target"
    for number in range(8):
        for side in (make_sure(source), make_sure(target)):
            rewrite(side + b"/%d" % number, b"%d" % number * 200_000)
    write_file(target + b"/surplus", b"")
    for number in range(8):
        rewrite(source + b"/%d" % number, b"new" * 400_000)
    finished = mirrored(TWO, "--delete", source, target, code=4)
    assert "No space left" in finished.said
    assert os.path.exists(target + b"/surplus")
    for number in range(8):
        with open(target + b"/%d" % number, "rb") as stream:
            assert stream.read() in (b"%d" % number * 200_000, b"new" * 400_000)


def make_sure(path: bytes) -> bytes:
    os.makedirs(path, exist_ok=True)
    return path


def test_two_runs_at_once(pair: tuple[bytes, bytes]) -> None:
    """The second run reports the first one, and touches nothing."""
    source, target = pair
    for number in range(50):
        rewrite(source + b"/one/large %d" % number, b"x" * 100_000)
    line = ["-q", "--delete", "--bwlimit", "200k"]
    with Run(TWO, *line, source, target, program=FMIRROR) as first:
        assert first.wait_for(target + b"/one/large 0")
        finished = mirrored(TWO, "--delete", "--resume", source, target, code=2)
        assert "another run" in finished.said
        assert surplus(target) == 10
        first.kill()
    mirrored(TWO, "--delete", "--restart", source, target)
    assert surplus(target) == 0


@pytest.mark.parametrize("words", [[], ["--snapshot=second"], ["--moved", "--delete"]], ids=str)
@pytest.mark.parametrize("there", [True, False], ids=["there", "new"])
def test_two_runs_at_once_with_other_sources(
    pair: tuple[bytes, bytes], place: bytes, words: list[str], there: bool
) -> None:
    """Neither checkpoints nor entries reveal the first run, but the second is refused."""
    source, target = pair
    if not there:
        shutil.rmtree(os.fsdecode(target))
    for number in range(50):
        rewrite(source + b"/one/large %d" % number, b"x" * 100_000)
    other = make_directory(place, b"other")
    write_file(other + b"/file", b"content")
    line = ["-q", "--bwlimit", "200k", "--no-checkpoint"]
    line += ["--snapshot=first"] if "--snapshot=second" in words else ["--delete"]
    with Run(TWO, *line, source, target, program=FMIRROR) as first:
        assert first.wait_for(place_of(target, None))
        finished = mirrored(TWO, "--no-checkpoint", *words, other, target, code=2)
        assert "another run" in finished.said
        assert not os.path.exists(target + b"/file")
        mirrored(TWO, "--dry-run", other, target)  # it touches nothing
        first.kill()
    mirrored(TWO, "--no-checkpoint", *words, other, target)
    assert [name for name in os.listdir(place) if name.endswith(b".lock")] == []


_REPORTS = ("--list-out", "--json-lines", "--error-log", "--json")


@pytest.mark.parametrize("option", [*_REPORTS, "--state-dir"])
@pytest.mark.parametrize("words", [["--delete"], ["--delete=during"], ["--delete", "--moved"]])
def test_a_report_in_the_target_is_refused(
    pair: tuple[bytes, bytes], place: bytes, option: str, words: list[str]
) -> None:
    """A link may lead to it; a protected report is written, and stays."""
    source, target = pair
    os.symlink(b"b/two", place + b"/link")
    before = names_below(target)
    report = place + b"/link" + b"/report" * (option != "--state-dir")
    finished = mirrored(None, "-j1", *words, option, report, source, target, code=2)
    assert f"{option}: " in finished.said
    assert "--protect" in finished.said
    assert names_below(target) == before
    mirrored(None, "-j1", option, report, source, target)
    if option != "--state-dir":
        mirrored(None, "-j1", *words, "--protect=/two/report", option, report, source, target)
        assert os.path.exists(target + b"/two/report")
        assert surplus(target) == 0


@as_root
def test_a_report_in_a_part_of_the_target_mounted_elsewhere_is_refused(
    pair: tuple[bytes, bytes], place: bytes
) -> None:
    source, target = pair
    mounted = make_directory(place, b"mounted here")
    subprocess.run(["mount", "--bind", target + b"/two", mounted], check=True)
    try:
        report = mounted + b"/report"
        finished = mirrored(None, "-j1", "--delete", "--list-out", report, source, target, code=2)
        assert "--list-out: " in finished.said
        beside = place + b"/report"
        mirrored(None, "-j1", "--delete", "--list-out", beside, source, target)
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert surplus(target) == 0


@every_launcher
@pytest.mark.parametrize("words", [["--delete"], ["--delete=during"], ["--resume", "--delete"]])
def test_names_like_those_of_checkpoints_are_ordinary(
    place: bytes, launcher: Launcher, words: list[str]
) -> None:
    """Only a run's own mark and checkpoint are neither removed nor copied."""
    source, target = make_directory(place, b"a"), place + b"/b"
    names = [b".fcp-checkpoint-0123456789abcdef", b".fcp-mark-0123456789abcdef-0123456789abcdef"]
    names += [b".fcp-01234567-0-1", b".fcp-mark-", b".fmirror-x.lock"]
    for name in names:
        write_file(source + b"/" + name, b"content")
        os.makedirs(source + b"/deep/" + name)
        write_file(source + b"/deep/" + name + b"/file", b"content")
    mirrored(launcher, *words, source, target)
    assert differences(source, target) == ""
    shutil.rmtree(source + b"/deep")
    for name in names:
        os.unlink(source + b"/" + name)
    write_file(source + b"/file", b"content")
    mirrored(launcher, *words, source, target)
    assert names_below(target) == {b"file"}


@as_root
@pytest.mark.parametrize("there", [True, False], ids=["there", "new"])
def test_two_runs_at_once_by_two_paths(place: bytes, there: bool) -> None:
    """B, or the directory in which it will be created, is mounted at two places."""
    source, other = make_directory(place, b"a"), make_directory(place, b"other")
    rewrite(source + b"/large", b"x" * 2_000_000)
    rewrite(other + b"/file", b"content")
    holder, mounted = make_directory(place, b"holder"), make_directory(place, b"mounted")
    target = holder + b"/b"
    if there:
        os.mkdir(target)
    subprocess.run(["mount", "--bind", target if there else holder, mounted], check=True)
    try:
        words = ["-q", "--bwlimit", "200k", "--no-checkpoint"]
        with Run(TWO, *words, source, target, program=FMIRROR) as first:
            assert first.wait_for(place_of(target, None))
            again = mounted if there else mounted + b"/b"
            finished = mirrored(TWO, "--no-checkpoint", "--delete", other, again, code=2)
            assert "another run" in finished.said
            first.kill()
        mirrored(TWO, "--no-checkpoint", "--delete", other, again)
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert names_below(target) == {b"file"}


def test_a_recreated_target_has_no_last_run(place: bytes) -> None:
    """The source differs from that of the last run, whose target was removed."""
    source, other, target = place + b"/source", place + b"/other", place + b"/target"
    for entry in (source, other):
        write_file(make_directory(entry, b"inner") + b"/file", b"content")
    if birth_ns(source, None, follow=True) is None:
        pytest.skip("the file system does not store birth times")
    mirrored(TWO, "--delete", source, target)
    os.rename(source, place + b"/former")
    os.rename(other, source)
    write_file(target + b"/more", b"goes")
    refused = mirrored(TWO, "--delete", source, target, code=2)
    assert "is not the source of the last complete run" in refused.said
    assert os.path.exists(target + b"/more")
    shutil.rmtree(target)
    time.sleep(0.05)  # the granularity of birth times
    write_file(make_directory(target, b"inner") + b"/more", b"goes")
    mirrored(TWO, "--delete", source, target)
    assert names_below(target) == {b"inner", b"inner/file"}


@as_root
def test_an_inner_disk_that_is_not_mounted_is_noticed(
    pair: tuple[bytes, bytes], place: bytes
) -> None:
    source, target = pair
    disk = make_directory(place, b"disk")
    write_file(disk + b"/file", b"content")
    inner = make_directory(source, b"in ner")
    subprocess.run(["mount", "--bind", disk, inner], check=True)
    try:
        mirrored(TWO, "--delete", source, target)
        mirrored(TWO, "--delete", source, target)
    finally:
        subprocess.run(["umount", inner], check=True)
    finished = mirrored(TWO, "--delete", source, target, code=2)
    assert "in ner' was a mount point at the last complete run" in finished.said
    assert os.path.exists(target + b"/in ner/file")
    mirrored(TWO, "--delete", "--allow-foreign", source, target)
    assert os.listdir(target + b"/in ner") == []


def test_another_case_of_a_name_is_not_extraneous(
    place: bytes, fuse: Callable[..., Mounted]
) -> None:
    """The target has FILE, which stands for the source's file."""
    source = make_directory(place, b"source")
    target = make_directory(fuse(folding="case").path, b"target")
    write_file(source + b"/file", b"content")
    os.mkdir(source + b"/Dir")
    write_file(source + b"/Dir/below", b"content")
    write_file(target + b"/FILE", b"old")
    write_file(target + b"/surplus", b"old")
    os.mkdir(target + b"/dir")
    mirrored(TWO, "--delete", "--preserve=timestamps", source, target)
    with open(target + b"/file", "rb") as stream:
        assert stream.read() == b"content"
    assert os.path.exists(target + b"/Dir/below")
    assert not os.path.exists(target + b"/surplus")


@pytest.mark.parametrize("preserve", ["mode", "mode,timestamps", "all"])
def test_other_content_of_the_same_size(
    pair: tuple[bytes, bytes], place: bytes, preserve: str
) -> None:
    """If times are not preserved, the copy's time never equals the source's."""
    source, target = pair
    words = ["--delete", f"--preserve={preserve}"]
    mirrored(TWO, *words, source, target)
    rewrite(source + b"/two/file", b"CONTENT")
    mirrored(TWO, *words, source, target)
    with open(target + b"/two/file", "rb") as stream:
        assert stream.read() == b"CONTENT"
    before = [os.stat(target + name).st_ctime_ns for name in (b"", b"/one", b"/two")]
    mirrored(TWO, *words, "--size-only", source, target)
    assert [os.stat(target + name).st_ctime_ns for name in (b"", b"/one", b"/two")] == before


def make(path: bytes, kind: str) -> None:
    if kind == "file":
        write_file(path, path)
    elif kind == "link":
        os.symlink(path, path)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        write_file(make_directory(path) + b"/inner", path)


def all_contents(*tops: bytes) -> set[bytes]:
    """Return all contents, wherever they are."""
    found = set()
    for top in tops:
        for path in sorted(names_below(top)):
            whole = os.path.join(top, path)
            if os.path.islink(whole):
                found.add(b"to " + os.readlink(whole))
            elif os.path.isfile(whole):
                with open(whole, "rb") as stream:
                    found.add(stream.read())
    return found


@needs_strace
@pytest.mark.parametrize("what", ["error=EIO", "error=ENOSPC", "error=EPERM", "signal=KILL"])
@pytest.mark.parametrize("new", ["file", "link", "fifo", "directory"])
@pytest.mark.parametrize("old", ["file", "link", "directory"])
def test_entries_that_cannot_be_backed_up_are_not_lost(
    place: bytes, what: str, new: str, old: str
) -> None:
    """Neither the failure or kill nor the next run, with --resume or without, loses one."""
    if new == old == "directory":
        return
    for number, more in enumerate((["--resume"], ["--restart"])):
        top = make_directory(place, b"%d" % number)
        source, target, backup = (make_directory(top, side) for side in (b"a", b"b", b"old"))
        for name in (b"/one", b"/two"):
            make(source + name, new)
            make(target + name, old)
            os.utime(target + name, (1, 1), follow_symlinks=False)
        had = all_contents(target)
        words: list[str | bytes] = ["--delete", "--backup-dir", backup, source, target]
        prefix = ["strace", "-f", "-o", "/dev/null", "-P", os.fsdecode(backup)]
        prefix += ["-e", f"inject=renameat,renameat2,linkat:{what}:when=1"]
        code = run_fmirror(None, "-q", "-j1", "--threads=1", *words, prefix=prefix).code
        assert code != 2
        assert had <= all_contents(target, backup)
        mirrored(None, "-j1", "--threads=1", *more, *words)
        assert had <= all_contents(target, backup)
        assert all_contents(source) <= all_contents(target)
        assert not [name for name in names_below(target) if b".fcp-" in name]


@pytest.mark.parametrize("most", ["x", "-1", "101%"])
def test_a_wrong_limit_is_refused_before_anything_is_copied(place: bytes, most: str) -> None:
    os.mkdir(place + b"/a")
    os.mknod(place + b"/a/file")
    words = (f"--max-delete={most}", "--delete", place + b"/a", place + b"/b")
    assert "--max-delete" in mirrored(TWO, *words, code=2).said
    assert not os.path.lexists(place + b"/b")
