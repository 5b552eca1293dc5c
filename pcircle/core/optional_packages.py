"""Optional packages: tried by a child process before this one imports them.

The idea: a compiled package can end the process that imports or uses it, without a message: by
SIGILL where its wheel was built for newer processors, by SIGSEGV where a library does not fit.  A
job must not end like that, least of all with its results, hours later.  So when an option asks for
an optional package, a child process uses it first, as the caller will, before any work.

What this is not: for what is always needed.  The dependencies must run on old processors (the tests
see to that), and ctypes and sqlite3 come with Python.  Nor for MPI, which is imported only where a
launcher or ``--transport`` asks for it: a child of a rank must not load it a second time, and the
launcher says by which signal a rank ended.

A leaf of the package: it imports nothing of it.
"""

from __future__ import annotations

import signal
import sys
from functools import cache
from typing import Any

__all__ = ["load", "try_out"]

# The same modules as here, and no core file of what crashes.
_SETUP = """
import sys
sys.path[:] = sys.argv[1:]
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


def load(package: str, trial: str) -> Any:
    """Return a package's module after a child process has survived `trial`.  ImportError."""
    from importlib import import_module

    try_out(package, trial)
    return import_module(package)


def try_out(package: str, trial: str) -> None:
    """Find out whether a package can be used: ModuleNotFoundError if it is not installed.

    `trial` is a program that uses it as the caller will.  ImportError says why it can't be used;
    each package is tried once.
    """
    problem = _problem(package, trial)
    if problem is None:
        raise ModuleNotFoundError(f"the package {package} is not installed", name=package)
    if problem:
        raise ImportError(f"the package {package} cannot be used here: {problem}", name=package)


@cache
def _problem(package: str, trial: str) -> str | None:
    """Why a package can't be used, nothing if it can; None if it is not installed."""
    import subprocess  # only now, as importlib: hardly a job asks for an optional package
    from importlib.util import find_spec

    if find_spec(package) is None:
        return None
    if not sys.executable:  # Python inside another program: there is no child to be started
        return ""
    # Isolated, so that nothing is imported from the current directory on the way.
    done = subprocess.run(
        [sys.executable, "-I", "-c", _SETUP + trial, *sys.path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode < 0:
        return f"it ends its process with {_signal_name(-done.returncode)}"
    if done.returncode:
        lines = done.stderr.decode(errors="backslashreplace").splitlines()
        text = lines[-1] if lines else f"exit code {done.returncode}"
        return "".join(char if char.isprintable() else "?" for char in text)
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of a real-time signal
        return f"signal {number}"
