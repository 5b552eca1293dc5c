"""Local ranks as new interpreters, for a process that must not be forked.

A fork copies only the calling thread, but every lock that another thread holds stays locked in the
child. So if the process has other threads, as in a notebook, or has initialised MPI, the other
ranks are new interpreters. They receive their sockets, a pickled body, and the location of the
module that was `__main__` if the body refers to it. (`multiprocessing` calls this start method
"spawn".)

The cost: each rank imports the modules that it needs, which takes a few tenths of a second. Rank 0
waits until all ranks have started, and reports only the first that could not.

Each rank imports the main module under the name `__mp_main__`, as `multiprocessing` does. This
import runs the top level of the module again, so a job must not be started there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from pcircle.core.errors import Defect, PcircleError, UsageError
from pcircle.transport._fork import (
    Child,
    Children,
    plain_transport,
    run_first_rank,
    run_rank,
    start_children,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pcircle.transport.contract import Body


_MAIN = "__main__"
_IMPORTED_MAIN = "__mp_main__"
_BEGIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import serve; serve()"

# Set while a rank imports the main module; the module's top level must not start a job.
importing_main = threading.Event()

UNGUARDED = """\
this process has other threads or has initialized MPI, so its local ranks are started as fresh \
interpreters, which import the main module first. In that module, start jobs only below \
`if __name__ == "__main__":`; or use one process, or mpirun"""


def launch_spawned(size: int, body: Body, pickled: bytes) -> int:
    """Run *body* as *size* ranks on this machine: rank 0 here, the others as new interpreters.

    The other ranks unpickle *pickled*. Unlike `launch_local`, this may be called on any thread, and
    while other threads exist. Also raises UsageError if a rank could not start.
    """
    children = Children()
    return run_first_rank(size, body, children, start_spawned(size, children, pickled))


def _unnamed_file() -> IO[bytes]:
    """Open an unnamed temporary file, in memory if the platform supports it."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("pcircle-job"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()


def start_spawned(
    size: int,
    children: Children,
    pickled: bytes,
    make_transport: str = f"{plain_transport.__module__}:plain_transport",
) -> dict[int, int]:
    """Start all ranks but the first and wait until they have started; return the first rank's ends.

    *make_transport* names, as MODULE:FUNCTION, the function that wraps a rank's `LocalTransport`.
    """
    # The ranks send back objects of the main module's classes under this module name.
    sys.modules.setdefault(_IMPORTED_MAIN, sys.modules[_MAIN])
    pipes: list[int] = []
    with _unnamed_file() as job:
        job.write(pickle.dumps((sys.path, sys.argv, _main_of(pickled), pickled)))
        job.flush()
        try:
            ends = start_children(
                size, children, lambda ends: _spawn(ends, job.fileno(), pipes, make_transport)
            )
            _await_all(size, children, pipes)
        except BaseException:
            children.kill()
            raise
        finally:
            for fd in pipes:
                os.close(fd)
    return ends


def _main_of(pickled: bytes) -> tuple[str, str] | None:
    """Return the name or the path of the main module, or None if no rank needs to import it."""
    main: Any = sys.modules[_MAIN]
    if _MAIN.encode() not in pickled:
        return None
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return "name", spec.name
    path = getattr(main, "__file__", None)
    return None if path is None else ("path", os.path.abspath(path))


def _spawn(
    ends: list[dict[int, int]], job: int, pipes: list[int], make_transport: str
) -> Iterator[Child]:
    """Start the ranks one by one; append the descriptor of each rank's report to *pipes*."""
    home = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", _BEGIN.format(module=__name__), home]
    for rank in range(1, len(ends)):
        started_fd, report_fd = os.pipe2(os.O_CLOEXEC)
        pipes.append(started_fd)
        mesh = [f"{other}:{fd}" for other, fd in ends[rank].items()]
        try:
            yield subprocess.Popen(
                [*command, *map(str, (rank, len(ends), job, report_fd, make_transport)), *mesh],
                stdin=subprocess.DEVNULL,
                pass_fds=(job, report_fd, *ends[rank].values()),
            )
        finally:
            os.close(report_fd)


def _await_all(size: int, children: Children, pipes: list[int]) -> None:
    """Wait until all ranks have started; raise the error of the first that could not."""
    for rank, fd in enumerate(pipes, 1):
        with open(fd, "rb", closefd=False) as pipe:
            report = pipe.read()
        if report:
            code, text = pickle.loads(report)
            if code == UsageError.exit_code:
                raise UsageError(text)
            raise UsageError(f"rank {rank} of {size} could not be started:\n{text}")


def serve() -> NoReturn:
    """Run a rank that `start_spawned` has started, as its command line specifies."""
    rank, size, job, report_fd = map(int, sys.argv[1:5])
    module, name = sys.argv[5].split(":")
    pairs = (word.split(":") for word in sys.argv[6:])
    ends = {int(other): int(fd) for other, fd in pairs}

    def prepare() -> Body:
        try:
            body = _load_body(job)
        except BaseException as error:
            _report_failure(error, report_fd)
            os._exit(Defect.exit_code)
        os.close(report_fd)
        return body

    run_rank(rank, size, ends, prepare, getattr(__import__(module, fromlist=[name]), name))


def _load_body(job: int) -> Body:
    """Import the main module if needed and return the unpickled body."""
    with open(f"/proc/self/fd/{job}", "rb") as file:  # with its own file position
        data = file.read()
    os.close(job)
    sys.path, sys.argv, main, pickled = pickle.loads(data)
    if main is not None:
        importing_main.set()
        try:
            _import_main(*main)
        finally:
            importing_main.clear()
    body: Body = pickle.loads(pickled)
    return body


def _import_main(kind: str, where: str) -> None:
    import runpy
    import types

    if kind == "name":
        found = runpy.run_module(where, run_name=_IMPORTED_MAIN, alter_sys=True)
    else:
        found = runpy.run_path(where, run_name=_IMPORTED_MAIN)
    module = types.ModuleType(_IMPORTED_MAIN)
    module.__dict__.update(found)
    sys.modules[_MAIN] = sys.modules[_IMPORTED_MAIN] = module


def _report_failure(error: BaseException, report_fd: int) -> None:
    """Report to rank 0 why this rank could not start."""
    import traceback

    if isinstance(error, PcircleError):
        report = error.exit_code, str(error)
    else:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        report = Defect.exit_code, text.rstrip()
    with open(report_fd, "wb") as pipe:
        pipe.write(pickle.dumps(report))
