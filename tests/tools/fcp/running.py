"""How the tests start fcp: alone, with local workers, and under an MPI launcher.

Every process of a run has a tag in its environment, so that a test can find the ranks of its own
run among all others (launchers put them in sessions of their own) and can prove that none is left.
Nothing here waits without a limit: a run that hangs is killed and fails its test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pcircle.tools.common.copy_options import CopyOptions
from pcircle.tools.common.copy_program import run_copy
from tests.conftest import SOAK
from tests.fork_server import TAG, start
from tests.mpi import LAUNCHER_VARIABLES, mpirun_prefix

# Ends hanging runs; not a measure of speed. The longest healthy run takes a dozen seconds on an
# idle machine (a thousand files on the tests' own file system, at 2 ms a request); in parallel with
# other tests, on slower shared processors, it has taken more than 60.
HANG_S = 240.0
KILL = signal.SIGKILL
FCP = ("pcircle.tools.fcp",)
# MPI costs two seconds of two processors for each start.
MANY_RANKS = 8
OF_CHECKPOINTS = (b".fcp-checkpoint-", b".fcp-mark-")


class Launcher(NamedTuple):
    """A way to start fcp: `jobs` local processes, `ranks` under mpirun, or both: jobs of each."""

    jobs: int = 0
    ranks: int = 0

    @property
    def size(self) -> int:
        return (self.jobs or 1) * (self.ranks or 1)

    def __str__(self) -> str:
        return (f"np{self.ranks}" if self.ranks else "") + (f"j{self.jobs}" if self.jobs else "")


class Finished(NamedTuple):
    """A run that ended: exit code (negative for a signal), both outputs."""

    code: int
    out: bytes
    err: bytes

    @property
    def said(self) -> str:
        """Return standard error as text; bytes that are not UTF-8 would be a defect of fcp."""
        return self.err.decode()


ONE = Launcher(jobs=1)
TWO = Launcher(jobs=2)
FOUR = Launcher(jobs=4)


def launchers(jobs: Sequence[int], ranks: Sequence[int], hybrid: bool = False) -> list[Any]:
    """Return parameters for ``pytest.mark.parametrize("launcher", …)``; many ranks only in a soak.

    With `hybrid` two local processes under each of two MPI processes are included.
    """
    local = [pytest.param(Launcher(jobs=size), id=f"j{size}") for size in jobs]
    mpi = [
        pytest.param(Launcher(ranks=size), id=f"np{size}", marks=pytest.mark.mpi)
        for size in ranks
        if SOAK or size < MANY_RANKS
    ]
    if hybrid:
        mpi.append(pytest.param(HYBRID, id=str(HYBRID), marks=pytest.mark.mpi))
    return local + mpi


HYBRID = Launcher(jobs=2, ranks=2)
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 4], [1, 2, 4, 8], True))
some_launchers = pytest.mark.parametrize("launcher", launchers([1, 4], [2]))


def clean_environment() -> dict[str, str]:
    """Return our environment with the package on the path, without a launcher's variables."""
    return {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}


def command(
    launcher: Launcher | None, arguments: Sequence[str | bytes], program: Sequence[str] = FCP
) -> list[str | bytes]:
    """Return the command line of a run; skip the test where the launcher is not available."""
    fcp: list[str | bytes] = [sys.executable, "-m", *program]
    if launcher is None:
        return [*fcp, *arguments]
    if launcher.jobs:
        fcp += ["-j", str(launcher.jobs)]
    if not launcher.ranks:
        return [*fcp, *arguments]
    return [*mpirun_prefix(), "-np", str(launcher.ranks), *fcp, *arguments]


