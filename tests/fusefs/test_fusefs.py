"""The tests' own file system: copies through it are exact, and faults occur as requested."""

from __future__ import annotations

import errno
import os
import threading
import time

import pytest

from .fixture import Mount
from .layouts import EOF, INIT, MDT, Entry, Md, pack_composite, unpack_composite, unpack_md
from .layouts import NAME as LAYOUT
from .rules import Rule, Rules


def _write(path: bytes, data: bytes) -> None:
    with open(path, "xb") as stream:
        stream.write(data)


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _read_uncached(path: bytes) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)


def test_ordinary_operations(fuse: Mount) -> None:
    mount = fuse()
    home = mount.path
    path = os.path.join(home, b"file")
    _write(path, b"text" * 100_000)
    assert _read(path) == b"text" * 100_000
    os.truncate(path, 5)
    assert _read(path) == b"textt"
    os.chmod(path, 0o4755)
    os.chown(path, 12, 34)
    os.utime(path, ns=(-5, 2**33 * 10**9 + 7))
    status = os.stat(path)
    assert (status.st_uid, status.st_gid, status.st_mode) == (12, 34, 0o100755)
    assert (status.st_atime_ns, status.st_mtime_ns) == (-5, 2**33 * 10**9 + 7)
    os.symlink(b"nowhere", os.path.join(home, b"link"))
    os.utime(os.path.join(home, b"link"), ns=(1, 2), follow_symlinks=False)
    os.lchown(os.path.join(home, b"link"), 5, 6)
    link = os.lstat(os.path.join(home, b"link"))
    assert (link.st_mtime_ns, link.st_uid) == (2, 5)
    assert os.readlink(os.path.join(home, b"link")) == b"nowhere"
    os.link(path, os.path.join(home, b"second"))
    os.link(os.path.join(home, b"link"), os.path.join(home, b"link2"), follow_symlinks=False)
    assert os.stat(os.path.join(home, b"second")).st_ino == status.st_ino
    assert os.stat(path).st_nlink == 2
    os.mkdir(os.path.join(home, b"dir"))
    os.mkfifo(os.path.join(home, b"dir", b"fifo"))
    os.rename(path, os.path.join(home, b"dir", b"moved"))
    assert sorted(os.listdir(home)) == [b"dir", b"link", b"link2", b"second"]
    assert _read(os.path.join(home, b"dir", b"moved")) == b"textt"
    os.unlink(os.path.join(home, b"second"))
    for number in range(1000):
        _write(os.path.join(home, b"dir", b"%d" % number), b"")
    assert len(os.listdir(os.path.join(home, b"dir"))) == 1002
    with pytest.raises(OSError, match="not empty"):
        os.rmdir(os.path.join(home, b"dir"))
    assert os.statvfs(home).f_bavail > 0
    assert sorted(os.listdir(mount.backing)) == [b"dir", b"link", b"link2"]


def test_an_open_file_outlives_its_name(fuse: Mount) -> None:
    path = os.path.join(fuse().path, b"file")
    with open(path, "x+b") as stream:
        os.unlink(path)
        stream.write(b"still there")
        stream.flush()
        os.fsync(stream.fileno())
        assert os.fstat(stream.fileno()).st_nlink == 0
        assert os.pread(stream.fileno(), 100, 0) == b"still there"


def test_attributes_of_any_namespace(fuse: Mount) -> None:
    path = os.path.join(fuse().path, b"file")
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        os.setxattr(fd, b"lustre.lov", b"\0layout\0")
        assert os.getxattr(fd, b"lustre.lov") == b"\0layout\0"
        assert os.getxattr(path, b"lustre.lov") == b"\0layout\0"
        os.setxattr(path, b"trusted.other", b"value")
        assert set(os.listxattr(fd)) == {"lustre.lov", "trusted.other"}
        with pytest.raises(FileExistsError):
            os.setxattr(fd, b"lustre.lov", b"", os.XATTR_CREATE)
        os.removexattr(path, b"lustre.lov")
        with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
            os.getxattr(fd, b"lustre.lov")
    finally:
        os.close(fd)
    os.unlink(path)


