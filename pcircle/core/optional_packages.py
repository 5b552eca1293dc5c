"""Optional packages: a child process tries each one out before this process imports it.

A compiled package can end the process that imports or uses it without a message: by SIGILL if its
wheel was built for newer processors, or by SIGSEGV if a library is incompatible. A job must not end
like that, least of all after hours of work. When an option needs an optional package, a child
process therefore uses the package first, in the same way as the caller will, before any work
starts.

Required packages are not tried out, because the tests verify that they run on old processors. Nor
are ctypes and sqlite3, which are part of Python. MPI, which is imported only if a launcher or
``--transport`` requests it, is not tried out either. A child of a rank must not load it a second
time, and the launcher reports the signal that ended a rank.

This module imports nothing from pcircle.
"""

from __future__ import annotations

import signal
import sys
from functools import cache
from typing import Any

# The child finds the same modules as this process, and writes no core file if it crashes.
_SETUP = """
import sys
sys.path[:] = sys.argv[1:]
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


def load(package: str, trial: str) -> Any:
    """Import a package after a child process has survived `trial`. Raises ImportError otherwise."""
    from importlib import import_module

    try_out(package, trial)
    return import_module(package)


def try_out(package: str, trial: str) -> None:
    """Check that a package can be used.

    `trial` is a program that uses the package as the caller will. Raises ModuleNotFoundError if the
    package is not installed, and ImportError with the reason if the trial fails. Each trial runs
    only once.
    """
    problem = _problem(package, trial)
    if problem is None:
        raise ModuleNotFoundError(f"the package {package} is not installed", name=package)
    if problem:
        raise ImportError(f"the package {package} cannot be used here: {problem}", name=package)


@cache
def _problem(package: str, trial: str) -> str | None:
    """Return why a package cannot be used, "" if it can, or None if it is not installed."""
    import subprocess  # imported late because few jobs need an optional package
    from importlib.util import find_spec

    if find_spec(package) is None:
        return None
    if not sys.executable:  # embedded in another program, Python cannot start a child
        return ""
    # -I keeps environment variables and the current directory out of the child's start; `_SETUP`
    # then sets its sys.path to that of this process.
    done = subprocess.run(
        [sys.executable, "-I", "-c", _SETUP + trial, *sys.path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode < 0:
        return f"it crashes its process with {_signal_name(-done.returncode)}"
    if done.returncode:
        lines = done.stderr.decode(errors="backslashreplace").splitlines()
        text = lines[-1] if lines else f"exit code {done.returncode}"
        return "".join(char if char.isprintable() else "?" for char in text)
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
