"""The loop that answers the kernel: one thread, requests in order, delayed ones from a heap.

A delay costs an entry in a heap, not a thread, so thousands of operations may be in progress at
once. Tests send commands through a socket, one JSON document per line, to set rules and read
counters.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import json
import os
import resource
import select
import socket
import sys
import time
from collections import Counter
from typing import Any

from . import libc, wire
from .passing import Caching, Passing, Request
from .rules import Rules, Verdict
from .wire import Op

_SILENT = (Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT, Op.DESTROY)
# Operations without a waiting process: when a process ends it closes all directories at once.
_UNAWAITED = (Op.RELEASE, Op.RELEASEDIR)
_ONE_NAME = {
    Op.LOOKUP: 0,
    Op.UNLINK: 0,
    Op.RMDIR: 0,
    Op.SYMLINK: 0,
    Op.MKDIR: wire.MKDIR_IN.size,
    Op.MKNOD: wire.MKNOD_IN.size,
    Op.CREATE: wire.CREATE_IN.size,
    Op.LINK: wire.LINK_IN.size,
}
_RENAMES = {Op.RENAME: wire.RENAME_IN, Op.RENAME2: wire.RENAME2_IN}


class Server:
    """The loop of a mount; `run` returns after an unmount or when the test disconnects."""

    def __init__(self, fuse_fd: int, control: socket.socket, passing: Passing) -> None:
        self._fuse_fd = fuse_fd
        self._control = control
        self._passing = passing
        self._rules = Rules()
        self._counts: Counter[str] = Counter()
        self._delayed: list[tuple[float, int, Request, Verdict]] = []
        self._number = 0
        self._awaited = 0  # only delayed ones
        self._max_delayed = 0
        self._lines = b""

    def run(self) -> None:
        """Answer requests until the end."""
        buffer = memoryview(bytearray(wire.ROOM_BYTES))
        # Not poll, which waits whole milliseconds: a delay may be shorter.
        watched = [self._fuse_fd, self._control.fileno()]
        while True:
            ready, _, _ = select.select(watched, [], [], self._until_due_s())
            if self._control.fileno() in ready and not self._hear():
                return
            if self._fuse_fd in ready and not self._take(buffer):
                return
            self._do_due()

    # The kernel.

    def _take(self, buffer: memoryview) -> bool:
        """Read a request and execute or delay it; return False if the mount has gone."""
        try:
            size = os.readv(self._fuse_fd, [buffer])
        except OSError as error:
            # ENOENT: the requesting process was killed meanwhile.
            return error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN)
        _, code, unique, node, uid, gid, *_ = wire.IN_HEADER.unpack_from(buffer)
        body = buffer[wire.IN_HEADER.size : size]
        try:
            op = Op(code)
        except ValueError:
            self._answer(unique, errno.ENOSYS)
            return True
        self._counts[op.name.lower()] += 1
        request = Request(op, unique, node, uid, gid, body)
        if op == Op.INIT:
            self._begin(request)
        elif op in _SILENT:
            if op in self._passing.table:
                self._passing.table[op](request)
        else:
            self._dispatch(request)
        return True

    def _begin(self, request: Request) -> None:
        _, _, ahead_bytes, offered = wire.INIT_IN.unpack_from(request.body)
        most = 0xFFFF
        answer = wire.INIT_OUT.pack(
            wire.MAJOR, wire.MINOR, ahead_bytes, offered & wire.WANTED, most, most,
            wire.MAX_DATA_BYTES, 1, wire.MAX_DATA_BYTES // 4096, 0, 0,
        )  # fmt: skip
        self._answer(request.unique, 0, answer)

    def _dispatch(self, request: Request) -> None:
        verdict = self._judge(request)
        if verdict.delay_s > 0:
            # The buffer is reused before the request is executed.
            later = request._replace(body=bytes(request.body))
            self._number += 1
            due_s = time.monotonic() + verdict.delay_s
            heapq.heappush(self._delayed, (due_s, self._number, later, verdict))
            self._awaited += request.op not in _UNAWAITED
            self._max_delayed = max(self._max_delayed, self._awaited)
        else:
            self._do(request, verdict)

    def _judge(self, request: Request) -> Verdict:
        if not self._rules.any:
            return Verdict()
        op, offset, count = request.op, 0, 0
        if op in (Op.READ, Op.WRITE):
            _, offset, count, *_ = wire.READ_IN.unpack_from(request.body)
        node = self._passing.nodes[request.node]
        if op in _ONE_NAME:
            paths = [node.below(wire.strings(request.body[_ONE_NAME[op] :])[0])]
        elif op in _RENAMES:
            old, new = wire.strings(request.body[_RENAMES[op].size :])
            to = self._passing.nodes[wire.RENAME_IN.unpack_from(request.body)[0]]
            paths = [node.below(old), to.below(new)]
        else:
            paths = [node.path()]
        return self._rules.judge(op.name.lower(), paths, offset, count, time.monotonic())

    def _do(self, request: Request, verdict: Verdict) -> None:
        if verdict.errno:
            if request.op == Op.RELEASE:  # the descriptor must be closed
                self._passing.table[request.op](request)
            self._answer(request.unique, verdict.errno)
            return
        if verdict.at_most_bytes >= 0 and request.op in (Op.READ, Op.WRITE):
            request = _shortened(request, verdict.at_most_bytes)
        done = self._passing.table.get(request.op)
        if done is None:
            self._answer(request.unique, errno.ENOSYS)
            return
        try:
            answer = done(request)
        except OSError as error:
            self._answer(request.unique, error.errno or errno.EIO)
            return
        if verdict.flip >= 0 and request.op == Op.WRITE:
            flip(self._passing.nodes[request.node].magic, verdict.flip)
        self._answer(request.unique, 0, answer)

    def _answer(self, unique: int, code: int, data: bytes = b"") -> None:
        header = wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(data), -code, unique)
        # The requesting process may have been killed (ENOENT), the mount may have gone (ENODEV).
        with contextlib.suppress(OSError):
            os.writev(self._fuse_fd, [header, data])

    # Delays.

    def _until_due_s(self) -> float | None:
        if not self._delayed:
            return None
        return max(0.0, self._delayed[0][0] - time.monotonic())

    def _do_due(self) -> None:
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            _, _, request, verdict = heapq.heappop(self._delayed)
            self._awaited -= request.op not in _UNAWAITED
            self._do(request, verdict)

    # The tests.

    def _hear(self) -> bool:
        """Execute a command of a test; return False if it has disconnected."""
        heard = self._control.recv(1 << 16)
        if not heard:
            return False
        *lines, self._lines = (self._lines + heard).split(b"\n")
        for line in lines:
            answer = self._obey(json.loads(line))
            self._control.sendall(json.dumps(answer).encode() + b"\n")
        return True

    def _obey(self, order: dict[str, Any]) -> Any:
        if "rules" in order:
            self._rules.set(order["rules"])
            self._max_delayed = 0
        if "release" in order:  # execute delayed requests at once
            self._delayed = [(0.0, *delayed[1:]) for delayed in self._delayed]
            heapq.heapify(self._delayed)
        return {
            "counts": {**self._counts, "layouts ignored": self._passing.ignored},
            "hits": self._rules.hits(),
            "delayed": len(self._delayed),
            "max_delayed": self._max_delayed,
        }


def _shortened(request: Request, most: int) -> Request:
    handle, offset, count, *tail = wire.READ_IN.unpack_from(request.body)
    fixed = wire.READ_IN.pack(handle, offset, min(count, most), *tail)
    return request._replace(body=fixed + bytes(request.body[wire.READ_IN.size :]))


def flip(path: bytes, offset: int) -> None:
    """Invert all bits of the byte at `offset` of a file, and restore its times."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        (byte,) = os.pread(fd, 1, offset)
        os.pwrite(fd, bytes([byte ^ 0xFF]), offset)
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(fd)


def main(arguments: list[bytes]) -> None:
    """Run the server: descriptors of mount and test, both directories, caching."""
    fuse_fd, control_fd, folder, backing, attributes_s, *settings = arguments
    # Every entry that the kernel remembers is a descriptor.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.umask(0)
    keep, direct, lustre, times_ns, changes_ns, folding, parallel = settings
    on = [switch == b"True" for switch in (keep, direct, lustre, parallel)]
    rounding = int(times_ns), int(changes_ns), folding.decode()
    caching = Caching(float(attributes_s), on[0], on[1], on[2], *rounding, on[3])
    with socket.socket(fileno=int(control_fd)) as control:
        Server(int(fuse_fd), control, Passing(backing, caching)).run()
    with contextlib.suppress(OSError):  # unmounted by the test, or the test was killed
        libc.unmount(folder)


if __name__ == "__main__":
    main([os.fsencode(argument) for argument in sys.argv[1:]])