def test_errors_by_operation_path_offset_and_count(fuse: Mount) -> None:
    mount = fuse()
    bad, good = (os.path.join(mount.path, name) for name in (b"bad", b"good"))
    mount.rules(
        Rule(("write",), "bad", start=8192, errno="EDQUOT"),
        Rule(("getattr", "lookup"), "go*", skip=2, times=1, errno="ESTALE"),
    )
    _write(good, b"x" * 10000)
    fd = os.open(bad, os.O_CREAT | os.O_WRONLY)
    assert os.pwrite(fd, b"y" * 4096, 4096) == 4096
    with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)):
        os.pwrite(fd, b"y", 8192)
    os.close(fd)
    assert mount.state().hits[0] == 1
    mount.rules()
    assert _read(good) == b"x" * 10000


def test_short_reads_and_writes(fuse: Mount) -> None:
    mount = fuse(direct=True)
    path = os.path.join(mount.path, b"file")
    mount.rules(Rule(("read", "write"), at_most_bytes=3))
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        assert os.write(fd, b"12345") == 3
        assert os.write(fd, b"45") == 2
        assert os.pread(fd, 100, 0) == b"123"
    finally:
        os.close(fd)


def test_a_flipped_byte_shows_when_the_cache_is_dropped(fuse: Mount) -> None:
    mount = fuse(keep=True, attributes_s=60.0)
    path = os.path.join(mount.path, b"file")
    mount.rules(Rule(("write",), "file", flip=4096, times=1))
    _write(path, b"\0" * 8192)
    before = os.stat(os.path.join(mount.backing, b"file"))
    assert _read(path) == b"\0" * 8192
    flipped = b"\0" * 4096 + b"\xff" + b"\0" * 4095
    assert _read_uncached(path) == flipped
    assert _read(path) == flipped
    assert before.st_size == 8192


def test_delays_affect_only_matching_requests(fuse: Mount) -> None:
    mount = fuse()
    names = [b"%d" % number for number in range(20)]
    for name in names:
        _write(os.path.join(mount.path, name), name)
    mount.rules(Rule(("read",), "1?", delay_s=3600.0))
    threads = [threading.Thread(target=_read, args=(os.path.join(mount.path, n),)) for n in names]
    for thread in threads:
        thread.start()
    while mount.state().delayed < 10:
        time.sleep(0.01)
    mount.release()
    for thread in threads:
        thread.join()
    assert mount.state().delayed == 0


def test_the_maximum_of_delayed_requests_excludes_releases(fuse: Mount) -> None:
    """Descriptors are released without waiting, so one thread can have many delayed releases."""
    mount = fuse()
    paths = [os.path.join(mount.path, b"%d" % number) for number in range(20)]
    for path in paths:
        os.mkdir(path)
    opened = [os.open(path, os.O_RDONLY) for path in paths]
    mount.rules(Rule(("releasedir", "getattr"), "[0-9]*", delay_s=3600.0))
    for fd in opened:
        os.close(fd)
    threads = [threading.Thread(target=os.stat, args=(path,)) for path in paths[:5]]
    for thread in threads:
        thread.start()
    while mount.state().delayed < 20 + 5:
        time.sleep(0.01)
    state = mount.state()
    mount.release()
    for thread in threads:
        thread.join()
    assert (state.delayed, state.max_delayed) == (25, 5)


def _make(path: bytes, flags: int = 0) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | flags)


def test_layouts_like_those_of_lustre(fuse: Mount) -> None:
    mount = fuse(lustre=True)
    early, late, late_too = (os.path.join(mount.path, name) for name in (b"1", b"2", b"3"))
    wide = Md(4, 2 << 20).pack()
    fd = _make(early)
    os.setxattr(fd, LAYOUT, wide)  # ignored
    os.write(fd, b"x")
    os.close(fd)
    assert unpack_md(os.getxattr(early, LAYOUT)) == Md(1, 1 << 20)
    assert mount.state().counts["layouts ignored"] == 1
    fd = _make(late, os.O_NOCTTY | os.O_ASYNC)
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        os.getxattr(late, LAYOUT)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.write(fd, b"x")
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        os.setxattr(fd, LAYOUT, Md(4, 65537).pack())
    os.setxattr(fd, LAYOUT, wide)
    os.write(fd, b"x")
    os.close(fd)
    assert unpack_md(os.getxattr(late, LAYOUT)) == Md(4, 2 << 20)
    assert len(os.getxattr(late, LAYOUT)) == 32 + 4 * 24
    os.close(_make(late_too, os.O_NOCTTY | os.O_ASYNC))
    os.close(os.open(late_too, os.O_WRONLY))
    assert unpack_md(os.getxattr(late_too, LAYOUT)) == Md(1, 1 << 20)


