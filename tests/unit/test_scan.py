"""Reading a directory in blocks: every name once, by kind, and the first ones soon."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.fs import scan as scanning
from pcircle.fs.scan import (
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    FILE,
    FOLDER,
    LINK,
    Block,
    Listings,
    blocks,
    few,
    few_files,
    file_system,
    files_of,
    listed_first,
    plain,
    records_bytes,
    records_of,
)
from tests.conftest import Run
from tests.unit.unprivileged import run_unprivileged

MANY = 100_000


def scan(path: str | os.PathLike[str]) -> list[Block]:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = list(blocks(fd))
        assert stat.S_ISDIR(os.fstat(fd).st_mode)  # still open: it is the caller's
    finally:
        os.close(fd)
    return found


def test_an_empty_directory_is_one_empty_block(tmp_path: Path) -> None:
    (block,) = scan(tmp_path)
    assert block.last
    assert len(block) == 0
    assert not block


def test_names_come_by_kind_and_links_are_not_followed(tmp_path: Path) -> None:
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
            # What the first block has can be worked on while the rest is not yet read.
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


def test_what_is_no_directory_is_an_oserror(tmp_path: Path) -> None:
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


def test_a_directory_without_a_size_is_not_listed_whole() -> None:
    """As of a devtmpfs in a kernel that has no tmpfs; of any other one its size tells."""
    listings = Listings()
    fd = os.open("/dev", os.O_RDONLY)
    try:
        status = os.fstat(fd)
        for name, waits in ((b"devtmpfs", False), (b"tmpfs", False), (b"ext4", True)):
            system = file_system(name)
            assert system == (True, waits)
            for size, whole in ((0, False), (1, True), (65536, True), (65537, False)):
                of_size = os.stat_result([*status[:6], size, *status[7:10]])
                assert (listings.whole(fd, of_size, system) is not None) is whole
    finally:
        os.close(fd)


def test_a_small_directory_is_listed_whole_where_its_size_tells(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path))
    try:
        for number in range(1000):
            (folder / str(number)).touch()
        fd = os.open(folder, os.O_RDONLY)
        status = os.fstat(fd)
        listings = Listings()
        system = listings.of(status.st_dev)
        whole = listings.whole(fd, status, system)
        if system.tells:
            assert whole is not None
            assert sorted(whole) == sorted(os.listdir(os.fsencode(folder)))
        else:
            assert whole is None
        larger = os.stat_result([*status[:6], 65_537, *status[7:10]])
        assert listings.whole(fd, larger, system) is None
        os.close(fd)
    finally:
        shutil.rmtree(folder)


def test_where_the_size_tells_nothing_no_directory_is_listed_whole() -> None:
    fd = os.open("/proc/self", os.O_RDONLY)
    try:
        system = Listings().of(os.fstat(fd).st_dev)
        assert Listings().whole(fd, os.fstat(fd), system) is None
        assert system.waits
    finally:
        os.close(fd)


@pytest.mark.parametrize("count", [1, 3])
def test_a_directory_is_read_to_its_end_before_its_first_block_is_given(count: int) -> None:
    """So nothing is removed from one while it is listed; the blocks are the same."""
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


def few_of(path: str | os.PathLike[str], most: int) -> bytes | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        return few(fd, most)
    finally:
        os.close(fd)


def kinds_of(found: bytes | None) -> dict[bytes, bytes]:
    assert found is not None
    return {each[1:]: each[:1] for each in found.split(b"\0")[1:]}


def test_records_of_the_kernel_are_the_names_and_kinds_of_a_scan(tmp_path: Path) -> None:
    """Names of every length: a record is as long as its name wants it, and some more."""
    wanted = {bytes([97 + size % 26]) * size: FILE for size in range(1, 256)}
    wanted |= {b"\x08": FILE, b"\x04x": FILE, b"...": FILE, b"\xff\n": FILE}
    for name in wanted:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
            pass
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    found = kinds_of(few_of(tmp_path, 1000))
    special = found.pop(b"fifo")
    assert special not in (FILE, FOLDER, LINK)
    assert found == wanted | {b"directory": FOLDER, b"link": LINK}


def made_record(kind: bytes, name: bytes) -> bytes:
    """As the kernel makes it, of any length."""
    size = -(-(20 + len(name)) // 8) * 8
    return (struct.pack("=QqH", 1, 1, size) + kind + name).ljust(size, b"\0")


@pytest.mark.parametrize("wanted", [None, scanning._PLAIN])
def test_a_name_that_is_too_long_is_told_and_hides_nothing(wanted: bytes | None) -> None:
    """NTFS and vfat have up to 765 bytes."""
    records = records_of() if wanted is None else records_of(wanted=wanted)
    begin = b"".join(made_record(FOLDER, name) for name in (b".", b"..")) + made_record(FILE, b"a")
    long = made_record(FILE, b"x" * 300)
    data = bytearray(begin + long + made_record(FILE, b"z"))
    found = records(data, 0, len(data))
    assert len(found) == 4
    assert found[-1] == b""


def test_a_directory_of_few_entries_is_read_up_to_a_number(tmp_path: Path) -> None:
    assert few_of(tmp_path, 0) == b""
    for number in range(1000):
        (tmp_path / str(number)).touch()
    assert files_of(few_of(tmp_path, 1000)) is not None
    assert few_of(tmp_path, 999) is None
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert few(fd, 10) is None
        (block,) = blocks(fd)  # from its beginning
        assert len(block) == 1000
        assert len(few_files(fd, 1000) or ()) == 1000
        assert len(few_files(fd, 1000) or ()) == 1000
    finally:
        os.close(fd)


def plain_of(path: str | bytes | os.PathLike[str], most: int) -> tuple[set[bytes], int] | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = plain(fd, most)
        return None if found is None else (set(found[0]), found[1])
    finally:
        os.close(fd)


def bytes_of(path: str | bytes | os.PathLike[str], most: int) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        return records_bytes(fd, most)
    finally:
        os.close(fd)


def test_names_of_files_alone_come_with_the_bytes_of_their_records(tmp_path: Path) -> None:
    """Any other name makes those of a directory more."""
    here, there = os.fsencode(tmp_path / "here"), os.fsencode(tmp_path / "there")
    names = {bytes([97 + size % 26]) * size for size in range(1, 256)} | {b"...", b".x", b"\x04."}
    for folder in (here, there):
        os.mkdir(folder)
        assert plain_of(folder, 0) == (set(), bytes_of(folder, 1000))
        for name in sorted(names, reverse=folder == there):
            with open(os.path.join(folder, name), "wb"):
                pass
    found = plain_of(here, len(names))
    assert found is not None
    assert found[0] == names
    assert plain_of(here, 9) is None
    assert bytes_of(there, 1 << 20) == found[1]
    assert bytes_of(there, found[1] - 1) == -1
    with open(os.path.join(there, b"y"), "wb"):
        pass
    assert bytes_of(there, 1 << 20) > found[1]
    assert bytes_of(there, found[1]) == -1
    assert bytes_of(os.path.join(there, b"y"), 9) == -1


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_names_of_others_than_files_are_not_passed_by(tmp_path: Path, kind: str) -> None:
    """Neither where these are two, as many as a directory and the one above it."""
    for name in ("1", "2"):
        if kind == "directory":
            (tmp_path / name).mkdir()
        elif kind == "link":
            (tmp_path / name).symlink_to("file")
        else:
            os.mkfifo(tmp_path / name)
    assert plain_of(tmp_path, 9) is None
    (tmp_path / "file").touch()
    assert plain_of(tmp_path, 9) is None
    assert plain_of(tmp_path / "file", 9) is None


def test_files_alone_are_told_from_others(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert files_of(few_of(tmp_path, 9)) == [b"file"]
    (tmp_path / "link").symlink_to("file")
    assert files_of(few_of(tmp_path, 9)) is None


def test_without_the_call_a_small_directory_is_scanned(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    by_call = kinds_of(few_of(tmp_path, 9))
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        scanned = kinds_of(scanning._few_scanned(fd, 9))
    finally:
        os.close(fd)
    assert {name: kind for name, kind in scanned.items() if name != b"fifo"} == {
        name: kind for name, kind in by_call.items() if name != b"fifo"
    }
    assert scanned.keys() == by_call.keys()


def test_what_is_no_directory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        few_of(tmp_path / "file", 9)
    assert few_files(-1, 9) is None
