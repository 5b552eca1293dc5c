"""io_uring: what is special about it, and that nothing is which should not be."""

from __future__ import annotations

import errno
import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pcircle.aio import Files, Operation, when_all
from pcircle.aio import operations as ops
from pcircle.aio.mounts import Mounts

from ..conftest import ROOT
from ..fusefs.fixture import Mount
from ..fusefs.rules import Rule

pytestmark = pytest.mark.usefixtures("uring")

HANG_S = 30.0


@pytest.fixture
def ring() -> Iterator[Files]:
    with Files(backend="uring") as io:
        yield io


def _lanes(io: Files) -> int:
    return sum(len(lane._workers) for lane in io._lanes.values())


def test_the_ring_does_it_and_no_thread(ring: Files, tmp_path: Path) -> None:
    """All that the kernel has, by the kernel: no thread of the scheduler's is ever begun."""
    names = [str(tmp_path / name) for name in "abcd"]
    fd = ring.creat(names[0]).result(HANG_S)
    ring.pwrite(fd, b"hello", 0).result(HANG_S)
    ring.writev(fd, [b"a", bytearray(b"b"), b"c"], 5).result(HANG_S)
    ring.fsync(fd).result(HANG_S)
    ring.ftruncate(fd, 7).result(HANG_S)
    ring.fallocate(fd, 0, 4096).result(HANG_S)
    ring.close_fd(fd).result(HANG_S)
    fd = ring.open(names[0]).result(HANG_S)
    assert ring.pread(fd, 7, 0).result(HANG_S) == b"helloab"
    ring.close_fd(fd).result(HANG_S)
    ring.rename(names[0], names[1]).result(HANG_S)
    ring.link(names[1], names[2]).result(HANG_S)
    ring.symlink("b", names[3]).result(HANG_S)
    for name in names[1:]:
        ring.unlink(name).result(HANG_S)
    ring.mkdir(names[0]).result(HANG_S)
    ring.rmdir(names[0]).result(HANG_S)
    assert _lanes(ring) == 0
    ring.stat(str(tmp_path)).result(HANG_S)
    assert _lanes(ring) == 1


@pytest.mark.parametrize("name", [b"\xff\xfe", "\u00e9\u4e2d".encode(), b"x" * 255])
@pytest.mark.parametrize("as_text", [False, True])
def test_any_name(ring: Files, name: bytes, as_text: bool, tmp_path: Path) -> None:
    """Names are bytes. Those that the package can't say go by the threads."""
    whole = os.path.join(os.fsencode(tmp_path), name)
    path = os.fsdecode(whole) if as_text else whole
    for future in [ring.open(path, os.O_CREAT | os.O_WRONLY) for _ in range(300)]:
        os.close(future.result(HANG_S))
    assert os.listdir(os.fsencode(tmp_path)) == [name]
    error = ring.mkdir(path).error(HANG_S)
    assert isinstance(error, FileExistsError)
    assert error.filename == path


def test_a_path_with_a_nul_names_nothing(ring: Files, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="null"):
        ring.unlink(f"{tmp_path}/file\0x").result(HANG_S)
    assert (tmp_path / "file").exists()


