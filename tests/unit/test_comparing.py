"""The differences between two entries, their presentation, and comparisons of whole blocks."""

from __future__ import annotations

import fcntl
import os
import random
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pcircle.fs.stats import CAPACITY, Stats
from pcircle.ops.compare import fields as f
from pcircle.ops.compare.content import BLOCK_BYTES, ContentComparer
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import itemize, itemize_one_sided
from pcircle.ops.compare.statuses import StatusComparer, UserNames, error_side, open_files
from tests.programs import required

_S = 10**9
_EVERYTHING = (1 << len(f.NAMES)) - 1

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to others: needs root")


@contextmanager
def _directories(tmp_path: Path) -> Iterator[tuple[int, int]]:
    for side in "ab":
        (tmp_path / side).mkdir(exist_ok=True)
    fds = [os.open(tmp_path / side, os.O_RDONLY) for side in "ab"]
    try:
        yield fds[0], fds[1]
    finally:
        for fd in fds:
            os.close(fd)


def _pair(tmp_path: Path) -> tuple[Path, Path]:
    """Create two files that differ only in their creation times."""
    files = tmp_path / "a" / "x", tmp_path / "b" / "x"
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"same")
        file.chmod(0o644)
        os.utime(file, ns=(5 * _S + 5, 7 * _S + 7))
    return files


def _of_status(a: Path, b: Path, fields: int = f.OF_STATUS) -> int:
    return StatusComparer(fields).differences(os.lstat(a), os.lstat(b))


def _owner(file: Path) -> None:
    os.chown(file, 1234, -1)


def _group(file: Path) -> None:
    os.chown(file, -1, 1234)


