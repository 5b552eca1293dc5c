"""What all tests share: the interpreter's path, programs run safely, mpirun, and a leak check.

Fixtures:

- ``run``: runs a program with a deadline, and ends all of its processes when that passes.
- ``mpirun``: the command that starts N ranks; see `tests.mpi` for what happens without MPI.

Every test is checked for descriptors, child processes and threads that it leaves behind.  Programs
that tests start hear stop signals, also where the tests run under nohup.
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

# How long a program of a test may run.  Not a measure of speed: it only ends what hangs, well
# before the deadline of the whole test that pyproject.toml sets.  Under qemu, beside other tests, a
# program of six seconds was seen to take a minute.
DEADLINE_S = 240.0
# Whether long searches and many ranks are wanted: tox -e soak.
SOAK = bool(os.environ.get("PCIRCLE_SOAK"))
# How long what a test leaves behind may take to go away by itself: a thread or a child process that
# ends may have to wait for a processor first.
GRACE_S = 30.0


def pytest_configure(config: pytest.Config) -> None:
    """Set what every test, and every program that a test starts, depends on."""
    config.pluginmanager.register(drawing)
    # Programs import the pcircle of this checkout, as the tests do, installed or not.
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    programs.add_stand_ins()
    os.environ["TERM"] = "xterm"  # a bar needs a terminal that is known, and CI has none
    os.umask(0o022)  # modes that tests make and judge
    # They start thousands of times: what is compiled is kept, also where the user wants none of it
    # beside the sources. Once for all workers of pytest-xdist, which are started with this; the
    # next run finds it as well, and with it the assertions that pytest has rewritten.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not hasattr(config, "workerinput") and "PYTHONPYCACHEPREFIX" not in os.environ:
        os.environ["PYTHONPYCACHEPREFIX"] = _compiled(config)
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]
        sys.dont_write_bytecode = False
    # No clock: a test fails because of the code or not at all. The same examples in each full run;
    # where cases are drawn others, of the same seed. HYPOTHESIS_PROFILE=explore looks further.
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
        pass  # the checkout is somebody else's
    compiled = tempfile.TemporaryDirectory(prefix="pcircle-compiled-")
    config.add_cleanup(compiled.cleanup)
    return compiled.name


def pytest_unconfigure() -> None:
    """End what was started for all tests."""
    fork_server.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than processors: for a fifth of their time tests wait."""
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
            # The session, not only its first process: mpirun's ranks hold the pipes open too.
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(
                f"not done within {deadline_s} s: {command}\n{_text(out)}\n{_text(err)}",
                pytrace=False,
            )
        except BaseException:  # as after Ctrl-C: nothing of it must go on
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
    """The command that starts N ranks: ``run([*mpirun(4), sys.executable, ...])``."""
    prefix = mpirun_prefix()
    return lambda ranks: [*prefix, "-np", str(ranks)]


@pytest.fixture(scope="session", autouse=True)
def _stop_signals_are_heard() -> Iterator[None]:
    """Give programs that tests start the default stop signals, whatever was inherited.

    SIGHUP is ignored under nohup, SIGINT in the background of a script, and programs inherit that.
    A handler ends at exec, so programs get the default, while this process stays as deaf.
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
    """Fail a test that leaves descriptors, child processes or threads of its process behind."""
    before = _held()
    yield
    patient_until_s = time.monotonic() + GRACE_S
    while left := _held() - before:
        if time.monotonic() > patient_until_s:
            pytest.fail(f"left behind: {', '.join(sorted(left))}", pytrace=False)
        gc.collect()  # an exception kept by the test's frames may hold what its end would release
        time.sleep(0.02)


def _held() -> set[str]:
    """What this process holds that a test could leave behind, described."""
    held = {*_descriptors(), *_children(), *_threads()}
    return {each for each in held if not fork_server.is_kept(each)}


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that listed them
            continue
        yield f"descriptor {number} of {target}"


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:  # the thread has ended, or the kernel keeps no such lists
            continue
        yield from (f"child process {pid}" for pid in children)


def _threads() -> Iterator[str]:
    return (f"thread {thread.name}" for thread in threading.enumerate())