def test_relative_to_a_directory(ring: Files, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        ring.mkdir("d", dir_fd=folder).result(HANG_S)
        os.close(ring.creat("f", dir_fd=folder).result(HANG_S))
        ring.symlink("f", "s", dir_fd=folder).result(HANG_S)
        moved = ring.rename("f", "g", src_dir_fd=folder, dst_dir_fd=folder)
        moved.result(HANG_S)
        assert sorted(os.listdir(tmp_path)) == ["d", "g", "s"]
        ring.rmdir("d", dir_fd=folder).result(HANG_S)
        ring.unlink("s", dir_fd=folder).result(HANG_S)
        os.close(ring.open("g", dir_fd=folder).result(HANG_S))
    finally:
        os.close(folder)


@pytest.mark.parametrize(
    "operation",
    [
        ops.rename("/none/x", "/none/y"),
        ops.link("/none/x", "/none/y"),
        ops.symlink("/none/x", "/none/y"),
        ops.open("/none/x"),
        ops.creat("/none/x"),
        ops.mkdir("/none/x"),
        ops.pread(987654, 1, 0),
        ops.close(987654),
        ops.ftruncate(987654, 1),
        ops.fsync(987654),
        ops.read(0, -1),
        ops.pread(0, 1, -5),
        ops.readv(0, [b"readonly"]),
        ops.readv(0, [bytearray(1)] * 5000, 0),
        ops.pwrite(0, "text", 0),
        ops.pwrite(0, memoryview(bytes(10))[::2], 0),
        ops.open(5),  # type: ignore[arg-type]
        ops.mkdir("x", 1 << 70),
        ops.unlink("/none", dir_fd=1 << 40),
        ops.fallocate(987654, -1, 1),
    ],
    ids=lambda operation: operation.name,
)
def test_failures_are_those_of_the_calls(ring: Files, operation: Operation[Any]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, is what is asked
        operation()
    wanted = caught.value
    error = ring.submit(operation).error(HANG_S)
    assert type(error) is type(wanted)
    assert str(error) == str(wanted)
    if isinstance(error, OSError) and isinstance(wanted, OSError):
        assert (error.filename, error.filename2) == (wanted.filename, wanted.filename2)


def test_reads_in_a_row_get_what_lies_in_a_row(ring: Files, tmp_path: Path) -> None:
    """Where a descriptor stands is one place for all that are under way."""
    data = random.Random(1).randbytes(64 * 1000)
    (tmp_path / "f").write_bytes(data)
    fd = os.open(tmp_path / "f", os.O_RDWR)
    try:
        parts = [ring.read(fd, 1000) for _ in range(65)]
        assert b"".join(part.result(HANG_S) for part in parts) == data
        os.lseek(fd, 0, os.SEEK_SET)
        written = [ring.write(fd, b"%5d" % number) for number in range(500)]
        assert [part.result(HANG_S) for part in written] == [5] * 500
    finally:
        os.close(fd)
    assert (tmp_path / "f").read_bytes()[:2500] == b"".join(b"%5d" % n for n in range(500))


def test_memory_outlives_whoever_gave_it(ring: Files, tmp_path: Path) -> None:
    """Buffers and futures are dropped at once; the kernel writes, and reads, all the same."""
    (tmp_path / "f").write_bytes(b"x" * (1 << 20))
    fd = os.open(tmp_path / "f", os.O_RDWR)
    try:
        for round_ in range(200):
            for each in [ring.readv(fd, [bytearray(1 << 16)], 0) for _ in range(4)]:
                each.cancel()
            ring.pwrite(fd, bytes([round_]) * (1 << 16), round_ << 16)
            junk = [bytearray(1 << 16) for _ in range(4)]
            assert not any(map(any, junk))
        assert ring.wait(HANG_S)
        for round_ in range(200):
            assert os.pread(fd, 1 << 16, round_ << 16) == bytes([round_]) * (1 << 16)
    finally:
        os.close(fd)
    buffer = bytearray(10)
    reading, writing = os.pipe()
    try:
        read = ring.readv(reading, [buffer])
        time.sleep(0.02)
        with pytest.raises(BufferError):
            buffer.extend(bytes(1 << 20))
        os.write(writing, b"0123456789")
        assert read.result(HANG_S) == 10
        assert buffer == b"0123456789"
    finally:
        os.close(reading)
        os.close(writing)


def test_mapped_memory(ring: Files, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with mmap.mmap(-1, 4096) as memory:
        fd = os.open(tmp_path / "f", os.O_RDONLY)
        assert ring.readv(fd, [memory], 0).result(HANG_S) == 10
        os.close(fd)
        assert memory[:10] == b"0123456789"


def test_no_memory_is_kept(ring: Files, tmp_path: Path) -> None:
    """Whatever it is that is read into, or written: afterwards it is its owner's alone."""
    (tmp_path / "f").write_bytes(bytes(100))
    fd = os.open(tmp_path / "f", os.O_RDWR)
    for make in (bytearray, lambda data: memoryview(bytearray(data))):
        for submit in (ring.readv, ring.writev):
            buffer: Any = make(b"0123456789")
            assert submit(fd, [buffer], 0).result(HANG_S) == 10
            assert ring.pwrite(fd, buffer, 20).result(HANG_S) == 10
            assert ring.wait(HANG_S)
            owner: Any = buffer.obj if isinstance(buffer, memoryview) else buffer
            if isinstance(buffer, memoryview):
                buffer.release()
            owner.extend(b"more")
    os.close(fd)


def test_a_write_that_comes_short_goes_on(ring: Files) -> None:
    """Into a pipe that holds less; the reader gets it all, in order."""
    data = random.Random(3).randbytes(1 << 20)
    reading, writing = os.pipe()
    written = ring.write(writing, data)
    found = b""
    while len(found) < len(data):
        found += os.read(reading, 1 << 16)
    assert found == data
    assert written.result(HANG_S) == len(data)
    os.close(reading)
    os.close(writing)


def test_more_than_fit(tmp_path: Path) -> None:
    """Thousands at once through a ring of few places; and no more than that in flight."""
    (tmp_path / "f").write_bytes(bytes(range(256)) * 16)
    with Files(threads=2, backend="uring") as io:
        assert set(io.threads().values()) == {2}
        fd = io.open(str(tmp_path / "f")).result(HANG_S)
        reads = [io.pread(fd, 10, number) for number in range(3000)]
        names = [io.mkdir(str(tmp_path / str(number))) for number in range(500)]
        whole = bytes(range(256)) * 16
        for number, read in enumerate(reads):
            assert read.result(HANG_S) == whole[number : number + 10]
        when_all(names).result(HANG_S)
        io.close_fd(fd).result(HANG_S)
    assert len(os.listdir(tmp_path)) == 501


def test_so_many_in_flight(fuse: Mount) -> None:
    mounted = fuse()
    mounted.rules(Rule(ops=("mkdir",), delay_s=HANG_S))
    with Files(threads=20, backend="uring") as io:
        places = [mounted.path + b"/%d" % number for number in range(40)]
        for place in places:  # in one directory they would wait for each other
            os.mkdir(mounted.backing + b"/" + os.path.basename(place))
        made = [io.mkdir(place + b"/x") for place in places]
        until_s = time.monotonic() + HANG_S
        while mounted.state().delayed < 20 and time.monotonic() < until_s:
            time.sleep(0.005)
        time.sleep(0.05)
        assert mounted.state().delayed == 20
        mounted.rules()
        mounted.release()
        when_all(made).result(HANG_S)


def test_what_comes_short_is_no_more_than_there_is(ring: Files, fuse: Mount) -> None:
    """Files of FUSE that bypass the cache: io_uring itself would read the same bytes twice."""
    mounted = fuse(direct=True)
    path = mounted.path + b"/f"
    data = random.Random(2).randbytes(70_000)
    with open(path, "wb") as file:
        file.write(data)
    fd = os.open(path, os.O_RDWR)
    try:
        assert ring.pread(fd, 100_000, 0).result(HANG_S) == data
        assert ring.read(fd, 50_000).result(HANG_S) == data[:50_000]
        assert ring.read(fd, 50_000).result(HANG_S) == data[50_000:]
        assert ring.write(fd, b"more").result(HANG_S) == 4
        assert os.lseek(fd, 0, os.SEEK_CUR) == 70_004
        buffer = bytearray(100_000)
        assert ring.readv(fd, [buffer], 0).result(HANG_S) == 70_004
    finally:
        os.close(fd)


def test_mounts_are_seen_when_they_come(fuse: Mount, tmp_path: Path) -> None:
    mounts = Mounts()
    try:
        plain = os.open(tmp_path, os.O_RDONLY)
        assert mounts.have_positions(plain)
        mounted = fuse()
        mounts.refresh()
        slow = os.open(mounted.path, os.O_RDONLY)
        assert not mounts.have_positions(slow)
        assert mounts.have_positions(plain)
        os.close(slow)
        os.close(plain)
        assert not mounts.have_positions(plain), "it is closed"
    finally:
        mounts.close()


def test_nonblocking_files(ring: Files, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content")
    fd = ring.open(str(tmp_path / "f"), os.O_RDONLY | os.O_NONBLOCK).result(HANG_S)
    assert ring.pread(fd, 100, 0).result(HANG_S) == b"content"
    os.close(fd)
    reading, writing = os.pipe2(os.O_NONBLOCK)
    error = ring.read(reading, 1).error(HANG_S)
    assert isinstance(error, BlockingIOError)
    os.close(reading)
    os.close(writing)


def test_a_ring_that_breaks_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Its descriptor is closed behind its back: the threads take over."""
    io = Files(backend="uring")
    assert io._driven is not None
    io.mkdir(str(tmp_path / "a")).result(HANG_S)
    number = io._driven.ring._entrance.ring.ring_fd
    null = os.open(os.devnull, os.O_RDWR)
    kept = os.dup(number)
    os.dup2(null, number)
    os.close(null)
    error = io.mkdir(str(tmp_path / "b")).error(HANG_S)
    assert isinstance(error, OSError)
    assert error.errno
    io.mkdir(str(tmp_path / "c")).result(HANG_S)
    io.write_file(str(tmp_path / "d"), b"x").result(HANG_S)
    assert io.close(HANG_S)
    os.close(kept)
    assert sorted(os.listdir(tmp_path)) == ["a", "c", "d"]


# A filter of system calls that has no io_uring_setup, as container engines put up.
REFUSING = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def step(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)
program = b"".join([
    step(0x20, 0, 0, 0),           # load the number of the call
    step(0x15, 0, 1, 425),         # io_uring_setup
    step(0x06, 0, 0, 0x00050000 | 1),  # EPERM
    step(0x06, 0, 0, 0x7FFF0000),  # allowed
])
memory = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
filter = Program(4, ctypes.addressof(memory))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter)):
    sys.exit("no filter")
"""
ABSENT = "import sys; sys.modules['liburing'] = None\n"
ASKING = """
from pcircle.aio import Files
import os
before = len(os.listdir("/proc/self/fd"))
try:
    Files(backend="uring")
except OSError as error:
    print(error.errno, error.strerror)
assert len(os.listdir("/proc/self/fd")) == before
with Files() as io:
    print(io.stat("/").result(30).st_size > 0)
"""


@pytest.mark.parametrize(
    ("before", "code", "why"),
    [
        (REFUSING, errno.EPERM, "it is forbidden (kernel.io_uring_disabled, or a filter"),
        (ABSENT, errno.ENOSYS, "without the package liburing: pip install 'pcircle[uring]'"),
    ],
    ids=["filtered", "no package"],
)
def test_where_it_is_refused(before: str, code: int, why: str) -> None:
    """Who asks for it is told why; who doesn't has the threads."""
    done = subprocess.run(
        [sys.executable, "-c", before + ASKING], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{code} io_uring can't be used")
    assert why in first
    assert second == "True"


def test_no_such_backend() -> None:
    with pytest.raises(ValueError, match="no backend 'smoke'"):
        Files(backend="smoke")  # type: ignore[arg-type]