def test_directories_pass_layouts_on_as_in_lustre(fuse: Mount) -> None:
    mount = fuse(lustre=True)
    above, below = (os.path.join(mount.path, name) for name in (b"above", b"above/below"))
    os.mkdir(above)
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        os.getxattr(above, LAYOUT)
    os.setxattr(mount.path, LAYOUT, Md(2).pack())
    assert os.getxattr(above, LAYOUT) == Md(2).pack()
    progressive = [Entry(0, 1 << 20, Md(0, 1 << 20, pattern=MDT)), Entry(1 << 20, EOF, Md(5))]
    os.setxattr(above, LAYOUT, pack_composite(progressive))
    os.mkdir(below)
    assert os.getxattr(below, LAYOUT) == pack_composite(progressive)
    os.close(_make(os.path.join(below, b"file")))
    mirrors, entries = unpack_composite(os.getxattr(os.path.join(below, b"file"), LAYOUT))
    assert (mirrors, [entry.flags for entry in entries]) == (1, [INIT, 0])
    assert entries[1].md == Md(5)


def test_equal_names_are_one_entry(fuse: Mount) -> None:
    mount = fuse(folding="both")
    composed, decomposed = "\u00e9".encode(), "e\u0301".encode()
    for first, second in ((b"File", b"fILE"), (decomposed, composed)):
        one, other = os.path.join(mount.path, first), os.path.join(mount.path, second)
        _write(one, b"x")
        assert os.path.samestat(os.stat(one), os.stat(other))
        with pytest.raises(FileExistsError):
            os.mkdir(other)
        with pytest.raises(FileExistsError):
            os.symlink(b"text", other)
        with pytest.raises(FileExistsError):
            os.link(one, other)
        _write(os.path.join(mount.path, b"new"), b"y")
        os.rename(os.path.join(mount.path, b"new"), other)
        assert _read(one) == b"y"
    assert sorted(os.listdir(mount.path)) == [b"File", composed]
    os.mkdir(os.path.join(mount.path, b"Dir"))
    _write(os.path.join(mount.path, b"dir/in it"), b"")
    os.unlink(os.path.join(mount.path, b"DIR/In It"))
    os.rmdir(os.path.join(mount.path, b"dIR"))
    forms = fuse(folding="form")
    for name in (b"a", b"A", composed):
        _write(os.path.join(forms.path, name), b"")
    with pytest.raises(FileExistsError):
        os.mkdir(os.path.join(forms.path, decomposed))


def test_times_are_truncated(fuse: Mount) -> None:
    path = os.path.join(fuse(times_ns=2 * 10**9, changes_ns=1).path, b"file")
    _write(path, b"")
    os.utime(path, ns=(3_900_000_000, 5_100_000_000))
    status = os.stat(path)
    assert (status.st_atime_ns, status.st_mtime_ns) == (2 * 10**9, 4 * 10**9)
    assert status.st_ctime_ns > 10**18


def test_servers_take_requests_one_at_a_time() -> None:
    """Requests queue by offset in the file; their bytes take time, and the delay is added."""
    rules = Rules()
    limited = Rule(("read",), servers=2, busy_s=1.0, bytes_per_s=100.0, stripe_bytes=50, delay_s=5)
    rules.set([limited._asdict()])

    def delays_s(*offsets: int, now_s: float) -> list[float]:
        return [rules.judge("read", [b"f"], at, 50, now_s).delay_s for at in offsets]

    assert delays_s(0, 50, 100, 150, now_s=10.0) == [6.5, 6.5, 8.0, 8.0]
    assert delays_s(0, 10, now_s=11.0) == [8.5, 10.0]
    assert delays_s(50, now_s=100.0) == [6.5]
    assert rules.judge("write", [b"f"], 0, 50, 100.0).delay_s == 0
