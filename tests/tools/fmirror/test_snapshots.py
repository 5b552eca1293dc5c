"""`--snapshot`: a tree per run, linked to the previous one, complete or absent; old ones expire."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timedelta

import pytest

from pcircle.core.errors import UsageError
from pcircle.tools.fmirror.snapshots import UNFINISHED, date_of, expired, rules_of
from tests.tools.fcp.running import TWO, Launcher, without_rights
from tests.tools.fcp.trees import write_file

from .edits import Tree, copy_of
from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)


def rewrite(path: bytes, data: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(data)


def names(top: bytes) -> list[bytes]:
    return sorted(os.listdir(top))


@as_root
@needs_rsync
@every_launcher
def test_each_snapshot_is_the_tree_of_its_time(place: bytes, launcher: Launcher) -> None:
    """Earlier ones are unchanged, though they share files with later ones."""
    source, snapshots = place + b"/a", place + b"/b"
    tree = Tree(source + b"/tree", 77)
    write_file(source + b"/same", b"always")
    for number in range(5):
        mirrored(launcher, b"--snapshot=%d" % number, source, snapshots)
        copy_of(source, place + b"/was %d" % number)
        for _ in range(8):
            tree.edit()
        for name in (b"mode", b"text"):
            rewrite(source + b"/" + name, b"some")
        os.chmod(source + b"/mode", 0o600 + number)
    assert names(snapshots) == [b"0", b"1", b"2", b"3", b"4", b"latest"]
    assert os.readlink(snapshots + b"/latest") == b"4"
    for number in range(5):
        assert differences(place + b"/was %d" % number, snapshots + b"/%d" % number) == ""
    assert os.stat(snapshots + b"/0/same").st_nlink == 5


@as_root
@needs_rsync
@needs_strace
@pytest.mark.parametrize("call", ["renameat2", "linkat", "mkdirat", "symlinkat"])
def test_a_kill_leaves_no_snapshot_or_a_complete_one(place: bytes, call: str) -> None:
    source, snapshots = place + b"/a", place + b"/b"
    tree = Tree(source, 5)
    for number in range(9):
        write_file(source + b"/more %d" % number, b"%d" % number)
    mirrored(None, "--snapshot=first", source, snapshots)
    copy_of(source, place + b"/was")
    os.mkdir(source + b"/new")
    for number in range(4):
        write_file(source + b"/new/%d" % number, b"")
    os.rename(source + b"/more 3", source + b"/new/more 3")
    for moment in range(1, 40):
        inject = f"inject={call}:signal=KILL:when={moment}"
        prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
        name = b"at %d" % moment
        word = b"--snapshot=" + name
        finished = run_fmirror(None, "-q", word, source, snapshots, prefix=prefix)
        assert differences(place + b"/was", snapshots + b"/first") == ""
        if name in names(snapshots):
            assert differences(source, snapshots + b"/" + name) == ""
        else:
            assert os.readlink(snapshots + b"/latest") != name
        if finished.code == 0:
            break
        mirrored(None, b"--snapshot=next %d" % moment, source, snapshots)
        assert UNFINISHED not in names(snapshots)
        assert differences(source, snapshots + b"/latest") == ""
        tree.edit()
        os.chmod(source + b"/more 1", 0o600 + moment)  # `first` has it in its old state
    else:
        assert call == "linkat", "one call for each file"


@as_root
@needs_rsync
def test_a_partial_snapshot_is_completed_with_later_changes(place: bytes) -> None:
    source, snapshots = place + b"/a", place + b"/b"
    os.mkdir(source)
    for name in (b"same", b"mode", b"gone", b"content"):
        write_file(source + b"/" + name, name)
    mirrored(TWO, "--snapshot=one", source, snapshots)
    copy_of(source, place + b"/was")
    subprocess.run(["cp", "-al", snapshots + b"/one", snapshots + b"/" + UNFINISHED], check=True)
    os.chmod(source + b"/mode", 0o604)
    rewrite(source + b"/content", b"other content")
    os.unlink(source + b"/gone")
    mirrored(TWO, "--snapshot=two", source, snapshots)
    assert names(snapshots) == [b"latest", b"one", b"two"]
    assert differences(source, snapshots + b"/two") == ""
    assert differences(place + b"/was", snapshots + b"/one") == ""


def test_invalid_and_existing_names_are_refused(place: bytes) -> None:
    source, snapshots = place + b"/a", place + b"/b"
    os.makedirs(source)
    write_file(source + b"/x", b"")
    for name in ("a/b", "..", ".hidden", "latest", "."):
        finished = run_fmirror(TWO, f"--snapshot={name}", source, snapshots)
        assert finished.code == 2
        assert "is not a snapshot name" in finished.said
    assert not os.path.lexists(snapshots)
    mirrored(TWO, "--snapshot=it", source, snapshots)
    assert "exists" in mirrored(TWO, "--snapshot=it", source, snapshots, code=2).said
    for option in ("--delete", "--changed=fs", "--backup-dir=/x", "--existing", "--keep=x"):
        mirrored(TWO, "--snapshot=other", option, source, snapshots, code=2)
    mirrored(TWO, "--keep=3d", source, snapshots, code=2)
    os.unlink(source + b"/x")
    assert "--allow-empty" in mirrored(TWO, "--snapshot=empty", source, snapshots, code=2).said
    mirrored(TWO, "--snapshot=empty", "--allow-empty", source, snapshots)
    os.unlink(snapshots + b"/latest")
    os.mkdir(snapshots + b"/latest")
    finished = mirrored(TWO, "--snapshot=more", "--allow-empty", source, snapshots, code=2)
    assert "is not a symbolic link" in finished.said


def test_latest_is_followed_only_to_a_neighbour(place: bytes) -> None:
    source, snapshots, outside = place + b"/a", place + b"/b", place + b"/outside"
    for folder in (source, snapshots, outside):
        os.makedirs(folder)
        os.utime(write_file(folder + b"/x", b"same"), (10**9, 10**9))
    os.symlink(b"../outside", snapshots + b"/latest")
    mirrored(TWO, "--snapshot=new", source, snapshots)
    assert os.stat(outside + b"/x").st_nlink == 1
    assert os.readlink(snapshots + b"/latest") == b"new"


def test_failures_prevent_a_snapshot_unless_allowed(place: bytes) -> None:
    source, snapshots = place + b"/a", place + b"/b"
    os.makedirs(source)
    for name in (b"x", b"y"):
        write_file(source + b"/" + name, name)
    os.chmod(source + b"/x", 0)
    os.makedirs(snapshots)
    prefix = without_rights("dac_override", "dac_read_search")
    finished = run_fmirror(None, "-q", "--snapshot=one", source, snapshots, prefix=prefix)
    assert finished.code == 1
    assert "no snapshot was created" in finished.said
    assert names(snapshots) == [UNFINISHED]
    words = ("--snapshot=two", "--ignore-errors")
    assert run_fmirror(None, "-q", *words, source, snapshots, prefix=prefix).code == 1
    assert names(snapshots) == [b"latest", b"two"]
    assert names(snapshots + b"/two") == [b"y"]


@every_launcher
def test_only_old_snapshots_expire(place: bytes, launcher: Launcher) -> None:
    source, snapshots = place + b"/a", place + b"/b"
    os.makedirs(source)
    write_file(source + b"/x", b"")
    days = [b"2026-01-%02d" % day for day in range(1, 8)]
    for name in (*days, b"before the move", b"2026-01-03 kept", b"20260102T1530"):
        os.makedirs(snapshots + b"/" + name)
    write_file(snapshots + b"/2025-01-01", b"a file")
    report = place + b"/report"
    options = ("--snapshot=2026-01-08", "--keep=2d,2w")
    dry = run_fmirror(launcher, *options, "--dry-run", source, snapshots)
    assert "would be removed" in dry.said
    assert len(names(snapshots)) == 11
    mirrored(launcher, *options, "--json", report, source, snapshots)
    stay = {b"2026-01-08", b"2026-01-07", b"2026-01-04", b"latest"}
    not_dated = {b"before the move", b"2026-01-03 kept", b"2025-01-01"}
    assert set(names(snapshots)) == stay | not_dated
    with open(report, "rb") as stream:
        said = json.load(stream)
    assert said["target"] == os.fsdecode(snapshots + b"/2026-01-08")
    assert len(said["expired"]) == 6
    assert said["exit_code"] == 0


@pytest.mark.parametrize(
    ("name", "date"),
    [
        (b"2026-11-23", (2026, 11, 23)),
        (b"20261123", (2026, 11, 23)),
        (b"2026-11-23T0215", (2026, 11, 23, 2, 15)),
        (b"2026-11-23_02-15-09", (2026, 11, 23, 2, 15, 9)),
        (b"20261123T021509", (2026, 11, 23, 2, 15, 9)),
        (b"2026-11-23 02:15", (2026, 11, 23, 2, 15)),
    ],
)
def test_names_that_are_dates(name: bytes, date: tuple[int, ...]) -> None:
    year, month, day, hour, minute, second = (*date, 0, 0, 0)[:6]
    assert date_of(name) == datetime(year, month, day, hour, minute, second)


@pytest.mark.parametrize("name", [b"latest", b"2026-13-01", b"2026-11-23a", b"x2026-11-23", b""])
def test_names_that_are_not_dates(name: bytes) -> None:
    assert date_of(name) is None


def test_rules_keep_the_newest_of_each_period() -> None:
    """Four years of nightly snapshots, with a hole of a month."""
    first = datetime(2023, 1, 1, 2)
    nights = [first + timedelta(days=day) for day in range(1400) if not 1200 <= day < 1230]
    snapshots = [night.strftime("%Y-%m-%dT%H%M").encode() for night in nights]
    gone = expired(snapshots, rules_of("7d,4w,12m,2y"), snapshots[-1])
    retained = sorted(set(snapshots) - set(gone))
    newest = list(reversed(snapshots))
    assert retained[-7:] == sorted(newest[:7])
    assert len(retained) <= 7 + 4 + 12 + 2
    months = {name[:7] for name in newest}
    for month in sorted(months)[-12:]:
        assert max(name for name in snapshots if name[:7] == month) in retained
    assert gone == sorted(gone)
    # The retained ones are stable: a second run removes nothing.
    assert expired(retained, rules_of("7d,4w,12m,2y"), retained[-1]) == []
    assert expired(snapshots, (), snapshots[-1]) == []
    assert len(expired(snapshots, rules_of("3"), snapshots[-1])) == len(snapshots) - 3
    assert snapshots[0] not in expired(snapshots, rules_of("1d"), snapshots[0])


@pytest.mark.parametrize("text", ["", "7", "0d", "7x", "-1d", "7d,,4w", "d"])
def test_invalid_rules(text: str) -> None:
    if text == "7":
        assert rules_of(text)[0].period == ""
        return
    with pytest.raises(UsageError):
        rules_of(text)


@as_root
@needs_rsync
def test_snapshots_continue_after_cp_al(place: bytes) -> None:
    """The names of the first snapshot are linked by `cp -al`, like users of rsync do."""
    source, snapshots = place + b"/a", place + b"/b"
    Tree(source, 9)
    mirrored(TWO, "--snapshot=one", source, snapshots)
    subprocess.run(["cp", "-al", snapshots + b"/one", snapshots + b"/two"], check=True)
    mirrored(TWO, "--snapshot=three", source, snapshots)
    for name in (b"one", b"two", b"three"):
        assert differences(source, snapshots + b"/" + name) == ""


def test_refusals_and_dry_runs_create_nothing(place: bytes) -> None:
    source, snapshots = place + b"/a", place + b"/b"
    assert run_fmirror(TWO, "--snapshot=one", source, snapshots).code == 2
    os.mkdir(source)
    write_file(source + b"/file", b"content")
    assert run_fmirror(TWO, "--snapshot=one", "--dry-run", source, snapshots).code == 0
    assert run_fmirror(TWO, "--snapshot=one", "--keep=1d", "--dry-run", source, snapshots).code == 0
    for inner in (b"/inside", b"/inside/"):
        refused = run_fmirror(TWO, "--snapshot=one", source, source + inner)
        assert refused.code == 2
        assert "is inside" in refused.said
    assert names(place) == [b"a"]
    assert names(source) == [b"file"]
