"""Start the tools by forking a process that has imported them: a tenth of the cost of a start.

A start of Python that imports a tool takes 0.35 s of processor time, and tests start tools more
than ten thousand times. `start` requests a fork from a server, of which each pytest process has
one. The child has the standard streams, session, directory, environment and umask that `subprocess`
would give it, runs the tool's ``__main__`` and ends like any interpreter. Commands for which a fork
would differ from a new interpreter (interpreter options, another loader, a launcher or program in
front, descriptors, a function that runs before the program) are started by `subprocess` itself;
with ``PCIRCLE_TEST_FORKS=0`` all commands are. `tests/test_fork_server.py` compares both ways.

The exit status comes through a pipe, because the child belongs to the server.
"""

from __future__ import annotations

import array
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TAG = "FCP_TEST_RUN"
"""The variable whose value in /proc/PID/environ identifies the processes of a test's run."""
TAG_CHARACTERS = 36
NOT_PRELOADED = ("pcircle.scale", "pcircle.testing")
# Read by an interpreter or a C library at start.
EARLY = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "COVERAGE_")
_PLAIN = frozenset(
    {"args", "cwd", "env", "umask", "stdin", "stdout", "stderr", "start_new_session", "bufsize"}
)
_HEAD = struct.Struct("<Q")
_END = struct.Struct("<qd")  # a status, and processor time in seconds


class Request(NamedTuple):
    """The `module` that a child runs, and its arguments. Four descriptors accompany a request."""

    module: str
    arguments: list[bytes]
    directory: bytes
    environment: dict[bytes, bytes]
    umask: int
    new_session: bool


class Server:
    """The server of this process, from the client's point of view."""

    def __init__(self) -> None:
        self.used_s = 0.0  # processor time of children that have ended
        self._lock = threading.Lock()
        self._identity = _identity()
        self.environment = {**os.environb, TAG.encode(): b"-" * TAG_CHARACTERS}
        self._socket, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(there.fileno())],
                cwd=ROOT,
                env=self.environment,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.held = (
            f"child process {self._process.pid}",
            f"descriptor {self._socket.fileno()} of socket:",
        )

    def can(self, command: list[str | bytes], options: Mapping[str, Any]) -> bool:
        """Return whether a command can be started by a fork."""
        if command[:2] != [sys.executable, "-m"] or set(options) - _PLAIN:
            return False
        module = command[2]
        if not isinstance(module, str) or not is_tool(module) or _identity() != self._identity:
            return False
        environment = _bytes(options.get("env"))
        names = environment.keys() | self.environment.keys()
        early = (name for name in names if os.fsdecode(name).startswith(EARLY))
        return all(environment.get(name) == self.environment.get(name) for name in early)

    def fork(self, request: Request, streams: Sequence[int]) -> tuple[int, int]:
        """Start a process; return its number and the pipe that will carry its status."""
        data = pickle.dumps(tuple(request))
        reading, writing = os.pipe()
        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*streams, writing])
        try:
            with self._lock:
                self._socket.sendmsg([_HEAD.pack(len(data))], [rights])
                self._socket.sendall(data)
            os.close(writing)
            writing = -1
            return _HEAD.unpack(os.read(reading, _HEAD.size))[0], reading
        except (OSError, struct.error):
            os.close(reading)
            raise
        finally:
            if writing >= 0:
                os.close(writing)

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        self._process.wait()


class Forked(subprocess.Popen[bytes]):
    """A process forked by a server; otherwise it behaves like any `subprocess.Popen`."""

    # Internals of `subprocess.Popen`, which offers no other way to replace the start.
    _close_pipe_fds: Callable[..., None]
    _handle_exitstatus: Callable[[int], None]
    _waitpid_lock: threading.Lock

    def __init__(self, server: Server, command: Sequence[str | bytes], **options: Any) -> None:
        self._server = server
        self._status = -1
        super().__init__(command, **options)

    def _execute_child(self, args: list[str | bytes], *more: Any) -> None:
        # The arguments of CPython 3.10 to 3.14: executable, preexec_fn, close_fds, pass_fds, cwd,
        # ...
        directory, environment = more[4:6]
        pipes, (umask, new_session) = more[9:15], more[19:21]
        p2cread, _p2cwrite, _c2pread, c2pwrite, _errread, errwrite = pipes
        request = Request(
            os.fsdecode(args[2]),
            [os.fsencode(word) for word in args[3:]],
            os.fsencode(os.getcwd() if directory is None else directory),
            _bytes(environment),
            umask,
            new_session,
        )
        streams = tuple(
            own if fd == -1 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))
        )
        self.pid, self._status = self._server.fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status < 0:
            return self.pid, 0
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        end = os.read(self._status, _END.size)
        os.close(self._status)
        self._status = -1
        # A killed server sends nothing.
        status, used_s = _END.unpack(end) if end else (signal.SIGKILL, 0.0)
        self._server.used_s += used_s
        return self.pid, status

    def _internal_poll(self, *_more: Any, **_options: Any) -> int | None:
        if self.returncode is None:
            with self._waitpid_lock:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
        return self.returncode


_kept: list[Server] = []  # None, or the server of this process


