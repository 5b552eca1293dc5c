"""Operations match the system calls, fail with errno and path, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from pcircle.aio import Cancelled, Files, Future, Operation, composite
from pcircle.aio import operations as ops

from ..fusefs.fixture import Mount
from ..fusefs.rules import Rule

HANG_S = 30.0


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_life_of_a_file(io: Files, tmp_path: Path) -> None:
    path, other = str(tmp_path / "a"), str(tmp_path / "b")
    before = _open_files()
    fd = io.creat(path, 0o640).result(HANG_S)
    assert io.write(fd, b"hello ").result(HANG_S) == 6
    assert io.pwrite(fd, b"world", 6).result(HANG_S) == 5
    io.fsync(fd).result(HANG_S)
    io.fchmod(fd, 0o600).result(HANG_S)
    io.fchown(fd, os.geteuid(), os.getegid()).result(HANG_S)
    io.utimens(fd, 5, 10**18 + 7).result(HANG_S)
    assert io.fstat(fd).result(HANG_S).st_mtime_ns == 10**18 + 7
    io.fallocate(fd, 0, 1 << 16).result(HANG_S)
    io.ftruncate(fd, 11).result(HANG_S)
    io.close_fd(fd).result(HANG_S)
    fd = io.open(path).result(HANG_S)
    assert io.read(fd, 5).result(HANG_S) == b"hello"
    assert io.lseek(fd, 0, os.SEEK_CUR).result(HANG_S) == 5
    assert io.pread(fd, 100, 6).result(HANG_S) == b"world"
    buffers = [bytearray(6), bytearray(5)]
    assert io.readv(fd, buffers, 0).result(HANG_S) == 11
    assert buffers == [b"hello ", b"world"]
    assert io.seek_data(fd, 0).result(HANG_S) == 0
    assert io.seek_hole(fd, 0).result(HANG_S) == 11
    io.close_fd(fd).result(HANG_S)
    io.truncate(path, 5).result(HANG_S)
    assert io.read_file(path).result(HANG_S) == b"hello"
    io.rename(path, other).result(HANG_S)
    io.link(other, path).result(HANG_S)
    assert io.stat(path).result(HANG_S).st_nlink == 2
    io.unlink(other).result(HANG_S)
    io.symlink("a", other).result(HANG_S)
    assert stat.S_ISLNK(io.lstat(other).result(HANG_S).st_mode)
    io.mknod(str(tmp_path / "fifo"), stat.S_IFIFO | 0o600).result(HANG_S)
    io.mkdir(str(tmp_path / "d")).result(HANG_S)
    fd = io.open(str(tmp_path), os.O_RDONLY | os.O_DIRECTORY).result(HANG_S)
    names = io.readdir(fd).result(HANG_S)
    assert sorted(names) == ["a", "b", "d", "fifo"]
    found = io.stats([*names, "none"], fd).result(HANG_S)
    assert isinstance(found.pop(), FileNotFoundError)
    assert all(isinstance(result, os.stat_result) for result in found)
    io.close_fd(fd).result(HANG_S)
    io.rmdir(str(tmp_path / "d")).result(HANG_S)
    assert io.wait(HANG_S)
    assert _open_files() == before


def test_attributes(io: Files, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    io.write_file(path, b"x", sync=False).result(HANG_S)
    try:
        io.setxattr(path, "user.colour", b"blue").result(HANG_S)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("no attributes of users here")
    assert io.getxattr(path, "user.colour").result(HANG_S) == b"blue"
    assert "user.colour" in io.listxattr(path).result(HANG_S)


def test_copy_file_range(io: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    source = io.open(str(tmp_path / "a")).result(HANG_S)
    target = io.creat(str(tmp_path / "b")).result(HANG_S)
    assert io.copy_file_range(source, target, 100, 4, 0).result(HANG_S) == 6
    for fd in (source, target):
        io.close_fd(fd).result(HANG_S)
    assert (tmp_path / "b").read_bytes() == b"456789"


@pytest.mark.parametrize("name", [name for name in dir(Files) if hasattr(ops, name)])
def test_every_failure_has_errno_and_path(name: str, io: Files, tmp_path: Path) -> None:
    """The path is the given one, or the one by which the descriptor was opened."""
    path = str(tmp_path / "none" / "x")
    by_path: dict[str, tuple[Any, ...]] = {
        "open": (path,),
        "creat": (path,),
        "truncate": (path, 1),
        "stat": (path,),
        "lstat": (path,),
        "unlink": (path,),
        "rename": (path, path),
        "link": (path, path),
        "symlink": ("x", path),
        "mknod": (path, stat.S_IFIFO),
        "mkdir": (path,),
        "rmdir": (path,),
        "listxattr": (path,),
        "getxattr": (path, "user.x"),
        "setxattr": (path, "user.x", b""),
    }
    if name in by_path:
        error = getattr(io, name)(*by_path[name]).error(HANG_S)
        assert isinstance(error, FileNotFoundError)
        assert error.errno == errno.ENOENT
        assert error.filename in (path, "x")
        return
    (tmp_path / "file").write_bytes(b"x")
    fd = io.open(str(tmp_path / "file")).result(HANG_S)
    by_fd: dict[str, tuple[Any, ...]] = {
        "write": (fd, b"x"),
        "pwrite": (fd, b"x", 0),
        "writev": (fd, [b"x"]),
        "ftruncate": (fd, 5),
        "fallocate": (fd, 0, 5),
        "copy_file_range": (fd, fd, 1, 0, 0),
        "read": (fd, -1),
        "pread": (fd, 1, -1),
        "readv": (fd, [bytearray(1)], -5),
        "lseek": (fd, -1),
        "seek_hole": (fd, 5),
        "seek_data": (fd, 5),
        "readdir": (fd,),
    }
    if name in by_fd:
        error = getattr(io, name)(*by_fd[name]).error(HANG_S)
        assert isinstance(error, OSError)
        assert error.errno
        assert error.filename in (str(tmp_path / "file"), fd), name
    io.close_fd(fd).result(HANG_S)
    with pytest.raises(OSError, match="Bad file descriptor"):
        io.close_fd(fd).result(HANG_S)


# ---- composite operations ------------------------------------------------------


COMPOSITES: dict[str, Callable[[Path], Generator[Operation[Any], Any, Any]]] = {
    "read_file": lambda place: composite.read_file(str(place / "source")),
    "write_file": lambda place: composite.write_file(str(place / "target"), b"new"),
    "write_file anew": lambda place: composite.write_file(os.fsencode(place / "other"), b"new"),
    "copy_file": lambda place: composite.copy_file(str(place / "source"), str(place / "target")),
    "make_path": lambda place: composite.make_path(str(place / "x" / "y" / "z")),
}


class Breaking:
    """A composite operation that fails, or is cancelled, at one of its steps."""

    def __init__(self, steps: Generator[Operation[Any], Any, Any], at: int, how: str) -> None:
        self.steps = 0
        self.future: Future[Any] | None = None
        self._inner = steps
        self._at = at
        self._how = how

    def __call__(self) -> Generator[Operation[Any], Any, Any]:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = self._inner.send(value) if error is None else self._inner.throw(error)
            except StopIteration as end:
                return end.value
            value, error = None, None
            self.steps += 1
            context = self.steps == self._at
            assert self.future is not None
            # A descriptor whose close fails is closed nevertheless.
            if context and self._how == "failure" and step.name != "close":
                error = OSError(errno.EIO, os.strerror(errno.EIO))
                continue
            if context and self._how == "cancel before":
                self.future.cancel()
            try:
                value = yield step
            except BaseException as failure:
                error = failure
            if context and self._how == "cancel after":
                self.future.cancel()


def _place(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(b"content" * 100_000)
    (tmp_path / "target").write_bytes(b"old")
    return tmp_path


@pytest.mark.parametrize("which", COMPOSITES)
def test_composites(which: str, io: Files, tmp_path: Path) -> None:
    place = _place(tmp_path)
    result = io.submit(COMPOSITES[which](place)).result(HANG_S)
    names = {path.name for path in place.iterdir()}
    assert names - {"x", "other"} == {"source", "target"}
    if which == "copy_file":
        assert (place / "target").read_bytes() == (place / "source").read_bytes()
        assert result == 700_000
        assert (place / "target").stat().st_mtime_ns == (place / "source").stat().st_mtime_ns
    elif which == "read_file":
        assert result == b"content" * 100_000
    elif which == "make_path":
        assert (place / "x" / "y" / "z").is_dir()
        io.submit(COMPOSITES[which](place)).result(HANG_S)  # and again
    else:
        assert result == 3
        path = place / ("target" if which == "write_file" else "other")
        assert path.read_bytes() == b"new"


@pytest.mark.parametrize("how", ["failure", "cancel before", "cancel after"])
@pytest.mark.parametrize("which", COMPOSITES)
def test_no_end_of_a_composite_leaves_anything(which: str, how: str, tmp_path: Path) -> None:
    """At every step: no descriptor or temporary file is left, and the old file is intact."""
    step = steps = 0
    while step <= steps:
        step += 1
        place = tmp_path / str(step)
        place.mkdir()
        _place(place)
        before = _open_files()
        breaking = Breaking(COMPOSITES[which](place), step, how)
        begin = threading.Event()
        with Files(threads=1) as io:
            io.submit(Operation("hold", begin.wait, HANG_S), kind=ops.DATA)
            breaking.future = io.submit(breaking())
            begin.set()
            error = breaking.future.error(HANG_S)
            assert io.wait(HANG_S)
        steps = breaking.steps
        _check_place(place, before)
        if error is not None:
            assert isinstance(error, OSError | Cancelled)
            if isinstance(error, OSError):
                assert error.errno == errno.EIO
    assert step > 3


def _check_place(place: Path, open_files: int) -> None:
    assert _open_files() == open_files
    names = {path.name for path in place.iterdir()}
    assert names - {"x", "other"} == {"source", "target"}
    assert (place / "target").read_bytes() in (b"old", b"new", b"content" * 100_000)


# The FUSE requests of a composite operation that the file system can refuse.
REQUESTS = ("lookup", "open", "create", "read", "write", "mkdir", "rename", "setattr", "fsync")
MANY = 1000


@pytest.mark.parametrize("how", ["failure", "cancel", "deadline"])
@pytest.mark.parametrize("which", COMPOSITES)
def test_a_composite_may_end_during_any_request(which: str, how: str, fuse: Mount) -> None:
    """Requests fail, or are cancelled or time out while they are delayed."""
    mounted = fuse(direct=True)
    place = Path(os.fsdecode(mounted.path))
    deadline_s = 0.05
    number = -1
    while (number := number + 1) < MANY:
        mounted.rules()
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _place(place)
        before = _open_files()
        what = {"errno": "EIO"} if how == "failure" else {"delay_s": HANG_S}
        mounted.rules(Rule(ops=REQUESTS, skip=number, times=1, **what))
        with Files(threads=1) as io:
            future = io.submit(
                COMPOSITES[which](place), deadline_s=deadline_s if how == "deadline" else None
            )
            while how != "failure" and not (future.done or mounted.state().delayed):
                time.sleep(0.001)
            if how == "cancel":
                future.cancel()
            elif how == "deadline" and mounted.state().delayed:
                assert isinstance(future.error(HANG_S), TimeoutError)
            mounted.release()
            error = future.error(HANG_S)
            until_s = time.monotonic() + HANG_S
            while not io.wait(0.1):
                mounted.release()  # a deadline may expire before the request that it should end
                assert time.monotonic() < until_s
        hits = sum(mounted.state().hits)
        mounted.rules()
        _check_place(place, before)
        if not hits and isinstance(error, TimeoutError):  # the deadline came first: repeat
            number, deadline_s = number - 1, 2 * deadline_s
        elif not hits:
            break
        assert error is None or isinstance(error, OSError | Cancelled)
        assert isinstance(error, Cancelled) == (how == "cancel")
    assert 2 < number < MANY - 1


def test_a_late_descriptor_is_closed(io: Files, tmp_path: Path) -> None:
    """The cancel arrives during a slow open, and the descriptor later."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    before = _open_files()
    opening = io.open(fifo, os.O_RDONLY)  # blocks until there is a writer
    while not any("aio" in thread.name for thread in threading.enumerate()):
        pass
    late = io.open(fifo, os.O_RDONLY, 0)
    deadline = io.submit(ops.open(fifo, os.O_RDONLY), deadline_s=0.05)
    with pytest.raises(TimeoutError) as caught:
        deadline.result(HANG_S)
    assert caught.value.filename == fifo
    opening.cancel()
    late.cancel()
    writer = os.open(fifo, os.O_RDWR)
    assert io.wait(HANG_S)
    os.close(writer)
    assert _open_files() == before


