"""What io_uring is told of an operation, and what its answer means.

The package ``liburing`` fills entries of the submission queue. It has gaps, and where one
would change what an operation does the operation is left to the threads (`Elsewhere`):
its paths are text in UTF-8 and end at a NUL, its ``statx`` rounds times to those of a
double, its lengths have 32 bits, it never lets go of a memoryview, and takes no other
buffers than bytes and bytearrays. So are arguments that make no sense: the threads have
the exceptions that Python has for them.

All is marked to begin on a thread of the kernel. A submission would otherwise carry out
what the kernel believes not to wait, with the interpreter lock held, and it is wrong about
files that can be polled: a slow read of FUSE takes place in the submission. And a FIFO
would be opened as if with O_NONBLOCK. To begin there costs less than a microsecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from pcircle.aio import operations as ops
from pcircle.aio.mounts import Mounts
from pcircle.aio.operations import Operation

_MOST_BYTES = 1 << 30  # of one call
_MOST_BUFFERS = 1024
_WHERE_IT_STANDS = (1 << 64) - 1
_AT_FDCWD = -100
_AT_REMOVEDIR = 0x200

WRONG = (TypeError, ValueError, OverflowError, BufferError)
"""What arguments raise that the package can't take; the threads find out why."""


class Elsewhere(ValueError):
    """The threads must do it."""


class Call:
    """An entry of the submission queue: `prepare` of the entry and `arguments`.

    `finish` makes a value of the count that it ends with, or another call for what is
    left. `turn`, if there is one, tells what else must not run at the same time. The
    arguments, and what `kept` holds, are what the kernel reads or writes: they must live
    until it is done with them.
    """

    __slots__ = ("arguments", "begun", "finish", "kept", "prepare", "turn")

    def __init__(
        self,
        prepare: Callable[..., None],
        *arguments: Any,
        finish: Callable[[int], Any] | None = None,
        turn: object = None,
        kept: Sequence[memoryview] = (),
        begun: bool = False,
    ) -> None:
        self.prepare = prepare
        self.arguments = arguments
        self.finish = finish
        self.turn = turn
        self.kept = kept
        self.begun = begun  # a part is done: nobody else can do it from the beginning

    def release(self) -> None:
        """The kernel is done: whose memory it is may do with it what they like."""
        for view in self.kept:
            view.release()


