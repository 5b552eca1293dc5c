"""`--undo`: every change was recorded on disk before, however the run ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pcircle.jobs.failures import decode
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, launchers
from tests.tools.frm.running import grow

from .running import PROGRAMS, Seen, changed, run_tool, snapshot

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
CHANGES = {"fchmod": "g=u,u=o", "fchown": "1001:1002", "fchgrp": "1003"}


def build(top: bytes) -> bytes:
    """Build a tree of large and small directories, and a file that has several names."""
    grow(top, [f"large/{number}" for number in range(700)])
    grow(top, [f"small/{number}/{name}" for number in range(40) for name in "abc"])
    for number in range(40):
        os.chmod(top + b"/small/%d/a" % number, 0o600 + number)
        os.link(top + b"/large/7", top + b"/small/%d/linked" % number)
    os.symlink(b"large/1", top + b"/link")
    return top


def recorded(record: Path) -> set[bytes]:
    """Return the paths in the complete lines of a record."""
    text = record.read_bytes() if record.exists() else b""
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    return {decode(json.loads(line)[1]) or b"." for line in lines if line.startswith(b"[")}


def other(before: dict[bytes, Seen], after: dict[bytes, Seen]) -> set[bytes]:
    """Return the paths that have changed."""
    return {path for path in before if before[path] != after[path]}


@root_only
@pytest.mark.parametrize("tool", CHANGES)
@pytest.mark.parametrize("launcher", launchers([1, 4], [3]), ids=str)
def test_a_killed_run_can_be_undone(
    place: bytes, tmp_path: Path, launcher: Launcher, tool: str
) -> None:
    """All processes are killed at any moment: the old state of each changed entry is recorded."""
    top, before = build(place + b"/tree"), snapshot(place + b"/tree")
    names = {os.lstat(top + b"/" + path).st_ino: path for path in before}
    random, least = Random(f"{tool} {launcher}"), 0
    for number in range(3):
        record = tmp_path / f"record {number}"
        words = ("-q", "-R", "--undo", str(record), CHANGES[tool], top)
        with Run(launcher, *words, program=PROGRAMS[tool]) as run:
            while run.process.poll() is None and len(recorded(record)) <= least:
                time.sleep(0.001)
            run.kill()
            assert run.wait_until_gone() == []
        least = random.randrange(800)
        known = {os.lstat(top + b"/" + path).st_ino for path in recorded(record)}
        changes = {os.lstat(top + b"/" + path).st_ino for path in other(before, snapshot(top))}
        assert changes <= known, [names[inode] for inode in changes - known]
        done = run_tool("fchmod", TWO, "-q", "--apply", str(record))
        whole = record.read_bytes().splitlines()[-1].startswith(b"{")
        assert (done.code, "incomplete" in done.said) == ((0, False) if whole else (1, True))
        assert other(before, snapshot(top)) == set()


def test_a_record_that_is_cut_is_applied_and_reported(place: bytes, tmp_path: Path) -> None:
    top, record = build(place + b"/tree"), tmp_path / "record"
    before = snapshot(top)
    changed("fchmod", TWO, "-R", "--undo", str(record), "a=,u+rwx", top)
    after, text = snapshot(top), record.read_bytes()
    cut = text[: len(text) // 2]
    record.write_bytes(cut)
    listed = recorded(record)
    done = run_tool("fchmod", TWO, "--json", "-", "--apply", str(record))
    assert done.code == 1
    assert f"'{record}' is incomplete: only the entries that it lists were restored" in done.said
    assert json.loads(done.out)["counts"]["failed"] == 0
    inodes = {os.lstat(top + b"/" + path).st_ino for path in listed}
    for path, entry in snapshot(top).items():
        known = os.lstat(top + b"/" + path).st_ino in inodes
        assert entry == (before if known else after)[path], path


@pytest.mark.parametrize("launcher", launchers([2], [2]), ids=str)
def test_unrecorded_entries_are_not_changed(
    place: bytes, mount_tmpfs: Callable[[str], bytes], launcher: Launcher
) -> None:
    top, before = build(place + b"/tree"), snapshot(place + b"/tree")
    record = Path(os.fsdecode(mount_tmpfs("size=32k"))) / "record"
    done = run_tool("fchmod", launcher, "-q", "-R", "--undo", str(record), "a=,u+rwx", top)
    assert done.code == 4
    assert f"cannot write the undo file '{record}': No space left on device" in done.said
    known = {os.lstat(top + b"/" + path).st_ino for path in recorded(record)}
    changes = {os.lstat(top + b"/" + path).st_ino for path in other(before, snapshot(top))}
    assert changes <= known
    assert len(changes) > 1
    assert run_tool("fchmod", ONE, "-q", "--apply", str(record)).code == 1
    assert other(before, snapshot(top)) == set()


@root_only
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_records_are_synced_before_the_change_and_together(place: bytes, tmp_path: Path) -> None:
    """No change happens between a record and its sync, and a block of files has one sync."""
    grow(place, [f"large/{number}" for number in range(2000)])
    record, log = tmp_path / "record", tmp_path / "calls"
    calls = "trace=write,fsync,chown,fchownat"
    prefix = ("strace", "-f", "-qq", "-s", "9999", "-o", str(log), "-e", calls)
    words = ("-q", "-R", "--undo", str(record), "7:7", place + b"/large")
    assert run_tool("fchown", ONE, *words, prefix=prefix).code == 0
    written, synced, syncs, changed = dict[str, int](), dict[str, int](), 0, dict[str, int]()
    for call in read_calls(log):  # the line in which each record was written, synced and used
        if call.name == "fsync" and call.result == "0":
            syncs += 1
            for name, line in written.items():
                if line < call.begin:
                    synced.setdefault(name, call.end)
        elif call.name == "write":
            written |= dict.fromkeys(re.findall(r'\[0,\\"([0-9]+)\\"', call.text), call.end)
        elif found := re.match(r'f?chown(?:at)?\([^"]*"([0-9]+)"', call.text):
            changed[found[1]] = call.begin
    assert [name for name, line in changed.items() if synced.get(name, line) >= line] == []
    assert len(changed) == 2000
    assert syncs < 20
