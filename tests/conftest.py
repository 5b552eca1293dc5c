"""Common fixtures and checks: the interpreter's path, safe runs of programs, mpirun, leaks.

Fixtures:

- ``run``: runs a program with a deadline, and ends all of its processes at the deadline.
- ``mpirun``: the command that starts N ranks; see `tests.mpi` for the behaviour without MPI.

Every test is checked for leaked descriptors, child processes and threads. Programs that tests start
receive stop signals even if the tests run under nohup.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings

from tests import drawing, fork_server, programs
from tests.mpi import mpirun_prefix

ROOT = Path(__file__).resolve().parents[1]

# Maximum run time of a program in a test. It is not a measure of speed; it only ends hanging
# programs, well before the deadline for the whole test in pyproject.toml. Under qemu, in parallel
# with other tests, a program that needs six seconds has taken a minute.
DEADLINE_S = 240.0
# Set for long searches and many ranks: tox -e soak.
SOAK = bool(os.environ.get("PCIRCLE_SOAK"))
# Time that a thread or child process left behind by a test may take to end on its own: it may have
# to wait for a processor first.
GRACE_S = 30.0


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment on which all tests, and the programs that they start, depend."""
    config.pluginmanager.register(drawing)
    # Programs import the pcircle of this checkout, as the tests do, installed or not.
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    programs.add_stand_ins()
    os.environ["TERM"] = "xterm"  # the progress bar needs a known terminal, and CI has none
    os.umask(0o022)  # modes that tests create and check
    # Programs start thousands of times, so compiled modules are cached, even if the user has
    # disabled caching next to the sources. All pytest-xdist workers inherit this cache; the next
    # run reuses it, together with the assertions that pytest has rewritten.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not hasattr(config, "workerinput") and "PYTHONPYCACHEPREFIX" not in os.environ:
        os.environ["PYTHONPYCACHEPREFIX"] = _compiled(config)
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]
        sys.dont_write_bytecode = False
    # No time limits: a test fails because of the code or not at all. Each full run uses the same
    # examples; a budgeted run draws them from its seed. HYPOTHESIS_PROFILE=explore searches
    # further.
    is_drawn = drawing.budget_s() is not None
    if is_drawn:
        seed = int(os.environ["PCIRCLE_TESTS_SEED"])
        hypothesis.core.global_force_seed = seed  # type: ignore[assignment]  # as --hypothesis-seed
    fixed = settings(
        deadline=None,
        derandomize=not is_drawn,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("fixed", fixed)
    settings.register_profile("quick", fixed, max_examples=20)  # before a commit, see tox.ini
    settings.register_profile("explore", fixed, derandomize=False, max_examples=2000)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def _compiled(config: pytest.Config) -> str:
    """Return a directory for compiled modules: in pytest's cache, or else a temporary one."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    try:
        if cache is not None:
            return str(cache.mkdir("compiled"))
    except OSError:
        pass  # another user owns the checkout
    compiled = tempfile.TemporaryDirectory(prefix="pcircle-compiled-")
    config.add_cleanup(compiled.cleanup)
    return compiled.name


def pytest_unconfigure() -> None:
    """Stop the processes that serve all tests."""
    fork_server.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start one more worker than processors, because tests wait for a fifth of their time."""
    return len(os.sched_getaffinity(0)) + 1


class Run(Protocol):
    """Runs *command*; standard input is empty, output and errors are captured as bytes."""

    def __call__(
        self,
        command: Sequence[str | bytes | os.PathLike[str]],
        *,
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> subprocess.CompletedProcess[bytes]: ...


def _run(
    command: Sequence[str | bytes | os.PathLike[str]],
    *,
    env: dict[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[bytes]:
    with fork_server.start(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            # Kill the whole session, not only its first process: mpirun's ranks keep the pipes open
            # too.
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(
                f"not done within {deadline_s} s: {command}\n{_text(out)}\n{_text(err)}",
                pytrace=False,
            )
        except BaseException:  # as after Ctrl-C, stop all of its processes
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a program to its end, or fail the test when it hangs."""
    return _run


@pytest.fixture(scope="session")
def mpirun() -> Callable[[int], list[str]]:
    """Return the command that starts N ranks: ``run([*mpirun(4), sys.executable, ...])``."""
    prefix = mpirun_prefix()
    return lambda ranks: [*prefix, "-np", str(ranks)]


@pytest.fixture(scope="session", autouse=True)
def _stop_signals_are_heard() -> Iterator[None]:
    """Give programs that tests start the default stop signals, whatever was inherited.

    SIGHUP is ignored under nohup, SIGINT in the background of a script, and programs inherit that.
    Exec resets handlers, so programs get the default while this process still ignores the signals.
    """
    former = {}
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            former[number] = signal.signal(number, lambda *_: None)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves descriptors, child processes or threads in its process."""
    before = _held_resources()
    yield
    patient_until_s = time.monotonic() + GRACE_S
    while left := _held_resources() - before:
        if time.monotonic() > patient_until_s:
            pytest.fail(f"left behind: {', '.join(sorted(left))}", pytrace=False)
        gc.collect()  # an exception may keep objects alive
        time.sleep(0.02)


def _held_resources() -> set[str]:
    """Describe the resources of this process that a test could leave behind."""
    held = {*_descriptors(), *_children(), *_threads()}
    return {resource for resource in held if not fork_server.is_kept(resource)}


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        yield f"descriptor {number} of {target}"


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:  # the thread has ended, or the kernel lacks these lists
            continue
        yield from (f"child process {pid}" for pid in children)


def _threads() -> Iterator[str]:
    return (f"thread {thread.name}" for thread in threading.enumerate())