class Calls:
    """The operations that the package and this kernel have, by the function they call."""

    def __init__(self, package: Any, mounts: Mounts) -> None:
        self._package = package
        self._mounts = mounts
        known: dict[str, dict[Callable[..., Any], Callable[..., Call]]] = {
            "OPENAT": {os.open: self._open},
            "CLOSE": {os.close: self._close},
            "READ": {os.read: self._read, os.pread: self._read},
            "READV": {os.readv: self._readv, os.preadv: self._readv},
            "WRITEV": {os.writev: self._writev, os.pwritev: self._writev},
            "WRITE": {ops.write_all: self._write, ops.pwrite_all: self._write},
            "FSYNC": {os.fsync: self._fsync},
            "FTRUNCATE": {os.ftruncate: self._ftruncate},
            "FALLOCATE": {os.posix_fallocate: self._fallocate},
            "UNLINKAT": {os.unlink: self._unlink, os.rmdir: self._rmdir},
            "RENAMEAT": {os.rename: self._rename},
            "LINKAT": {os.link: self._link},
            "SYMLINKAT": {os.symlink: self._symlink},
            "MKDIRAT": {os.mkdir: self._mkdir},
        }
        try:
            there = package.probe()
        except RuntimeError:  # older than Linux 5.6
            there = {}
        self._makers = {
            function: make
            for name, makers in known.items()
            if there.get(f"IORING_OP_{name}")
            for function, make in makers.items()
        }

    def know(self, operation: Operation[Any]) -> bool:
        """Whether the ring may be able to do it; constant time."""
        return operation.function in self._makers

    def of(self, operation: Operation[Any]) -> Call:
        """What to tell the ring. One of `WRONG` where the threads must do it."""
        make = self._makers[operation.function]
        return make(*operation.arguments, **operation.keywords)

    # ---- data ------------------------------------------------------------------

    def _read(self, fd: int, size: int, offset: int | None = None) -> Call:
        self._check(fd)
        if not 0 <= size <= _MOST_BYTES:
            raise Elsewhere
        buffer = bytearray(size)

        def finish(count: int) -> bytes:
            return bytes(buffer if count == size else memoryview(buffer)[:count])

        return Call(
            self._package.io_uring_prep_read,
            fd,
            buffer,
            _place(offset),
            finish=finish,
            turn=_turn("read", fd, offset),
        )

    def _readv(self, fd: int, buffers: Sequence[Any], offset: int | None = None) -> Call:
        self._check(fd)
        if any(type(buffer) is not bytearray for buffer in buffers):
            raise Elsewhere
        prepare = self._package.io_uring_prep_readv
        return self._vector(prepare, fd, buffers, _place(offset), _turn("read", fd, offset))

    def _writev(self, fd: int, buffers: Sequence[Any], offset: int | None = None) -> Call:
        self._check(fd)
        prepare = self._package.io_uring_prep_writev
        return self._vector(prepare, fd, buffers, _place(offset), _turn("write", fd, offset))

    def _vector(
        self,
        prepare: Callable[..., None],
        fd: int,
        buffers: Sequence[Any],
        place: int,
        turn: object,
    ) -> Call:
        buffers = list(buffers)
        if not 0 < len(buffers) <= _MOST_BUFFERS:
            raise Elsewhere
        views = [_held(buffer) for buffer in buffers]
        return Call(prepare, fd, self._package.Iovec(buffers), place, turn=turn, kept=views)

    def _write(self, fd: int, data: Any, offset: int | None = None) -> Call:
        self._check(fd)
        view = _held(data)
        if not 0 < len(data) <= _MOST_BYTES:
            raise Elsewhere
        _place(offset)
        return self._rest(fd, data, offset, view)

    def _rest(
        self, fd: int, data: Any, offset: int | None, view: memoryview, before: int = 0
    ) -> Call:
        """The write of what is left, after so many bytes `before` it."""

        def finish(count: int) -> int | Call:
            if count == len(data):
                return before + count
            rest = bytes(view[count:])  # a full disk, or a pipe: seldom
            view.release()
            return self._rest(fd, rest, offset, memoryview(rest), before + count)

        return Call(
            self._package.io_uring_prep_write,
            fd,
            data,
            _place(None if offset is None else offset + before),
            finish=finish,
            turn=_turn("write", fd, offset),
            kept=(view,),
            begun=before > 0,
        )

    def _check(self, fd: int) -> None:
        if not self._mounts.have_positions(fd):
            raise Elsewhere

    def _fsync(self, fd: int) -> Call:
        return Call(self._package.io_uring_prep_fsync, fd, 0, finish=_nothing)

    # ---- files -----------------------------------------------------------------

    def _open(
        self, path: ops.Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> Call:
        return Call(self._package.io_uring_prep_open, _text(path), flags, mode, _at(dir_fd))

    def _close(self, fd: int) -> Call:
        return Call(self._package.io_uring_prep_close, fd, finish=_nothing)

    def _ftruncate(self, fd: int, size: int) -> Call:
        return Call(self._package.io_uring_prep_ftruncate, fd, size, finish=_nothing)

    def _fallocate(self, fd: int, offset: int, length: int) -> Call:
        if offset < 0 or length < 0:
            raise Elsewhere
        prepare = self._package.io_uring_prep_fallocate
        return Call(prepare, fd, 0, offset, length, finish=_nothing)

    # ---- names -----------------------------------------------------------------

    def _unlink(self, path: ops.Path, *, dir_fd: int | None = None) -> Call:
        prepare = self._package.io_uring_prep_unlink
        return Call(prepare, _text(path), 0, _at(dir_fd), finish=_nothing)

    def _rmdir(self, path: ops.Path, *, dir_fd: int | None = None) -> Call:
        prepare = self._package.io_uring_prep_unlink
        return Call(prepare, _text(path), _AT_REMOVEDIR, _at(dir_fd), finish=_nothing)

    def _rename(
        self,
        source: ops.Path,
        target: ops.Path,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> Call:
        prepare = self._package.io_uring_prep_rename
        places = _at(src_dir_fd), _at(dst_dir_fd)
        return Call(prepare, _text(source), _text(target), 0, *places, finish=_nothing)

    def _link(self, source: ops.Path, target: ops.Path, *, follow_symlinks: bool) -> Call:
        if follow_symlinks:
            raise Elsewhere
        prepare = self._package.io_uring_prep_link
        names = _text(source), _text(target)
        return Call(prepare, *names, 0, _AT_FDCWD, _AT_FDCWD, finish=_nothing)

    def _symlink(self, text: ops.Path, path: ops.Path, *, dir_fd: int | None = None) -> Call:
        prepare = self._package.io_uring_prep_symlink
        return Call(prepare, _text(text), _text(path), _at(dir_fd), finish=_nothing)

    def _mkdir(self, path: ops.Path, mode: int, *, dir_fd: int | None = None) -> Call:
        prepare = self._package.io_uring_prep_mkdir
        return Call(prepare, _text(path), mode, _at(dir_fd), finish=_nothing)


def _nothing(_: int) -> None:
    return None


def _text(path: Any) -> str:
    """A path as the package wants it: whatever Python's encoding of names is, in UTF-8."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise Elsewhere
    return name.decode("utf-8")


def _at(dir_fd: int | None) -> int:
    return _AT_FDCWD if dir_fd is None else dir_fd


def _place(offset: int | None) -> int:
    if offset is None:
        return _WHERE_IT_STANDS
    if offset < 0:
        raise Elsewhere
    return offset


def _turn(what: str, fd: int, offset: int | None) -> object:
    """The kernel's threads don't agree among themselves where a descriptor stands."""
    return (what, fd) if offset is None else None


def _held(buffer: Any) -> memoryview:
    """A view of a buffer: no owner of one can move its bytes while there is a view."""
    if type(buffer) not in (bytes, bytearray):
        raise Elsewhere
    return memoryview(buffer)
