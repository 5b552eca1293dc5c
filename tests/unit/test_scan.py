"""Directory listings in blocks: every name once, by kind, and the first names early."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.fs.scan import (
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    FILE,
    FOLDER,
    LINK,
    Block,
    blocks,
    listed_first,
    names_and_kinds,
)
from tests.conftest import Run
from tests.unit.unprivileged import run_unprivileged

MANY = 100_000


def scan(path: str | os.PathLike[str]) -> list[Block]:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = list(blocks(fd))
        assert stat.S_ISDIR(os.fstat(fd).st_mode)  # still open: it belongs to the caller
    finally:
        os.close(fd)
    return found


def test_an_empty_directory_is_one_empty_block(tmp_path: Path) -> None:
    (block,) = scan(tmp_path)
    assert block.last
    assert len(block) == 0
    assert not block


def test_names_are_listed_by_type_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "directory").mkdir()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-directory").symlink_to("directory")
    (tmp_path / "to-nothing").symlink_to("nothing")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
    (block,) = scan(tmp_path)
    assert block.files == ["file"]
    assert block.directories == ["directory"]
    assert sorted(block.links) == ["to-directory", "to-file", "to-nothing"]
    assert sorted(block.specials) == ["fifo", "socket"]
    assert len(block) == 7
    assert block.last


def test_names_of_any_bytes_survive(tmp_path: Path) -> None:
    names = {b"\xff\xfe", b"new\nline", b" ", b"-rf", "\u00e9".encode(), b"x" * 255, b"*"}
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
            pass
    (block,) = scan(tmp_path)
    assert {os.fsencode(name) for name in block.files} == names


def test_a_large_directory_comes_in_several_blocks() -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pcircle-test-", dir=memory) as folder:
        fd = os.open(folder, os.O_RDONLY)
        try:
            for number in range(MANY):
                os.mknod(f"{number:x}", stat.S_IFREG | 0o600, dir_fd=fd)
            lasts, names = [], set[str]()
            reading = blocks(fd)
            first = next(reading)
            # The first block can be processed while the remaining ones are not yet read.
            assert 0 < len(first) <= BLOCK_ENTRIES
            for block in (first, *reading):
                assert len(block) <= BLOCK_ENTRIES
                assert names.isdisjoint(block.files)
                names.update(block.files)
                lasts.append(block.last)
        finally:
            os.close(fd)
    assert len(lasts) > 1
    assert lasts == [False] * (len(lasts) - 1) + [True]
    assert names == {f"{number:x}" for number in range(MANY)}


def test_a_block_of_long_names_has_fewer() -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pcircle-test-", dir=memory) as folder:
        fd = os.open(folder, os.O_RDONLY)
        try:
            for number in range(3 * BLOCK_BYTES // 250):
                os.mknod(f"{number:0250}", stat.S_IFREG | 0o600, dir_fd=fd)
            sizes = [sum(map(len, block.files)) for block in blocks(fd)]
        finally:
            os.close(fd)
    assert sum(sizes) == 3 * BLOCK_BYTES // 250 * 250
    assert max(sizes) < BLOCK_BYTES + 1024 * 250, "and no more than is read at a time"


def test_other_entries_raise_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        scan(tmp_path / "file")


def test_a_directory_opened_for_its_path_alone_is_an_oserror(run: Run, tmp_path: Path) -> None:
    program = """
os.mkdir("closed", 0o300)
fd = os.open("closed", os.O_PATH | os.O_DIRECTORY)
try:
    list(scan.blocks(fd))
except OSError as error:
    assert error.errno == errno.EBADF, error
else:
    raise AssertionError("read")
"""
    done = run_unprivileged(run, program, tmp_path)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("count", [1, 3])
def test_a_directory_is_read_completely_before_its_first_block(count: int) -> None:
    """Nothing is removed from a directory while it is listed; the blocks are the same."""
    made: list[Block] = []

    def read() -> Iterator[Block]:
        for number in range(count):
            block = Block()
            block.files, block.links = [f"f{number}", "two\nlines", "\udcff"], [f"l{number}"]
            block.add_directory(b"d%d" % number)
            block.last = number == count - 1
            made.append(block)
            yield block

    given = listed_first(read())
    first = next(given)
    assert len(made) == count
    found = [first, *given]
    for field in ("files", "links", "directories", "specials", "last", "below"):
        assert [getattr(b, field) for b in found] == [getattr(b, field) for b in made]


def kinds_of(path: str | os.PathLike[str], most: int) -> dict[bytes, int] | None:
    """Return the kinds of a directory's entries, by name."""
    fd = os.open(path, os.O_RDONLY)
    try:
        found = names_and_kinds(fd, most)
        return None if found is None else dict(zip(*found, strict=True))
    finally:
        os.close(fd)


def test_names_of_every_length_and_kind_are_listed_at_once(tmp_path: Path) -> None:
    wanted = {bytes([97 + size % 26]) * size: FILE[0] for size in range(1, 256)}
    wanted |= {b"\x08": FILE[0], b"\x04x": FILE[0], b"...": FILE[0], b"\xff\n": FILE[0]}
    for name in wanted:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
            pass
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    wanted |= {b"directory": FOLDER[0], b"link": LINK[0], b"fifo": stat.S_IFIFO >> 12}
    assert kinds_of(tmp_path, 1000) == wanted


def test_a_large_directory_is_not_listed_at_once(tmp_path: Path) -> None:
    assert kinds_of(tmp_path, 0) == {}
    for number in range(1000):
        (tmp_path / str(number)).touch()
    assert len(kinds_of(tmp_path, 1000) or ()) == 1000
    assert kinds_of(tmp_path, 999) is None
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert names_and_kinds(fd, 10) is None
        (block,) = blocks(fd)  # from its beginning
        assert len(block) == 1000
        for _ in range(2):  # each time from its beginning
            assert names_and_kinds(fd, 1000, asks=False)
    finally:
        os.close(fd)


def test_other_entries_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        kinds_of(tmp_path / "file", 9)
    with pytest.raises(OSError, match="descriptor"):
        names_and_kinds(-1, 9)
