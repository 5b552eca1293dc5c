"""Attributes of copies: their order, and failures that are not errors without privileges.

As root, owners really change, and the bits that a change of owner clears are restored. As nobody,
in a separate process, nothing fails, and no id bits are set on a file of another user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pcircle.fs.attributes.metadata import (
    PreservedAttributes,
    settle_file,
    settle_link,
    settle_searched,
)
from pcircle.fs.attributes.owners import Given, Giver
from pcircle.fs.native import pure
from pcircle.fs.stats import Table
from tests.conftest import Run
from tests.tools.fcp.access import ACCESS, DEFAULT, NOBODY, Subject, access_of, allowed, pack
from tests.unit.unprivileged import run_unprivileged

OWNER, GROUP = 4711, 4712
# No clock rounds to these times.
TIMES_NS = (1_234_567_890_123_456_789, 987_654_321_987_654_321)
ALL = PreservedAttributes(mode=True, ownership=True, timestamps=True)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners are changed by root alone")


def make_source(path: Path, mode: int) -> os.stat_result:
    """Create a file of another owner with a mode and times; return its status."""
    path.write_bytes(b"source")
    return mark(path, mode)


def mark(path: Path, mode: int) -> os.stat_result:
    if os.geteuid() == 0:
        os.chown(path, OWNER, GROUP, follow_symlinks=False)
    if not path.is_symlink():
        path.chmod(mode)
    os.utime(path, ns=TIMES_NS, follow_symlinks=False)
    return os.lstat(path)


def settle(path: Path, source: os.stat_result, keep: PreservedAttributes) -> os.stat_result:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, b"copy")
        settle_file(fd, source, keep)
    finally:
        os.close(fd)
    return path.stat()


def times_ns(status: os.stat_result) -> tuple[int, int]:
    return status.st_atime_ns, status.st_mtime_ns


@as_root
@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6711, 0o1777, 0o000])
def test_id_bits_survive_the_change_of_owner(tmp_path: Path, mode: int) -> None:
    source = make_source(tmp_path / "source", mode)
    copy = settle(tmp_path / "copy", source, ALL)
    assert stat.S_IMODE(copy.st_mode) == mode
    assert (copy.st_uid, copy.st_gid) == (OWNER, GROUP)


def test_times_are_exact_to_the_nanosecond_and_set_last(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", 0o640)
    copy = settle(tmp_path / "copy", source, ALL)
    assert times_ns(copy) == TIMES_NS


@pytest.mark.parametrize(
    "keep",
    [
        PreservedAttributes(),
        PreservedAttributes(mode=True),
        PreservedAttributes(ownership=True),
        ALL,
    ],
)
def test_only_requested_attributes_are_set(tmp_path: Path, keep: PreservedAttributes) -> None:
    source = make_source(tmp_path / "source", 0o751)
    copy = settle(tmp_path / "copy", source, keep)
    mine = (os.geteuid(), os.getegid())
    owner = (source.st_uid, source.st_gid) if keep.ownership else mine
    assert stat.S_IMODE(copy.st_mode) == (0o751 if keep.mode else 0o600)
    assert (copy.st_uid, copy.st_gid) == owner
    assert (times_ns(copy) == TIMES_NS) is keep.timestamps
    assert keep.any is (keep != PreservedAttributes())


def test_a_link_gets_the_attributes_itself(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"")
    before = (tmp_path / "victim").stat()
    for name in ("source", "copy"):
        (tmp_path / name).symlink_to("victim")
    source = mark(tmp_path / "source", 0o777)
    fd = os.open(tmp_path / "copy", os.O_PATH | os.O_NOFOLLOW)
    try:
        settle_link(b"/proc/self/fd/%d" % fd, source, ALL)
    finally:
        os.close(fd)
    copy = (tmp_path / "copy").lstat()
    assert times_ns(copy) == TIMES_NS
    assert (copy.st_uid, copy.st_gid) == (source.st_uid, source.st_gid)
    after = (tmp_path / "victim").stat()
    assert times_ns(after) == times_ns(before)
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )


def test_a_directory_gets_them_by_its_descriptor(tmp_path: Path) -> None:
    for name in ("source", "copy"):
        (tmp_path / name).mkdir()
    source = mark(tmp_path / "source", 0o3751)
    fd = os.open(tmp_path / "copy", os.O_RDONLY)
    try:
        settle_searched(fd, source, ALL)
    finally:
        os.close(fd)
    copy = (tmp_path / "copy").stat()
    assert stat.S_IMODE(copy.st_mode) == stat.S_IMODE(source.st_mode)
    assert times_ns(copy) == TIMES_NS
    assert (copy.st_uid, copy.st_gid) == (source.st_uid, source.st_gid)


@as_root
@pytest.mark.parametrize("group", ["another", "own"])
def test_without_privileges_id_bits_are_dropped(run: Run, tmp_path: Path, group: str) -> None:
    """The copy of a file of root belongs to nobody, so it must not be set-user-id."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, kind in (("file", "file"), ("directory", "directory")):
        path = folder / name
        path.write_bytes(b"") if kind == "file" else path.mkdir()
        os.chown(path, 0, 0 if group == "another" else 65534)
        path.chmod(0o6755)
        os.utime(path, ns=TIMES_NS)
    program = """
keep = metadata.PreservedAttributes(mode=True, ownership=True, timestamps=True)
fd = os.open("copy", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
metadata.settle_file(fd, os.stat("file"), keep)
os.mkdir("made", 0o700)
made = os.open("made", os.O_RDONLY)
metadata.settle_searched(made, os.stat("directory"), keep)
for status, source in ((os.fstat(fd), "file"), (os.fstat(made), "directory")):
    assert stat.S_IMODE(status.st_mode) == 0o755, oct(status.st_mode)
    assert status.st_uid == os.geteuid()
    assert status.st_gid == os.getegid()
    assert status.st_mtime_ns == os.stat(source).st_mtime_ns
"""
    done = run_unprivileged(run, program, folder)
    assert done.returncode == 0, done.stderr.decode()