def _kind(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


CHANGES: dict[int, Callable[[Path], None]] = {
    f.SIZE: lambda file: os.truncate(file, 3),
    f.MTIME: lambda file: os.utime(file, ns=(5 * _S + 5, 7 * _S + 8)),
    f.ATIME: lambda file: os.utime(file, ns=(5 * _S + 6, 7 * _S + 7)),
    f.MODE: lambda file: file.chmod(0o4644),
    f.OWNER: _owner,
    f.GROUP: _group,
    f.KIND: _kind,
}


@as_root
@pytest.mark.parametrize("field", CHANGES, ids=lambda field: f.field_names(field)[0])
def test_every_field_of_a_status_is_compared(tmp_path: Path, field: int) -> None:
    a, b = _pair(tmp_path)
    asked = f.OF_STATUS & ~f.CTIME
    assert _of_status(a, b, asked) == f.NOTHING
    CHANGES[field](b)
    if field == f.SIZE:
        os.utime(b, ns=(5 * _S + 5, 7 * _S + 7))
    assert _of_status(a, b, asked) == field
    assert _of_status(b, a, asked) == field
    assert _of_status(a, b, asked & ~field) == f.NOTHING


def test_a_link_has_no_mode_and_a_directory_no_size(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for number in range(500):
        (tmp_path / "b" / f"{number}-{'long' * 50}").touch()
    os.utime(tmp_path / "a", ns=(1, 1))
    os.utime(tmp_path / "b", ns=(1, 1))
    assert _of_status(tmp_path / "a", tmp_path / "b", f.DEFAULT) == f.NOTHING


@as_root
def test_devices_differ_by_number(tmp_path: Path) -> None:
    for name, number in (("one", 3), ("same", 3), ("other", 4)):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o600, os.makedev(1, number))
    fields = f.DEFAULT & ~f.MTIME
    assert _of_status(tmp_path / "one", tmp_path / "same", fields) == f.NOTHING
    assert _of_status(tmp_path / "one", tmp_path / "other", fields) == f.RDEV


def test_times_are_the_same_within_a_window(tmp_path: Path) -> None:
    a, b = _pair(tmp_path)
    os.utime(b, ns=(5 * _S, 9 * _S + 7))
    for window_ns, different in ((2 * _S, f.NOTHING), (2 * _S - 1, f.MTIME), (None, f.MTIME)):
        comparer = StatusComparer(f.QUICK, window_ns)
        assert comparer.differences(os.lstat(a), os.lstat(b)) == different
        assert comparer.differences(os.lstat(b), os.lstat(a)) == different


def test_times_are_compared_at_the_coarser_resolution(tmp_path: Path) -> None:
    """Whole seconds in all times of a file show that its file system stores only seconds."""
    a, _ = _pair(tmp_path)
    fine = os.lstat(a)
    values = list(fine)
    values[2], values[8] = 0, 7  # another device
    coarse = os.stat_result(values, {"st_mtime_ns": 7 * _S, "st_atime_ns": 5 * _S,
                                     "st_ctime_ns": 9 * _S})  # fmt: skip
    finer = os.stat_result(values, {"st_mtime_ns": 7 * _S, "st_atime_ns": 5 * _S,
                                    "st_ctime_ns": 9 * _S + 123})  # fmt: skip
    later = os.stat_result(values, {"st_mtime_ns": 8 * _S, "st_atime_ns": 5 * _S,
                                    "st_ctime_ns": 9 * _S})  # fmt: skip
    comparer = StatusComparer(f.MTIME)
    assert comparer.differences(fine, coarse) == comparer.differences(coarse, fine) == f.NOTHING
    assert comparer.differences(fine, later) == f.MTIME
    assert comparer.differences(fine, finer) == f.MTIME, "a time that happens to be a whole second"


def test_a_pair_shows_the_resolution_of_its_device_before_it_is_compared(tmp_path: Path) -> None:
    """The times of one in a hundred files are by chance multiples of 100 ns."""
    values = list(os.lstat(tmp_path))
    times_ns = {"st_mtime_ns": 7 * _S, "st_atime_ns": 5 * _S, "st_ctime_ns": 9 * _S + 700}
    by_chance = os.stat_result(values, times_ns)
    close = os.stat_result(values, times_ns | {"st_mtime_ns": 7 * _S + 5})
    assert StatusComparer(f.MTIME).differences(by_chance, close) == f.MTIME
    assert StatusComparer(f.MTIME).differences(close, by_chance) == f.MTIME


def test_one_file_shows_the_time_resolution_of_its_device(
    tmp_path: Path,
) -> None:
    a, b = _pair(tmp_path)
    seen = os.lstat(a)
    by_chance = os.stat_result(
        list(seen), {"st_mtime_ns": 0, "st_atime_ns": 5 * _S + 300, "st_ctime_ns": 9 * _S + 700}
    )
    close = os.stat_result(
        list(seen), {"st_mtime_ns": 5, "st_atime_ns": 5 * _S + 300, "st_ctime_ns": 9 * _S + 700}
    )
    os.utime(b, ns=(5 * _S + 5, 7 * _S + 8))
    comparer = StatusComparer(f.MTIME)
    assert comparer.differences(seen, os.lstat(b)) == f.MTIME
    assert comparer.differences(by_chance, close) == f.MTIME


@as_root
def test_owners_are_the_same_by_name_where_names_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pwd

    names = {4001: "ann", 4002: "ann"}
    found = pwd.getpwuid

    class Known:
        def __init__(self, name: str) -> None:
            self.pw_name = name

    monkeypatch.setattr(pwd, "getpwuid", lambda n: Known(names[n]) if n in names else found(n))
    a, b = _pair(tmp_path)
    os.chown(a, 4001, -1)
    os.chown(b, 4002, -1)
    assert StatusComparer(f.OWNER).differences(os.lstat(a), os.lstat(b)) == f.OWNER
    named = StatusComparer(f.OWNER, users=UserNames())
    assert named.differences(os.lstat(a), os.lstat(b)) == f.NOTHING
    os.chown(b, 3999999, -1)
    assert named.differences(os.lstat(a), os.lstat(b)) == f.OWNER


@as_root
def test_blocks_are_compared_like_pairs(tmp_path: Path) -> None:
    """For random entries of all kinds `blocks` returns the same as `differences` for each pair."""
    draw = random.Random(5)
    with _directories(tmp_path) as (a, b):
        names = [b"%d" % number for number in range(CAPACITY)]
        for name in names:
            made = draw.choice((stat.S_IFREG, stat.S_IFREG, stat.S_IFIFO, stat.S_IFCHR))
            for fd in (a, b):
                if fd == b and draw.random() < 0.05:
                    made = stat.S_IFIFO
                device = os.makedev(1, draw.choice((3, 3, 3, 5)))
                mode = 0o600 if draw.random() < 0.9 else 0o640
                os.mknod(name, made | mode, device, dir_fd=fd)
                if made == stat.S_IFREG and draw.random() < 0.1:
                    os.truncate(b"/proc/self/fd/%d/%s" % (fd, name), 10)
                late_ns = 10 * _S + (draw.random() < 0.1)
                os.utime(name, ns=(late_ns, late_ns), dir_fd=fd)
        looks = Stats(), Stats()
        for fields in (f.DEFAULT, f.QUICK, f.OWNER | f.RDEV, f.MODE):
            for count in (CAPACITY, 7, 1, 0):
                for fd, stats in zip((a, b), looks, strict=True):
                    stats.look(fd, names[:count])
                comparer = StatusComparer(fields)
                expected = {}
                for place, name in enumerate(names[:count]):
                    pair = [os.stat(name, dir_fd=fd, follow_symlinks=False) for fd in (a, b)]
                    different = comparer.differences(*pair)
                    if different:
                        expected[place] = different
                assert comparer.compare_blocks(*looks, count) == expected
                assert count < CAPACITY or expected or fields == f.OWNER
        for stats in looks:
            stats.close()


def _details(tmp_path: Path, fields: int = f.OF_DETAILS) -> int:
    with _directories(tmp_path) as fds:
        a, b = (os.stat("x", dir_fd=fd, follow_symlinks=False) for fd in fds)
        return DetailComparer(fields).compare_names(b"x", fds, a, b)


def _xattr(file: Path) -> None:
    os.setxattr(file, "user.color", b"blue")


def _acl(file: Path) -> None:
    subprocess.run([required("setfacl"), "-m", "u:1234:r", file], check=True)


def _flags(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, 0x40086602, struct.pack("i", 0x40))  # without a dump
    except OSError as error:
        pytest.skip(f"no inode flags here: {error.strerror}")
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("field", "change"),
    [(f.XATTR, _xattr), (f.ACL, _acl), (f.FLAGS, _flags)],
    ids=["xattr", "acl", "flags"],
)
def test_details_of_files(tmp_path: Path, field: int, change: Callable[[Path], None]) -> None:
    _, b = _pair(tmp_path)
    assert _details(tmp_path) == f.NOTHING
    try:
        change(b)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not on this file system: {error}")
    assert _details(tmp_path) == field
    assert _details(tmp_path, f.OF_DETAILS & ~field) == f.NOTHING


