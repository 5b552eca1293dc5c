"""Where every command begins and ends.

Until the job listens for signals itself, Ctrl-C should just end the process:
a KeyboardInterrupt in the middle of an import has nobody to catch it, and
some extension modules don't survive it.

At the end everything is closed and written, and the process ends at once: to
take the interpreter apart object by object would cost a fifth of the time of
a copy of three files. Only under a launcher it is done, because MPI libraries
have last words of their own. There it is kept from looking for garbage once
more, which would take longer than all the rest of the end.

Between the two there are many small objects and little garbage in circles, so
it is looked for less often than usual: to do so takes a tenth of the start.
"""

from __future__ import annotations

import os

from pcircle.finding import install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def open_standard_descriptors() -> None:
    """Open on /dev/null what of descriptors 0 to 2 the process was started without.

    Else the next file that is opened has the number, and is written to by whoever means a standard
    stream. Each is opened for the wrong direction: what reads or writes it fails, as it did.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY if fd else os.O_WRONLY), True)


def enter(run: Callable[[], int], name: str = "pcircle") -> int:
    """Run a command, which `run` imports as well; ends the process, or returns the exit code.

    If a required package cannot be imported, one line that begins with `name` says so.
    """
    open_standard_descriptors()
    install()
    import gc  # only now, when modules are found for less
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        # It asks how far a job is, and must not end one that has not begun or is just over.
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from pcircle.errors import UsageError, package_problem
    from pcircle.transport._exit import flush_standard_streams, print_error

    try:
        code = run()
    except ImportError as error:
        problem = package_problem(error)
        if not problem:
            raise
        print_error(problem, name)
        code = UsageError.exit_code
    from pcircle.transport.launch import launched

    if launched().kind == "none":
        flush_standard_streams()
        os._exit(code)
    gc.freeze()
    return code


def command(tool: str, main: str = "main") -> Callable[[], int]:
    """The program of a tool, on the arguments of the command line: see `enter`.

    A tool of several names has a `main` for each.
    """

    def run() -> int:
        code: int = getattr(__import__(f"pcircle.{tool}.cli", fromlist=[main]), main)()
        return code

    return lambda: enter(run, tool if main == "main" else main)