class Run:
    """A run of fcp in progress; a context manager that leaves no process behind."""

    def __init__(
        self,
        launcher: Launcher | None,
        *arguments: str | bytes,
        cwd: bytes | None = None,
        umask: int = 0o022,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        stderr: int = subprocess.PIPE,
        program: Sequence[str] = FCP,
        line: Sequence[str | bytes] = (),
    ) -> None:
        """Start the run; `line`, if given, is the command, whatever the launcher."""
        self.tag = f"{TAG}={uuid.uuid4()}".encode()
        self.process = start(
            line or [*prefix, *command(launcher, arguments, program)],
            cwd=cwd,
            umask=umask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            env={
                **clean_environment(),
                TAG: self.tag.decode().partition("=")[2],
                **(environment or {}),
            },
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()  # if its environment can't be read
        self.kill()
        self.process.communicate()

    def finish(self, timeout_s: float = HANG_S) -> Finished:
        """Wait for the end; a run that takes longer than `timeout_s` fails the test."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"hung: {len(self.processes())} processes are alive after {timeout_s} s")
        return Finished(self.process.returncode, out, err)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process group, like a terminal does."""
        os.killpg(self.process.pid, number)

    def kill(self, number: int = KILL) -> None:
        """Signal each of its processes, the launcher's included, one after the other."""
        for pid in self.processes():
            # It may have ended meanwhile, because of the previous signal or by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def processes(self) -> list[int]:
        """Return the living processes of this run by process id, the launcher's included."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environment = Path("/proc", entry, "environ").read_bytes()
            except OSError:
                continue  # The process ended meanwhile, or belongs to another user.
            if self.tag in environment.split(b"\0"):
                found.append(int(entry))
        return sorted(found)

    def wait_until_gone(self, timeout_s: float = HANG_S) -> list[int]:
        """Return processes of this run that outlive it by `timeout_s`; there should be none."""
        deadline = time.monotonic() + timeout_s
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def wait_for(self, path: bytes, timeout_s: float = HANG_S) -> bool:
        """Return whether `path` appeared (a directory: with an entry in it) before the run ended.

        A checkpoint and its mark do not count as entries.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if os.path.isdir(path):
                with os.scandir(path) as entries:
                    if any(not os.fsencode(e.name).startswith(OF_CHECKPOINTS) for e in entries):
                        return True
            elif os.path.lexists(path):
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.0005)
        pytest.fail(f"nothing appeared at {path!r} within {timeout_s} s")


def run_fcp(
    launcher: Launcher | None,
    *arguments: str | bytes,
    cwd: bytes | None = None,
    umask: int = 0o022,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout_s: float = HANG_S,
) -> Finished:
    """Run fcp to its end."""
    run = Run(launcher, *arguments, cwd=cwd, umask=umask, prefix=prefix, environment=environment)
    with run:
        return run.finish(timeout_s)


def copy(launcher: Launcher | None, *arguments: str | bytes, umask: int = 0o022) -> Finished:
    """Run fcp and require success."""
    finished = run_fcp(launcher, *arguments, umask=umask)
    assert finished.code == 0, finished.said
    return finished


def copy_here(sources: Sequence[bytes], target: bytes, **choices: Any) -> int:
    """Copy in this process; `choices` are fields of `CopyOptions`. Return the exit code."""
    return run_copy(CopyOptions(tool="fcp", sources=tuple(sources), target=target, **choices))


def document(path: bytes) -> dict[str, Any]:
    """Return the JSON document that fcp wrote to `path`."""
    with open(path, "rb") as stream:
        loaded = json.load(stream)
    assert isinstance(loaded, dict)
    return loaded


def without_rights(*capabilities: str) -> tuple[str, ...]:
    """Return a prefix that removes `capabilities` from root; empty for users, who have none.

    Without the capabilities to override permissions root is bound by modes like a user, but can
    still read a virtual environment in a private directory. Skips the test where this is
    impossible.
    """
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed: root has all rights")
    dropped = ",".join(f"-{name}" for name in capabilities)
    prefix = (setpriv, f"--bounding-set={dropped}", f"--inh-caps={dropped}", "--")
    probe = subprocess.run([*prefix, "true"], check=False, capture_output=True)
    if probe.returncode != 0:
        pytest.skip(f"setpriv can't drop capabilities here: {probe.stderr!r}")
    return prefix
