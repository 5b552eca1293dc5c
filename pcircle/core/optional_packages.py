"""Optional packages, which a child process tries out before this process imports them.

A compiled package can end the process that imports or uses it without a message: by SIGILL where
its wheel was built for newer processors, by SIGSEGV where a library does not fit. A job must not
end like that, least of all hours later with its results. When an option needs an optional package,
a child process therefore uses the package first, in the same way as the caller will, before any
work starts.

This is not for required packages: they must run on old processors, which the tests verify, and
ctypes and sqlite3 are part of Python. It is not for MPI either, which is imported only where a
launcher or ``--transport`` requests it: a child of a rank must not load it a second time, and the
launcher reports the signal that ended a rank.

This module imports nothing of the package.
"""

from __future__ import annotations

import signal
import sys
from functools import cache
from typing import Any

__all__ = ["load", "try_out"]

# The same modules as here, and no core file if it crashes.
_SETUP = """
import sys
sys.path[:] = sys.argv[1:]
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


def load(package: str, trial: str) -> Any:
    """Import a package after a child process has survived `trial`. ImportError otherwise."""
    from importlib import import_module

    try_out(package, trial)
    return import_module(package)


def try_out(package: str, trial: str) -> None:
    """Check that a package can be used; ModuleNotFoundError if it is not installed.

    `trial` is a program that uses the package as the caller will. The ImportError that is raised if
    it fails has the reason. Each package is tried once.
    """
    problem = _problem(package, trial)
    if problem is None:
        raise ModuleNotFoundError(f"the package {package} is not installed", name=package)
    if problem:
        raise ImportError(f"the package {package} cannot be used here: {problem}", name=package)


@cache
def _problem(package: str, trial: str) -> str | None:
    """Return why a package cannot be used, or "" if it can; None if it is not installed."""
    import subprocess  # imported late: few jobs request an optional package
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
