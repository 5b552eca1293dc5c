"""Full and read-only file systems: each tool names an entry and the reason, and exits with 4."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable

import pytest

from tests.tools.fbcast.running import run_fbcast
from tests.tools.fchmod.running import run_tool
from tests.tools.fcp.conftest import mount_tmpfs, place
from tests.tools.fcp.running import TWO, Finished, run_fcp
from tests.tools.fcp.trees import make_directory, write_file
from tests.tools.ffind.running import run_ffind
from tests.tools.fmirror.running import run_fmirror
from tests.tools.frm.running import run_frm

__all__ = ["mount_tmpfs", "place"]

COPIES: dict[str, Callable[..., Finished]] = {
    "fcp": lambda log, *sides: run_fcp(TWO, "--error-log", log, "-T", *sides),
    "fcp -a --no-checkpoint": lambda log, *sides: run_fcp(
        TWO, "-a", "--no-checkpoint", "--error-log", log, "-T", *sides
    ),
    "fmirror": lambda log, *sides: run_fmirror(TWO, "--error-log", log, *sides),
}
CHANGES: dict[str, Callable[..., Finished]] = {
    "frm": lambda log, tree: run_frm(TWO, "-r", "--error-log", log, tree),
    "ffind": lambda log, tree: run_ffind(TWO, tree, "-type", "f", "-delete", "--error-log", log),
    "fchmod": lambda log, tree: run_tool("fchmod", TWO, "-R", "g+w", "--error-log", log, tree),
}

Mounting = Callable[[str], bytes]
BYTES, INODES = "size=2m", "nr_inodes=12"


def grow(top: bytes) -> bytes:
    """Create a tree that fits neither into `BYTES` nor into `INODES`."""
    below = make_directory(top, b"below")
    for number in range(10):
        write_file(b"%b/%d" % (top, number), b"x" * 300_000)
        write_file(b"%b/%d" % (below, number), b"x")
    return top


def read_only(mount: Mounting, *, grown: bool = False) -> bytes:
    path = mount("size=16m")
    if grown:
        grow(path)
    subprocess.run(["mount", "-o", "remount,ro", path], check=True)
    return path


def check(done: Finished, log: bytes, below: bytes, error: int, detail: str = "") -> None:
    """Check the exit code, and the entry in the message and in the error log."""
    assert done.code == 4, done.said
    reason = os.strerror(error) + detail
    named = re.search(f"cannot .* '({re.escape(os.fsdecode(below))}[^']*)': {reason}\n", done.said)
    assert named, done.said
    with open(log, encoding="ascii") as lines:
        logged = [json.loads(line) for line in lines]
    assert named[1] in [line["path"] for line in logged]
    assert {line["error"] for line in logged} == {errno.errorcode[error]}


@pytest.mark.parametrize("size", [BYTES, INODES])
@pytest.mark.parametrize("tool", COPIES)
def test_copies_stop_at_a_full_file_system(
    place: bytes, mount_tmpfs: Mounting, tool: str, size: str
) -> None:
    source, target = grow(make_directory(place, b"source")), mount_tmpfs(size) + b"/copy"
    done = COPIES[tool](place + b"/log", source, target)
    detail = ": all inodes are in use" if size == INODES else ""
    check(done, place + b"/log", target, errno.ENOSPC, detail)
    assert ("remove some files" if detail else "free some space") in done.said


def test_chunks_of_a_large_file_name_it_once(place: bytes, mount_tmpfs: Mounting) -> None:
    """The file can be resumed, so it counts neither as copied nor as failed."""
    source, target = write_file(place + b"/large", b"x" * (16 << 20)), mount_tmpfs("size=3m")
    done = run_fcp(TWO, "--chunksize", "1M", source, target + b"/copy")
    assert done.code == 4, done.said
    assert done.said.count("No space left on device\n") == 2  # the failure, and why the job stops
    assert "entries failed" not in done.said
    assert b"copied 0 entries" in done.out
    subprocess.run(["mount", "-o", "remount,size=60m", target], check=True)
    resumed = run_fcp(TWO, "--chunksize", "1M", "--resume", source, target + b"/copy")
    assert resumed.code == 0
    assert ": 0 entries" in resumed.said


@pytest.mark.parametrize("tool", COPIES)
def test_copies_stop_at_a_read_only_file_system(
    place: bytes, mount_tmpfs: Mounting, tool: str
) -> None:
    source = grow(make_directory(place, b"source"))
    done = COPIES[tool](place + b"/log", source, read_only(mount_tmpfs) + b"/copy")
    check(done, place + b"/log", b"", errno.EROFS)
    assert "full" not in done.said


def test_a_mirror_that_needs_only_attributes(place: bytes, mount_tmpfs: Mounting) -> None:
    """No probe file is written, because no entry is created."""
    source, target = grow(make_directory(place, b"source")), mount_tmpfs("size=16m") + b"/copy"
    assert run_fmirror(TWO, source, target).code == 0
    os.chmod(source, 0o700)
    subprocess.run(["mount", "-o", "remount,ro", os.path.dirname(target)], check=True)
    done = run_fmirror(TWO, "--error-log", place + b"/log", source, target)
    check(done, place + b"/log", target, errno.EROFS)


def test_no_checkpoint_stays_where_its_files_cannot_be_created(
    place: bytes, mount_tmpfs: Mounting
) -> None:
    """The only free inode serves the directory of the checkpoint, which is removed again."""
    full = mount_tmpfs("nr_inodes=2")
    source = write_file(place + b"/file", b"x")
    done = run_fcp(TWO, "-r", source, full, "--error-log", place + b"/log")
    assert (done.code, os.listdir(full)) == (0, [b"file"]), done.said
    source = grow(make_directory(place, b"source"))
    os.unlink(full + b"/file")
    done = run_fcp(TWO, "-r", source, full, "--error-log", place + b"/log")
    check(done, place + b"/log", full + b"/source", errno.ENOSPC, ": all inodes are in use")
    assert [name for name in os.listdir(full) if name.startswith(b".")] == []


@pytest.mark.parametrize("tool", CHANGES)
def test_changes_stop_at_a_read_only_file_system(
    place: bytes, mount_tmpfs: Mounting, tool: str
) -> None:
    tree = read_only(mount_tmpfs, grown=True) + b"/below"
    check(CHANGES[tool](place + b"/log", tree), place + b"/log", tree, errno.EROFS)


def test_a_read_only_mount_below_a_writable_tree(place: bytes, mount_tmpfs: Mounting) -> None:
    """Only its entries fail, as with chmod; all others are changed."""
    file = write_file(place + b"/file", b"x", 0o600)
    read_only(mount_tmpfs)
    done = run_tool("fchmod", TWO, "-R", "o=,g+w", place)
    assert done.code == 1, done.said
    assert os.stat(file).st_mode & 0o777 == 0o620


@pytest.mark.parametrize("size", [BYTES, INODES])
def test_a_broadcast_names_the_file(place: bytes, mount_tmpfs: Mounting, size: str) -> None:
    source, full = grow(make_directory(place, b"source")), mount_tmpfs(size)
    done = run_fbcast(TWO, place, source, full)
    assert done.code == 4, done.said
    detail = ": all inodes are in use" if size == INODES else ""
    path = re.escape(os.fsdecode(full)) + "/source/"
    assert re.search(f"cannot write '{path}[^']*': No space left on device{detail}\n", done.said)
    refused = run_fbcast(TWO, place, source, read_only(mount_tmpfs))
    assert (refused.code, "Read-only file system" in refused.said) == (4, True), refused.said
