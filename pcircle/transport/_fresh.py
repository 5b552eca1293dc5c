"""Local ranks as programs of their own, for a process that must not be forked.

A fork copies one thread, and with it every lock that another one happens to hold.  So in a process
with threads, such as a notebook's, or in which MPI has begun, the other ranks are interpreters that
begin anew: they get their sockets, a pickled body, and the module that was ``__main__``, if the
body refers to it.

The cost: each imports what it needs, which takes some tenths of a second.  So rank 0 waits until
all have begun, and if one has not, it knows why and says so once.

What a rank's main module does at its top is done again when it is imported, under the name
``__mp_main__`` that ``multiprocessing`` has made known, so a job must not begin there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from pcircle.errors import Defect, PcircleError, UsageError
from pcircle.transport._fork import Child, Children, be_rank, begin, itself, job_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pcircle.transport.contract import Body

__all__ = ["UNGUARDED", "begin_fresh", "importing_main", "launch_fresh", "serve"]

_MAIN = "__main__"
_IMPORTED_MAIN = "__mp_main__"
_BEGIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import serve; serve()"

# Set while the main module is imported, at whose top a job must not begin.
importing_main = threading.Event()

UNGUARDED = """\
this process has other threads, or MPI has begun in it, so that its local ranks are started as \
fresh interpreters, which import the main module first: what starts a job must stand below \
`if __name__ == "__main__":` there. Or run it with one process, or under mpirun"""


def launch_fresh(size: int, body: Body, pickled: bytes) -> int:
    """Run *body* as *size* ranks on this machine: here as rank 0, the others as new programs.

    These make it of *pickled*.  Otherwise as ``launch_local``, but for any thread, and while there
    are others.  Raises UsageError also where a rank could not begin.
    """
    children = Children()
    return job_of(size, body, children, begin_fresh(size, children, pickled))


def _nameless() -> IO[bytes]:
    """A file without a name, in memory if the C library that Python was built with can do so."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("pcircle-job"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()


def begin_fresh(
    size: int, children: Children, pickled: bytes, given: str = f"{itself.__module__}:itself"
) -> dict[int, int]:
    """Start the ranks but the first and wait until all have begun; the first one's ends.

    Their bodies get what *given*, a function by its name, makes of their ends.
    """
    # What such a rank makes of the main module's classes comes back under that name.
    sys.modules.setdefault(_IMPORTED_MAIN, sys.modules[_MAIN])
    pipes: list[int] = []
    with _nameless() as job:
        job.write(pickle.dumps((sys.path, sys.argv, _main_of(pickled), pickled)))
        job.flush()
        try:
            ends = begin(size, children, lambda ends: _spawn(ends, job.fileno(), pipes, given))
            _await_all(size, children, pipes)
        except BaseException:
            children.kill()
            raise
        finally:
            for fd in pipes:
                os.close(fd)
    return ends


def _main_of(pickled: bytes) -> tuple[str, str] | None:
    """How a rank finds the main module: by its name or its path; None if it need not."""
    main: Any = sys.modules[_MAIN]
    if _MAIN.encode() not in pickled:
        return None
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return "name", spec.name
    path = getattr(main, "__file__", None)
    return None if path is None else ("path", os.path.abspath(path))


def _spawn(ends: list[dict[int, int]], job: int, pipes: list[int], given: str) -> Iterator[Child]:
    """Start the ranks, one by one; *pipes* get what tells whether each has begun."""
    home = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", _BEGIN.format(module=__name__), home]
    for rank in range(1, len(ends)):
        told, tell = os.pipe2(os.O_CLOEXEC)
        pipes.append(told)
        mesh = [f"{other}:{fd}" for other, fd in ends[rank].items()]
        try:
            yield subprocess.Popen(
                [*command, *map(str, (rank, len(ends), job, tell, given)), *mesh],
                stdin=subprocess.DEVNULL,
                pass_fds=(job, tell, *ends[rank].values()),
            )
        finally:
            os.close(tell)


def _await_all(size: int, children: Children, pipes: list[int]) -> None:
    """Wait until all ranks have begun. The error of the first that has not."""
    for rank, fd in enumerate(pipes, 1):
        with open(fd, "rb", closefd=False) as pipe:
            told = pipe.read()
        if told:
            code, text = pickle.loads(told)
            if code == UsageError.exit_code:
                raise UsageError(text)
            raise UsageError(f"rank {rank} of {size} could not be started:\n{text}")


def serve() -> NoReturn:
    """Be one of the ranks that ``launch_fresh`` has started, with the command line it made."""
    rank, size, job, tell = map(int, sys.argv[1:5])
    module, name = sys.argv[5].split(":")
    pairs = (word.split(":") for word in sys.argv[6:])
    ends = {int(other): int(fd) for other, fd in pairs}

    def begun() -> Body:
        try:
            body = _prepared(job)
        except BaseException as error:
            _say_why(error, tell)
            os._exit(Defect.exit_code)
        os.close(tell)
        return body

    be_rank(rank, size, ends, begun, getattr(__import__(module, fromlist=[name]), name))


def _prepared(job: int) -> Body:
    """The body, with the modules that it is from."""
    with open(f"/proc/self/fd/{job}", "rb") as file:  # all ranks have one place in the other one
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


def _say_why(error: BaseException, tell: int) -> None:
    """Tell rank 0 why this one could not begin."""
    import traceback

    if isinstance(error, PcircleError):
        told = error.exit_code, str(error)
    else:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        told = Defect.exit_code, text.rstrip()
    with open(tell, "wb") as pipe:
        pipe.write(pickle.dumps(told))
