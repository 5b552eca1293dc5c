"""Existing entries: replaced atomically, or left alone and reported.

Only regular files and symbolic links are ever replaced, as themselves; nothing is ever written
through a link below the destination, nor into a device or a FIFO.
"""

from __future__ import annotations

import os
import socket
import stat
import threading

import pytest

from .judge import CONTENT, METADATA, differences, snapshot
from .running import FOUR, TWO, Launcher, copy, run_fcp, some_launchers
from .trees import (
    BLOCK_BYTES,
    FOREIGN_GID,
    FOREIGN_UID,
    build_small_tree,
    content,
    make_directory,
    set_times,
    write_file,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can")
SMALL_BYTES = 3000
LARGE_BYTES = 2 * BLOCK_BYTES + 77


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


@some_launchers
@pytest.mark.parametrize("size_bytes", [0, SMALL_BYTES, LARGE_BYTES])
def test_longer_old_file_leaves_no_tail(launcher: Launcher, size_bytes: int, place: bytes) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    write_file(source + b"/file", content("new", size_bytes))
    write_file(target + b"/file", content("old", LARGE_BYTES + 100_000))
    copy(launcher, "-T", "--chunksize", "4M", source, target)
    assert differences(source, target, CONTENT) == []


@some_launchers
def test_second_copy_over_the_first(launcher: Launcher, place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), place + b"/target"
    set_times(source)
    copy(launcher, "-p", source, target)
    copy(launcher, "-p", "-T", source, target)
    assert differences(source, target, METADATA) == []


@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_reader_never_sees_part_of_a_file(size_bytes: int, place: bytes) -> None:
    """A reader that opens the name repeatedly finds the complete old or new file."""
    versions = [content(seed, size_bytes - seed) for seed in (0, 1)]
    sources = [write_file(place + b"/%d" % number, data) for number, data in enumerate(versions)]
    target = write_file(place + b"/target", versions[0])
    seen: list[int] = []
    strange: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen.append(versions.index(_read(target)))
            except (OSError, ValueError) as error:
                strange.append(repr(error)[:200])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for repetition in range(10):
            copy(TWO, "--chunksize", "4M", sources[1 - repetition % 2], target)
    finally:
        stop.set()
        reader.join()
    assert strange == []
    assert set(seen) == {0, 1}


def test_a_replaced_file_has_a_new_inode(place: bytes) -> None:
    """An open descriptor and a hard link still have the old content."""
    source = write_file(place + b"/source", b"new content")
    target = write_file(place + b"/target", b"old content!")
    os.link(target, place + b"/backup")
    copy(TWO, source, target)
    assert (_read(target), _read(place + b"/backup")) == (b"new content", b"old content!")


@some_launchers
@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_replaced_file_keeps_its_mode(launcher: Launcher, size_bytes: int, place: bytes) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for mode in (0o600, 0o444, 0o751, 0o666):
        write_file(source + b"/%o" % mode, content(mode, size_bytes), 0o640)
        write_file(target + b"/%o" % mode, b"old", mode)
    copy(launcher, "-T", "--chunksize", "4M", source, target)
    assert differences(source, target, CONTENT) == []
    for mode in (0o600, 0o444, 0o751, 0o666):
        assert stat.S_IMODE(os.stat(target + b"/%o" % mode).st_mode) == mode


@needs_root
@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_replaced_file_keeps_its_owner(size_bytes: int, place: bytes) -> None:
    source = write_file(place + b"/source", content("new", size_bytes))
    target = write_file(place + b"/target", b"old", 0o640)
    os.chown(target, FOREIGN_UID, FOREIGN_GID)
    copy(TWO, source, target)
    status = os.stat(target)
    assert (status.st_uid, status.st_gid) == (FOREIGN_UID, FOREIGN_GID)
    assert stat.S_IMODE(status.st_mode) == 0o640
    assert _read(target) == _read(source)


@needs_root
def test_preserve_replaces_mode_and_owner(place: bytes) -> None:
    source = write_file(place + b"/source", b"new", 0o604)
    target = write_file(place + b"/target", b"old", 0o640)
    os.chown(target, FOREIGN_UID, FOREIGN_GID)
    copy(TWO, "-p", source, target)
    assert differences(source, target, METADATA) == []


def test_existing_directory_keeps_its_mode(place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), make_directory(place, b"target")
    os.chmod(target, 0o710)
    copy(TWO, "-T", source, target)
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o710


@some_launchers
@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_link_is_replaced_and_not_followed(
    launcher: Launcher, size_bytes: int, place: bytes
) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    precious = write_file(place + b"/precious", b"precious")
    for name in (b"to file", b"dangling", b"to directory"):
        write_file(os.path.join(source, name), content(size_bytes, size_bytes))
    os.symlink(precious, target + b"/to file")
    os.symlink(place + b"/nowhere", target + b"/dangling")
    os.symlink(place, target + b"/to directory")
    copy(launcher, "-T", "--chunksize", "4M", source, target)
    assert differences(source, target, CONTENT) == []
    assert _read(precious) == b"precious"
    assert sorted(os.listdir(place)) == [b"precious", b"source", b"target"]


def test_link_is_replaced_by_a_link(place: bytes) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for name in (b"over link", b"over file"):
        os.symlink(b"new target", os.path.join(source, name))
    os.symlink(b"old", target + b"/over link")
    write_file(target + b"/over file", b"old")
    copy(TWO, "-T", source, target)
    assert differences(source, target, CONTENT) == []


@some_launchers
def test_directory_is_not_entered_through_a_link(launcher: Launcher, place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), make_directory(place, b"target")
    elsewhere = make_directory(place, b"elsewhere")
    os.symlink(elsewhere, target + b"/directory 1")
    finished = run_fcp(launcher, "-p", "-T", source, target)
    assert finished.code == 1, finished.said
    assert "directory 1" in finished.said
    assert os.listdir(elsewhere) == []
    assert os.readlink(target + b"/directory 1") == elsewhere
    assert differences(source + b"/directory 2", target + b"/directory 2") == []
    assert _read(target + b"/large") == _read(source + b"/large")


@some_launchers
def test_kinds_that_are_never_replaced(launcher: Launcher, place: bytes) -> None:
    """An entry with another type at its destination fails, by name; the others are copied."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for name in (b"over directory", b"over fifo", b"over socket", b"fine 1", b"fine 2"):
        write_file(os.path.join(source, name), content("new", SMALL_BYTES))
    write_file(source + b"/large over fifo", content("new", LARGE_BYTES))
    make_directory(source, b"directory over file", b"inner")
    os.symlink(b"x", source + b"/link over directory")
    make_directory(target, b"over directory", b"inner")
    make_directory(target, b"link over directory")
    os.mkfifo(target + b"/over fifo")
    os.mkfifo(target + b"/large over fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(target + b"/over socket")
    write_file(target + b"/directory over file", b"precious")
    refused = sorted(set(os.listdir(source)) - {b"fine 1", b"fine 2"})
    before = [snapshot(os.path.join(target, name)) for name in refused]

    finished = run_fcp(launcher, "-T", "--chunksize", "4M", source, target)

    assert finished.code == 1, finished.said
    for name in refused:
        assert name.decode() in finished.said
    assert [snapshot(os.path.join(target, name)) for name in refused] == before
    assert _read(target + b"/fine 1") == _read(target + b"/fine 2") == _read(source + b"/fine 1")
    assert sorted(os.listdir(target)) == sorted(os.listdir(source))


@needs_root
@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_device_as_destination(size_bytes: int, place: bytes) -> None:
    """``fcp x /dev/null`` must not destroy a device."""
    source, device = write_file(place + b"/source", content(1, size_bytes)), place + b"/null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    before = snapshot(device)
    finished = run_fcp(TWO, source, device)
    assert finished.code == 2, finished.said
    assert "null" in finished.said
    assert snapshot(device) == before
    assert sorted(os.listdir(place)) == [b"null", b"source"]


def test_fifo_as_destination(place: bytes) -> None:
    source, fifo = write_file(place + b"/source", b"data"), place + b"/fifo"
    os.mkfifo(fifo)
    finished = run_fcp(TWO, source, fifo)
    assert finished.code == 2, finished.said
    assert stat.S_ISFIFO(os.lstat(fifo).st_mode)


def test_other_files_at_the_destination_stay(place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), make_directory(place, b"target")
    unrelated = write_file(target + b"/kept", b"kept")
    copy(FOUR, "-T", source, target)
    assert _read(unrelated) == b"kept"
    os.unlink(unrelated)
    assert differences(source, target, CONTENT) == []