def test_attributes_differ_by_their_values_and_not_by_their_order(tmp_path: Path) -> None:
    a, b = _pair(tmp_path)
    try:
        for name, file in (("one", a), ("two", a), ("two", b), ("one", b)):
            os.setxattr(file, f"user.{name}", name.encode())
    except OSError as error:
        pytest.skip(f"not on this file system: {error}")
    assert _details(tmp_path) == f.NOTHING
    os.setxattr(b, "user.two", b"2")
    assert _details(tmp_path) == f.XATTR


def test_default_lists_of_directories(tmp_path: Path) -> None:
    with _directories(tmp_path) as fds:
        pair = [os.fstat(fd) for fd in fds]
        details = DetailComparer(f.OF_DETAILS)
        assert details.compare_directories(fds, *pair) == f.NOTHING
        done = subprocess.run(
            [required("setfacl"), "-d", "-m", "u:1234:r", tmp_path / "b"], check=False
        )
        if done.returncode:
            pytest.skip("no access control lists here")
        assert details.compare_directories(fds, *pair) == f.ACL
        assert DetailComparer(f.XATTR).compare_directories(fds, *pair) == f.NOTHING


def test_targets_of_links(tmp_path: Path) -> None:
    with _directories(tmp_path):
        for side, target in (("a", "here"), ("b", "here")):
            (tmp_path / side / "x").symlink_to(target)
    assert _details(tmp_path) == f.NOTHING
    (tmp_path / "b" / "x").unlink()
    (tmp_path / "b" / "x").symlink_to("gone")  # equally long
    assert _details(tmp_path) == f.TARGET


def test_holes(tmp_path: Path) -> None:
    a, b = _pair(tmp_path)
    for file in (a, b):
        with file.open("wb") as stream:
            stream.truncate(4 << 20)
            stream.seek(1 << 20)
            stream.write(b"data" * 1024)
    if os.stat(a).st_blocks * 512 >= 4 << 20:
        pytest.skip("no holes here")
    assert _details(tmp_path) == f.NOTHING
    with b.open("r+b") as stream:
        stream.seek(2 << 20)
        stream.write(bytes(1 << 20))
    assert _details(tmp_path) == f.HOLES


def test_an_error_knows_its_side(tmp_path: Path) -> None:
    a, b = _pair(tmp_path)
    status = os.lstat(a)
    for side, file in enumerate((a, b)):
        file.rename(tmp_path / "away")
        with _directories(tmp_path) as fds, pytest.raises(FileNotFoundError) as caught:
            DetailComparer(f.FLAGS).compare_names(b"x", fds, status, status)
        assert error_side(caught.value) == side
        (tmp_path / "away").rename(file)