def test_after_an_error_pending_operations_are_cancelled(tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    made: list[Any] = []

    def break_off() -> None:
        with Files(threads=1) as io:
            held = io.open(fifo)  # blocks until there is a writer
            made.extend(io.mkdir(str(tmp_path / str(number))) for number in range(50))
            held.then(lambda fd: os.close(fd.result()))
            time.sleep(0.02)  # it should have started; otherwise the test covers less
            writer.start()
            raise KeyError

    def write() -> None:
        """Release the first operation when all others are cancelled, or cannot be."""
        until_s = time.monotonic() + HANG_S
        while not all(future.cancelled for future in made) and time.monotonic() < until_s:
            time.sleep(0.001)
        os.close(os.open(fifo, os.O_RDWR))

    writer = threading.Thread(target=write)
    with pytest.raises(KeyError):
        break_off()
    writer.join()
    assert all(future.cancelled for future in made)
    assert os.listdir(tmp_path) == ["fifo"]


def test_a_hanging_operation_does_not_delay_the_end(fuse: Mount) -> None:
    """The end waits only for the given patience, and the cleanup happens later."""
    mounted = fuse(direct=True)
    place = _place(Path(os.fsdecode(mounted.path)))
    before = _open_files()
    mounted.rules(Rule(ops=("read",), delay_s=HANG_S))
    io = Files(threads=2)
    copy = io.copy_file(str(place / "source"), str(place / "target"))
    alone = io.open(str(place / "source"))
    read = io.pread(alone.result(HANG_S), 10, 0)
    while mounted.state().delayed < 2:  # operations that have not started are cancelled
        time.sleep(0.001)
    assert not io.close(patience_s=0.2)
    assert mounted.state().delayed == 2, "it has waited for what hangs"
    assert not copy.done
    assert not read.done
    with pytest.raises(RuntimeError, match="closed"):
        io.stat("/")
    with pytest.raises(RuntimeError, match="closed"):
        io.read_file("/")
    with pytest.raises(RuntimeError, match="closed"):
        io.open("/")
    mounted.rules()
    mounted.release()
    assert read.result(HANG_S) == b"contentcon"
    assert copy.result(HANG_S) == 700_000
    os.close(alone.result())
    until_s = time.monotonic() + HANG_S
    while _open_files() != before and time.monotonic() < until_s:
        time.sleep(0.001)
    _check_place(place, before)


def test_offsets_of_a_descriptor_advance_in_order_of_submission(tmp_path: Path) -> None:
    """Calls with an explicit offset are not ordered; many threads could overtake each other."""
    path, count = tmp_path / "numbers", 4000
    with Files(threads=16) as io:
        fd = io.open(str(path), os.O_RDWR | os.O_CREAT).result(HANG_S)
        writes = [io.write(fd, b"%07d\n" % number) for number in range(count)]
        start = io.lseek(fd, 0)
        reads = [io.read(fd, 8) for _ in range(count)]
        closed = io.close_fd(fd)
        assert [write.result(HANG_S) for write in writes] == [8] * count
        assert start.result(HANG_S) == 0
        assert [int(read.result(HANG_S)) for read in reads] == list(range(count))
        closed.result(HANG_S)
