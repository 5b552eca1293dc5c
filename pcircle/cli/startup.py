"""The start and the end of every command.

Until the job handles signals itself, Ctrl-C ends the process directly: no code could catch a
KeyboardInterrupt in the middle of an import, and some extension modules do not survive it.

At the end, all files have been written and closed, so the process exits at once: finalizing the
interpreter would take a fifth of the time of a copy of three files. Under a launcher it is
finalized, because MPI libraries need it, but without a last garbage collection, which would take
longer than the rest.

A command creates many small objects and few reference cycles, so the garbage collector runs less
often than by default. Otherwise it would take a tenth of the start-up time.
"""

from __future__ import annotations

import os

from pcircle.core.import_finder import install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def open_standard_descriptors() -> None:
    """Open /dev/null on each closed descriptor from 0 to 2.

    Otherwise the next file that is opened would get the number and receive output for a standard
    stream. /dev/null is opened in the wrong direction, so that reads and writes still fail.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # open() returns the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY if fd else os.O_WRONLY), True)


def enter(run: Callable[[], int], name: str = "pcircle") -> int:
    """Run a command, including its imports; end the process, or return the exit code.

    If a required package cannot be imported, one line that begins with `name` reports it.
    """
    open_standard_descriptors()
    install()
    import gc  # only now, because `install` makes imports cheaper

    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)  # before the imports, which create many objects
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        # SIGUSR1 requests a progress report, and must not end a command before or after its job.
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
    from pcircle.transport._exit import flush_standard_streams

    failed = False
    try:
        code = run()
    except Exception as error:
        from pcircle.transport._exit import program_name

        code = _report(error, program_name() if name == "pcircle" else name)
        failed = True
    from pcircle.transport.launch import launched

    if failed and launched().kind == "mpi":
        _end_other_ranks(code)
    if failed or launched().kind == "none":
        flush_standard_streams()
        os._exit(code)
    gc.freeze()
    return code


def _end_other_ranks(code: int) -> None:
    """End all ranks of MPI with this exit code, or return if MPI cannot be used."""
    from contextlib import suppress

    with suppress(Exception):
        from pcircle.transport._mpi import end_world

        end_world(code)


def _report(error: Exception, name: str) -> int:
    """Report an exception that left a command before or after its job; return the exit code."""
    from pcircle.core.errors import Defect, UsageError, package_problem
    from pcircle.transport._exit import print_error

    if isinstance(error, ImportError) and (problem := package_problem(error)):
        print_error(problem, name)
        return UsageError.exit_code
    from pcircle.runtime.crash_report import write_report

    print_error(f"internal error: {write_report(error, 'starting or ending')}", name)
    return Defect.exit_code


def command(tool: str, main: str = "main") -> Callable[[], int]:
    """Return the program of a tool, for entry points; see `enter`.

    A tool with several commands has a `main` function for each.
    """

    def run() -> int:
        code: int = getattr(__import__(f"pcircle.tools.{tool}.cli", fromlist=[main]), main)()
        return code

    return lambda: enter(run, tool if main == "main" else main)
