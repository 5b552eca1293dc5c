"""Costs that must not grow: system calls and imports, compared with the table in counts.json.

A count more than a tenth above the recorded one fails. This command records all counts again::

    PCIRCLE_UPDATE_COUNTS=1 pytest -m counts

Delete the table first to drop the counts of tests that no longer exist.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from tests.strace import Call

TABLE = Path(__file__).with_suffix(".json")
MAX_GROWTH = 1.1
# A busy machine delays programs, and some of them poll while they wait.
ATTEMPTS = 3
# Calls by which threads wait for each other, which depend on the load of the machine.
SYNCHRONIZATION = {
    *("futex", "poll", "ppoll", "read", "write", "clock_nanosleep", "restart_syscall"),
    *("sched_yield", "rt_sigreturn", "mmap", "munmap", "brk", "madvise"),
}

Table = dict[str, dict[str, int]]


def check(subject: str, count: Callable[[], Mapping[str, int]], table: Path = TABLE) -> None:
    """Fail if some count of *subject* is more than a tenth above the recorded one.

    *count* returns the counts by name. It is called again when one of them is too high.
    """
    updates = bool(os.environ.get("PCIRCLE_UPDATE_COUNTS"))
    recorded = {} if updates else _read(table).get(subject, {})
    attempts: list[Mapping[str, int]] = []
    for _ in range(ATTEMPTS):
        attempts.append(found := count())
        if all(found[name] <= recorded.get(name, -1) * MAX_GROWTH for name in found):
            return
    if updates:
        middle = {name: sorted(found[name] for found in attempts)[ATTEMPTS // 2] for name in found}
        _record(subject, middle, table)
    else:
        pytest.fail(f"{subject}: {recorded} in {table.name}, but counted {attempts}", pytrace=False)


def growth(few: Callable[[], int], many: Callable[[], int]) -> int:
    """Return the increase from the first count to the second.

    The second count is taken first: what Python compiles in a first run makes a count too high, and
    a `check` whose attempt is too low would pass.
    """
    high = many()
    return high - few()


def _read(table: Path) -> Table:
    found: Table = json.loads(table.read_text()) if table.exists() else {}
    return found


def _record(subject: str, counts: dict[str, int], table: Path) -> None:
    """Write counts into the table, which other processes of the same run may also update."""
    with open(table, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known: Table = json.loads(file.read() or "{}")
        known[subject] = counts
        file.truncate(0)
        file.write(json.dumps(known, indent=4, sort_keys=True) + "\n")


def steady(tool: str) -> list[str]:
    """Return the command of a tool with a clock that makes nothing appear slow.

    A tool makes other calls where directories or look-ups are slow, as on a busy machine.
    """
    program = f"""
import itertools, sys, types
from pcircle.tools.ffind.eval import evaluator as ahead
from pcircle.fs import scan, stats
from pcircle.walk import walker
ticks = itertools.count()
tick = lambda: next(ticks) * 1e-6
clock = types.SimpleNamespace(monotonic=tick, perf_counter=tick, monotonic_ns=lambda: 1 << 61)
ahead.time = scan.time = stats.time = walker.time = clock
from pcircle.tools.{tool}.cli import main
sys.exit(main())
"""
    return [sys.executable, "-c", program]


def by_name(calls: Iterable[Call]) -> Counter[str]:
    """Return the number of calls by name; fstat is newfstatat of an open file."""
    of_open = re.compile(r'newfstatat\(\d+, ""')
    return Counter("fstat" if of_open.match(call.text) else call.name for call in calls)


def total(found: Counter[str], ignored: Iterable[str] = SYNCHRONIZATION) -> int:
    """Return the sum of all counts except ignored calls."""
    return found.total() - sum(found[name] for name in ignored)
