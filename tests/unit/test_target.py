"""Creation of one entry: name, mode, and the conditions that must stop the job.

Tests of full file systems use a real one, a tiny tmpfs that root mounts for the test.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import CREATE_FILE
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.overwrite import DestinationExistsError, OverwriteOptions
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.ops.copy.entry.target import TargetFullError, TargetWriter, TemporaryNames

NAME = b"name\xff"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners are changed by root alone")


def make_settings(
    keep: PreservedAttributes = PreservedAttributes(),  # noqa: B008 - frozen
    umask: int = 0o022,
) -> CopySettings:
    return CopySettings(keep=keep, large_bytes=1 << 20, token=b"t0k", umask=umask)


@pytest.fixture
def names() -> TemporaryNames:
    return TemporaryNames(make_settings(), 10)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """Create a target directory, under the umask that applies while fcp runs."""
    former = os.umask(0o022)
    folder = tmp_path / "target"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    yield fd
    os.close(fd)
    os.umask(former)


def source_status(tmp_path: Path, mode: int) -> os.stat_result:
    path = tmp_path / "source"
    path.write_bytes(b"source")
    path.chmod(mode)
    return path.stat()


def put(directory: int, name: bytes, mode: int, data: bytes = b"old") -> os.stat_result:
    fd = os.open(name, CREATE_FILE, 0o600, dir_fd=directory)
    os.write(fd, data)
    os.fchmod(fd, mode)
    os.close(fd)
    return os.stat(name, dir_fd=directory)


def read(directory: int, name: bytes) -> bytes:
    fd = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def mode_of(directory: int, name: bytes) -> int:
    return stat.S_IMODE(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def finish(
    directory: int, creation: target.TargetFile, source: os.stat_result, plan: CopySettings
) -> None:
    os.write(creation.fd, b"new")
    writer = TargetWriter(plan, TemporaryNames(plan, 1))
    writer.settle(creation, source)
    os.close(creation.fd)
    writer.publish(creation, directory)


def entries(directory: int) -> set[bytes]:
    return set(map(os.fsencode, os.listdir(directory)))


# ---- names ---------------------------------------------------------------------------


def test_temporary_names_are_short_and_never_the_same() -> None:
    made = [TemporaryNames(make_settings(), rank).next() for rank in range(1000)]
    of_one = TemporaryNames(make_settings(), 7)
    made += [of_one.next() for _ in range(1000)]
    made.remove(b".fcp-t0k-7-1")  # that both have created
    assert len(set(made)) == len(made)
    assert max(map(len, made)) < 32


# ---- creation ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o4755, 0o600, 0o444])
def test_a_new_file_has_its_own_name_and_the_mode_of_cp(
    tmp_path: Path, directory: int, names: TemporaryNames, mode: int
) -> None:
    source, plan = source_status(tmp_path, mode), make_settings()
    creation = TargetWriter(plan, names).create(directory, NAME, source)
    assert creation.written == creation.name == NAME
    assert creation.old is None
    finish(directory, creation, source, plan)
    assert mode_of(directory, NAME) == mode & 0o777 & ~0o022
    assert entries(directory) == {NAME}


def test_a_new_file_is_private_until_its_mode_is_set(
    tmp_path: Path, directory: int, names: TemporaryNames
) -> None:
    source, plan = source_status(tmp_path, 0o4755), make_settings(PreservedAttributes(mode=True))
    creation = TargetWriter(plan, names).create(directory, NAME, source)
    assert mode_of(directory, NAME) == 0o600
    finish(directory, creation, source, plan)
    assert mode_of(directory, NAME) == 0o4755


def test_the_owners_part_of_the_umask_acts_although_it_is_not_in_force(
    tmp_path: Path, directory: int, names: TemporaryNames
) -> None:
    source, plan = source_status(tmp_path, 0o755), make_settings(umask=0o222)
    finish(directory, TargetWriter(plan, names).create(directory, NAME, source), source, plan)
    finish(
        directory, TargetWriter(plan, names).create_beside(directory, b"2", source), source, plan
    )
    assert mode_of(directory, NAME) == mode_of(directory, b"2") == 0o755 & ~0o222


@pytest.mark.parametrize("mode", [0o644, 0o444, 0o000, 0o711])
def test_a_temporary_file_ends_with_the_same_mode(
    tmp_path: Path, directory: int, names: TemporaryNames, mode: int
) -> None:
    source, plan = source_status(tmp_path, mode), make_settings()
    creation = TargetWriter(plan, names).create_beside(directory, NAME, source)
    assert creation.written != NAME
    assert mode_of(directory, creation.written) & 0o600 == 0o600  # other users will write to it
    finish(directory, creation, source, plan)
    assert entries(directory) == {NAME}
    assert mode_of(directory, NAME) == mode & ~0o022


def test_creation_follows_no_links(tmp_path: Path, directory: int, names: TemporaryNames) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep me")
    os.symlink(victim, NAME, dir_fd=directory)
    os.symlink(tmp_path / "not-there", b"dangling", dir_fd=directory)
    source, plan = source_status(tmp_path, 0o640), make_settings()
    for name in (NAME, b"dangling"):
        finish(directory, TargetWriter(plan, names).create(directory, name, source), source, plan)
        assert read(directory, name) == b"new"
        assert mode_of(directory, name) == 0o640
    assert victim.read_bytes() == b"keep me"
    assert not (tmp_path / "not-there").exists()


# ---- replacement ---------------------------------------------------------------------


def test_the_old_file_is_whole_until_the_new_one_is(
    tmp_path: Path, directory: int, names: TemporaryNames
) -> None:
    old = put(directory, NAME, 0o604)
    source, plan = source_status(tmp_path, 0o755), make_settings()
    creation = TargetWriter(plan, names).create(directory, NAME, source)
    assert creation.old is not None
    assert creation.old.st_ino == old.st_ino
    assert mode_of(directory, creation.written) == 0o600
    assert read(directory, NAME) == b"old"
    finish(directory, creation, source, plan)
    assert read(directory, NAME) == b"new"
    assert mode_of(directory, NAME) == 0o604  # like cp, which writes into the old file
    assert entries(directory) == {NAME}


@as_root
def test_replaced_files_keep_their_owner_unless_owners_are_preserved(
    tmp_path: Path, directory: int, names: TemporaryNames
) -> None:
    os.chown(tmp_path, 0, 0)
    source = source_status(tmp_path, 0o644)
    for keep, owner in (
        (PreservedAttributes(), (41, 42)),
        (PreservedAttributes(ownership=True), (0, 0)),
    ):
        put(directory, NAME, 0o4711)
        os.chown(NAME, 41, 42, dir_fd=directory)
        os.chmod(NAME, 0o4711, dir_fd=directory)
        plan = make_settings(keep)
        finish(directory, TargetWriter(plan, names).create(directory, NAME, source), source, plan)
        now = os.stat(NAME, dir_fd=directory)
        assert (now.st_uid, now.st_gid) == owner
        os.unlink(NAME, dir_fd=directory)


def test_only_files_and_links_are_replaced(
    tmp_path: Path, directory: int, names: TemporaryNames
) -> None:
    os.mkdir(b"directory", dir_fd=directory)
    os.mkfifo(b"fifo", dir_fd=directory)
    source, plan = source_status(tmp_path, 0o644), make_settings()
    for name, wrong in ((b"directory", IsADirectoryError), (b"fifo", FileExistsError)):
        with pytest.raises(wrong, match="in the way"):
            TargetWriter(plan, names).create(directory, name, source)
        with pytest.raises(wrong, match="in the way"):
            target.replaceable(directory, name, names)
    assert target.replaceable(directory, b"missing", names) is None
    assert entries(directory) == {b"directory", b"fifo"}


def test_a_file_that_is_linked_meanwhile_is_not_rewritten(
    tmp_path: Path, directory: int, names: TemporaryNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory, NAME, 0o644)
    plan = msgspec.structs.replace(make_settings(), existing=OverwriteOptions(in_place=True))
    replaceable = target.replaceable

    def link_afterwards(*args: Any) -> os.stat_result | None:
        old = replaceable(*args)
        os.link(NAME, b"other", src_dir_fd=directory, dst_dir_fd=directory)
        return old

    monkeypatch.setattr(target, "replaceable", link_afterwards)
    with pytest.raises(Changed):
        TargetWriter(plan, names).create(directory, NAME, source_status(tmp_path, 0o644))
    assert read(directory, b"other") == b"old"


def test_existing_link_to_a_file_of_this_copy_stays(
    tmp_path: Path, directory: int, names: TemporaryNames
) -> None:
    os.symlink(b"copied", NAME, dir_fd=directory)
    linked_ns = os.stat(NAME, dir_fd=directory, follow_symlinks=False).st_ctime_ns
    while put(directory, b"copied", 0o644).st_ctime_ns == linked_ns:
        os.unlink(b"copied", dir_fd=directory)
    existing = OverwriteOptions(in_place=True, stays=True)
    plan = msgspec.structs.replace(make_settings(), existing=existing, since_ns=linked_ns + 1)
    with pytest.raises(DestinationExistsError):
        TargetWriter(plan, names).create(directory, NAME, source_status(tmp_path, 0o644))


def test_discarding_a_missing_file_is_no_error(directory: int) -> None:
    put(directory, NAME, 0o600)
    target.discard(NAME, directory)
    target.discard(NAME, directory)
    assert entries(directory) == set()


# ---- full ----------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs of 256 KiB and 16 entries."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=16", "pcircle-test"]
    with suppress(FileNotFoundError):
        done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            yield folder
            subprocess.run(["umount", folder], check=True)
            return
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    pytest.skip("there is no mount command")


@pytest.fixture
def tiny_fd(tiny: Path) -> Iterator[int]:
    fd = os.open(tiny, os.O_RDONLY)
    yield fd
    os.close(fd)


def fill_bytes(directory: int) -> None:
    fd = os.open(b"filler", CREATE_FILE, 0o600, dir_fd=directory)
    try:
        size = 256 << 10
        assert os.write(fd, bytes(size)) == size
        with pytest.raises(OSError, match="space"):
            os.write(fd, b"!")
    finally:
        os.close(fd)


def fill_entries(directory: int) -> None:
    for number in range(15):  # the root is one of the 16
        os.mkdir(b"%d" % number, dir_fd=directory)
    with pytest.raises(OSError, match="space"):
        os.mkdir(b"15", dir_fd=directory)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fill", [fill_bytes, fill_entries])
def test_a_full_file_system_stops_the_job(
    tiny_fd: int, names: TemporaryNames, fill: object
) -> None:
    assert callable(fill)
    fill(tiny_fd)
    before = entries(tiny_fd)
    with pytest.raises(TargetFullError, match="No space left") as caught:
        target.stop_if_full(full(), tiny_fd, names)
    assert ("inodes" in str(caught.value)) == (fill is fill_entries)
    assert entries(tiny_fd) == before


def test_an_almost_full_file_system_stops_the_job_too(tiny_fd: int, names: TemporaryNames) -> None:
    fd = os.open(b"filler", CREATE_FILE, 0o600, dir_fd=tiny_fd)
    os.write(fd, bytes(240 << 10))
    os.close(fd)
    with pytest.raises(TargetFullError):
        target.stop_if_full(full(), tiny_fd, names)
    assert entries(tiny_fd) == {b"filler"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_successful_probe_makes_it_a_failure_of_the_entry(
    directory: int, names: TemporaryNames, number: int
) -> None:
    target.stop_if_full(OSError(number, "so it is said"), directory, names)
    assert entries(directory) == set()


def test_other_errors_are_not_probed(names: TemporaryNames) -> None:
    target.stop_if_full(OSError(errno.EACCES, "no"), -1, names)


def test_a_probe_that_fails_otherwise_does_not_report_a_full_disk(
    directory: int, names: TemporaryNames
) -> None:
    """The directory was removed meanwhile, which is a failure of that entry."""
    os.rmdir(os.readlink(f"/proc/self/fd/{directory}"))
    target.stop_if_full(full(), directory, names)


def test_a_read_only_file_system_stops_the_job(
    tiny: Path, tiny_fd: int, names: TemporaryNames
) -> None:
    remount = ["mount", "-o", "remount,ro", str(tiny)]
    assert subprocess.run(remount, check=False).returncode == 0
    with pytest.raises(TargetFullError, match="Read-only"):
        target.stop_if_full(OSError(errno.EROFS, "Read-only"), tiny_fd, names)