@as_root
def test_without_privileges_an_own_group_is_preserved(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chmod(folder, 0o2777)
    program = """
fd = os.open("mine", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
os.fchmod(fd, 0o4750)
keep = metadata.PreservedAttributes(mode=True, ownership=True)
copy = os.open("copy", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
metadata.settle_file(copy, os.fstat(fd), keep)
status = os.fstat(copy)
assert stat.S_IMODE(status.st_mode) == 0o4750, oct(status.st_mode)
"""
    done = run_unprivileged(run, program, folder)
    assert done.returncode == 0, done.stderr.decode()


def test_other_failures_than_missing_privileges_are_raised(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", 0o644)
    fd = os.open(tmp_path / "copy", os.O_WRONLY | os.O_CREAT, 0o600)
    os.close(fd)
    with pytest.raises(OSError, match="descriptor"):
        settle_file(fd, source, ALL)
    with pytest.raises(FileNotFoundError):
        settle_link(b"/proc/self/fd/missing", source, ALL)


@as_root
@pytest.mark.parametrize("listed", ["", "old", "folder"])
def test_a_replacement_grants_its_new_group_no_access(
    run: Run, tmp_path: Path, listed: str
) -> None:
    """With the mode or ACL of the old file of root, nobody's group would get access."""
    folder = tmp_path / "folder"
    folder.mkdir()
    old = folder / "old"
    old.write_bytes(b"")
    old.chmod(0o664)
    if listed:
        entries = [(1, 6, NOBODY), (2, 6, 70), (4, 6, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY)]
        where = (old, ACCESS) if listed == "old" else (folder, DEFAULT)
        try:
            os.setxattr(*where, pack(entries))
        except OSError as error:
            pytest.skip(f"the file system of the tests holds no lists: {error}")
    program = """
from pcircle.fs.attributes import acls
old = os.stat("old")
copy = os.open("copy", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
metadata.settle_as_replaced(copy, old, acls.read_list(b"old"), metadata.PreservedAttributes())
"""
    done = run_unprivileged(run, program, folder)
    assert done.returncode == 0, done.stderr.decode()
    copy = access_of(os.fsencode(folder / "copy"))
    assert copy.group != old.stat().st_gid
    assert allowed(copy, Subject(4711, frozenset({copy.group}))) == 0
    assert allowed(copy, Subject(70, frozenset())) == (6 if listed == "old" else 4)


def test_given_owners_apply_to_rows_of_a_batch_as_to_a_single_status(tmp_path: Path) -> None:
    status = make_source(tmp_path / "file", 0o644)
    (row,) = Table(pure.table([status])).rows(1)
    giver = Giver(Given(1, 2, (), (), ()))
    for given in (giver.status(status), giver.status(row)):
        assert (given.st_uid, given.st_gid, given.st_mode) == (1, 2, status.st_mode)
        assert (given.st_size, given.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