def start(
    command: Sequence[str | bytes | os.PathLike[str]], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program by a fork where that makes no difference, otherwise by `subprocess.Popen`."""
    words = [os.fspath(word) for word in command]
    if os.environ.get("PCIRCLE_TEST_FORKS") != "0" and words[:2] == [sys.executable, "-m"]:
        if not _kept:
            _kept.append(Server())
        if _kept[0].can(words, options):
            return Forked(_kept[0], words, **options)
    return subprocess.Popen(words, **options)


def used_s() -> float:
    """Return the processor time of forked processes that have ended, in seconds."""
    return sum(server.used_s for server in _kept)


def is_kept(description: str) -> bool:
    """Return whether a child process or descriptor of this process belongs to the server."""
    return any(description.startswith(prefix) for server in _kept for prefix in server.held)


def close() -> None:
    """End the server of this process, if there is one."""
    while _kept:
        _kept.pop().close()


def is_tool(module: str) -> bool:
    """Return whether the server runs a module."""
    return module.startswith("pcircle.") and not module.startswith(NOT_PRELOADED)


def _identity() -> tuple[object, ...]:
    """Return the properties that a child inherits and that must match those of the server."""
    spaces = tuple(os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "user", "uts"))
    return os.geteuid(), os.getegid(), os.getgroups(), os.readlink("/proc/self/root"), *spaces


def _bytes(environment: Mapping[str, str] | None) -> dict[bytes, bytes]:
    given = os.environ if environment is None else environment
    return {os.fsencode(name): os.fsencode(value) for name, value in given.items()}


# ---- the server ----------------------------------------------------------------


def _preload() -> None:
    """Import what the tools import; modules that are not installed stay missing."""
    import importlib
    import pkgutil

    import pcircle

    for found in pkgutil.walk_packages(pcircle.__path__, "pcircle."):
        name = found.name
        if is_tool(name) and not name.endswith(("__main__", "_mpi")):
            with suppress(ImportError):
                importlib.import_module(name)


def _serve(connection: socket.socket) -> tuple[Request, int]:
    """Fork for each request. Return in the children; the server itself ends with its client.

    Each request carries the pipe on which the child reports its process number.
    """
    import gc

    gc.collect()
    gc.freeze()
    running: dict[int, tuple[int, int]] = {}  # by descriptor of the process: its number, its pipe
    ended: dict[int, int] = {}  # by its pipe: the number of a process
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in ended:
                os.waitpid(ended.pop(fd), 0)
                poll.unregister(fd)
                os.close(fd)
                continue
            if fd != connection.fileno():
                # The process stays a zombie until the client, which may still signal it, has read
                # its status.
                pid, pipe = running.pop(fd)
                poll.unregister(fd)
                with suppress(BrokenPipeError):  # the client no longer waits
                    os.write(pipe, _END.pack(*_ending(pid, fd)))
                os.close(fd)
                ended[pipe] = pid
                poll.register(pipe, 0)  # POLLERR: the other end was closed
                continue
            head, rights, _, _ = connection.recvmsg(_HEAD.size, socket.CMSG_SPACE(4 * 4))
            if not head:
                os._exit(0)
            fds = array.array("i")
            fds.frombytes(rights[0][2])
            size = _HEAD.unpack(head)[0]
            data = b""
            while len(data) < size:
                data += connection.recv(size - len(data))
            *streams, pipe = fds
            pid = os.fork()
            if not pid:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                return Request(*pickle.loads(data)), pipe
            for stream in streams:
                os.close(stream)
            handle = os.pidfd_open(pid)
            running[handle] = pid, pipe
            poll.register(handle, select.POLLIN)


def _ending(pid: int, handle: int) -> tuple[int, float]:
    """Return the `os.waitpid` status of a process that has ended, and its processor time."""
    found = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOWAIT)
    assert found is not None  # it has ended
    exited = found.si_code == os.CLD_EXITED
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    status = found.si_status << 8 if exited else found.si_status
    return status, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _become(request: Request, pipe: int) -> None:
    """Take the state of a new interpreter that runs the module.

    The client gets the number once the process group exists and the tag is visible.
    """
    if request.new_session:
        os.setsid()
    os.umask(request.umask) if request.umask >= 0 else None
    os.chdir(request.directory)
    _show_tag(request.environment.get(TAG.encode(), b""))
    with suppress(BrokenPipeError):
        os.write(pipe, _HEAD.pack(os.getpid()))
    os.closerange(3, 256)
    os.environb.clear()
    os.environb.update(request.environment)
    import time

    time.tzset()
    sys.path[0] = os.getcwd()
    sys.argv = [request.module, *map(os.fsdecode, request.arguments)]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115
            number,
            "w" if number else "r",
            encoding=old.encoding,
            errors=old.errors,
            buffering=1 if number == 2 or os.isatty(number) else -1,
            closefd=False,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _show_tag(tag: bytes) -> None:
    """Show a tag in /proc/PID/environ, which has the initial environment of the server."""
    import ctypes

    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    place = library.getenv(TAG.encode())
    if place and len(tag) == TAG_CHARACTERS:
        ctypes.memmove(place, tag, TAG_CHARACTERS)


def main() -> None:
    """Serve; in a child, run the tool."""
    import runpy

    connection = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    request, pipe = _serve(connection)
    _become(request, pipe)
    if not hasattr(sys.modules.get(request.module), "__path__"):
        sys.modules.pop(request.module, None)  # runpy would warn about it
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
