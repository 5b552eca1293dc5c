"""Run one process and measure its cost.

``wait4`` charges a process with itself and with all descendants that were waited for: CPU seconds
are their sum, peak memory is that of the *largest single process*, not the sum. A descendant that
no process waits for is not counted; no tool here leaves one.

Linux counts the pages that a process had before ``exec`` as its own peak, which are those of the
process that spawned it, so nothing below this harness's own peak can be measured; `floor_bytes` is
that limit and should accompany every figure.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Cost(NamedTuple):
    """The cost of one process with its descendants; `exit_code` is -N for signal N."""

    wall_s: float
    user_s: float
    system_s: float
    peak_rss_bytes: int
    exit_code: int
    timed_out: bool

    def plus(self, other: Cost) -> Cost:
        """Return the sum of two consecutive costs; the first failure counts."""
        return Cost(
            self.wall_s + other.wall_s,
            self.user_s + other.user_s,
            self.system_s + other.system_s,
            max(self.peak_rss_bytes, other.peak_rss_bytes),
            self.exit_code or other.exit_code,
            self.timed_out or other.timed_out,
        )


def floor_bytes() -> int:
    """Return the smallest peak memory that `run` can report now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself in between
        os.killpg(pid, signal.SIGKILL)


def run(argv: Sequence[str], env: Mapping[str, str], log: str, timeout_s: float) -> Cost:
    """Run `argv` in a session of its own, with its output in the file `log`.

    After `timeout_s` seconds, and when this harness is interrupted, its group is killed. Raises
    OSError where the program can't be started.
    """
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    timed_out = threading.Event()
    started = time.perf_counter()
    # A session, not just a group: a shell with job control (fpsync) that does not own its terminal
    # stops itself for ever; without a terminal it runs.
    pid = os.posix_spawnp(argv[0], list(argv), env, file_actions=actions, setsid=True)

    def expire() -> None:
        timed_out.set()
        _kill_group(pid)

    watchdog = threading.Timer(timeout_s, expire)
    watchdog.daemon = True
    watchdog.start()
    try:
        _, status, usage = os.wait4(pid, 0)
        wall_s = time.perf_counter() - started
    except BaseException:  # the harness was interrupted: the tool must not continue alone
        _kill_group(pid)
        os.waitpid(pid, 0)
        raise
    finally:
        watchdog.cancel()
    return Cost(
        wall_s,
        usage.ru_utime,
        usage.ru_stime,
        usage.ru_maxrss * 1024,
        os.waitstatus_to_exitcode(status),
        timed_out.is_set(),
    )


def last_words(log: str) -> str:
    """Return the last line with text in `log`, shortened: usually the tool's error."""
    with open(log, "rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4096))
        lines = stream.read().decode(errors="backslashreplace").splitlines()
    return next((line.strip()[:160] for line in reversed(lines) if line.strip()), "")