def _same(tmp_path: Path, *, sparse: bool = False, offset: int = 0) -> bool:
    with _directories(tmp_path) as fds, open_files(b"x", fds) as (files, statuses):
        length = statuses[0].st_size - offset
        return ContentComparer().same(files, offset, length, sparse=sparse)


@pytest.mark.parametrize("size", [1, 4096, (64 << 10) + 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5])
def test_contents(tmp_path: Path, size: int) -> None:
    """A change of any single byte is found; bytes before the range are not compared."""
    a, b = _pair(tmp_path)
    content = random.Random(size).randbytes(size)
    a.write_bytes(content)
    b.write_bytes(content)
    assert _same(tmp_path)
    for place in {0, size // 2, size - 1}:
        changed = bytearray(content)
        changed[place] ^= 1
        b.write_bytes(changed)
        assert not _same(tmp_path)
        assert not _same(tmp_path, sparse=True)
    b.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert _same(tmp_path, offset=1)
    b.write_bytes(content[:-1])
    with _directories(tmp_path) as fds, open_files(b"x", fds) as (files, _):
        assert not ContentComparer().same(files, 0, size)


def test_holes_are_zeros_and_not_read(tmp_path: Path) -> None:
    a, b = _pair(tmp_path)
    size = 64 << 20
    places = ((0, b"first"), (20 << 20, b"x" * 8192), (size - 5, b"last!"))
    for file in (a, b):
        with file.open("wb") as stream:
            stream.truncate(size)
            for place, data in places:
                stream.seek(place)
                stream.write(data)
    if os.stat(a).st_blocks * 512 >= size:
        pytest.skip("no holes here")
    with b.open("r+b") as more:
        more.seek(40 << 20)
        more.write(bytes(1 << 20))
    read = 0

    def count(length: int) -> None:
        nonlocal read
        read += length

    with _directories(tmp_path) as fds, open_files(b"x", fds) as (files, _):
        assert ContentComparer(count).same(files, 0, size, sparse=True)
    assert 1 << 20 <= read <= 2 << 20
    with b.open("r+b") as more:
        more.seek((40 << 20) + 12345)
        more.write(b"!")
    assert not _same(tmp_path, sparse=True)
    assert not _same(tmp_path)


def test_replaced_files_are_not_read(tmp_path: Path) -> None:
    _, b = _pair(tmp_path)
    _kind(b)
    with (
        _directories(tmp_path) as fds,
        pytest.raises(OSError, match="no longer") as caught,
        open_files(b"x", fds),
    ):
        pass
    assert error_side(caught.value) == 1


@pytest.mark.parametrize(
    ("different", "mode", "shown"),
    [
        (f.SIZE | f.MTIME, stat.S_IFREG, ">f.st......"),
        (f.CONTENT | f.SIZE | f.MTIME, stat.S_IFREG, ">fcst......"),
        (f.MTIME, stat.S_IFDIR, ".d..t......"),
        (f.MODE | f.OWNER | f.GROUP, stat.S_IFREG, ".f...pog..."),
        (f.ACL | f.XATTR | f.ATIME, stat.S_IFREG, ".f......uax"),
        (f.TARGET | f.MTIME, stat.S_IFLNK, "cLc.t......"),
        (f.RDEV, stat.S_IFBLK, "cDc........"),
        (f.LINKS, stat.S_IFREG, "hf.........,links"),
        (f.HOLES | f.CTIME | f.STRIPE, stat.S_IFREG, ".f.........,ctime,holes,stripe"),
        (f.KIND, stat.S_IFDIR, "cd+++++++++,kind"),
        (f.KIND, stat.S_IFREG, ">f+++++++++,kind"),
        (f.MTIME, stat.S_IFIFO, ".S..t......"),
    ],
)  # fmt: skip
def test_columns(different: int, mode: int, shown: str) -> None:
    assert itemize(different, mode) == shown
    assert len(shown.partition(",")[0]) == 11


def test_columns_of_one_side() -> None:
    assert itemize_one_sided(0, stat.S_IFREG) == "+Af++++++++"
    assert itemize_one_sided(1, stat.S_IFLNK) == "+BL++++++++"


def test_fields_by_name() -> None:
    assert f.parse_fields(["default"]) == f.DEFAULT
    assert f.field_names(f.QUICK) == ("kind", "size", "mtime")
    assert f.parse_fields(f.field_names(_EVERYTHING)) == _EVERYTHING
    assert not f.ALL & (f.ATIME | f.CTIME)
    with pytest.raises(KeyError):
        f.parse_fields(["colour"])
