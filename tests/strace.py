"""Run programs under strace and read its logs.

strace splits a call into two lines when another thread or process makes a call before the first one
returns, so tests must not read a log line by line.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.programs import required

_UNFINISHED = " <unfinished ...>"


class Call(NamedTuple):
    """A whole call: `text` is what strace writes for an uninterrupted call."""

    process: int
    text: str
    begin: int
    """The line of the log in which the call begins."""
    end: int
    """The line in which the call returns, or the end of the log if it never does."""

    @property
    def name(self) -> str:
        """Return the name of the call."""
        return self.text.partition("(")[0]

    @property
    def result(self) -> str:
        """Return the text after the arguments, "" if the call never returns."""
        return self.text.rpartition(") = ")[2] if ") = " in self.text else ""


def parse(log: str) -> list[Call]:
    """Return the calls of all processes in a log of `strace -f -o`, in order of return."""
    calls: list[Call] = []
    unfinished: dict[int, Call] = {}
    lines = log.split("\n")
    for number, line in enumerate(lines):
        found = re.match(r"(\d+) +(?:<\.\.\. (\w+) resumed>)?(.*)", line)
        if found is None or found[3].startswith(("+++ ", "--- ")):
            continue  # an empty line, the end of a process or a signal
        process, text, begin = int(found[1]), found[3], number
        begun = unfinished.pop(process, None)
        if found[2] is not None:
            text = (f"{found[2]}(" if begun is None else begun.text) + text
            begin = number if begun is None else begun.begin
        elif begun is not None:
            calls.append(begun)
        if text.endswith(_UNFINISHED):
            text = text.removesuffix(_UNFINISHED)
            unfinished[process] = Call(process, text, begin, len(lines))
        else:
            text = re.sub(r"(.*\)) += ", r"\1 = ", text, count=1)
            calls.append(Call(process, text, begin, number))
    return calls + list(unfinished.values())


def read_calls(log: Path | bytes) -> list[Call]:
    """Return the calls in a log file, like `parse`."""
    return parse(os.fsdecode(Path(os.fsdecode(log)).read_bytes()))


def max_calls(log: Path) -> int:
    """Return the number of calls of the thread that makes the most."""
    return max(Counter(call.process for call in read_calls(log)).values())


def trace(
    command: Sequence[str | bytes | os.PathLike[str]],
    log: bytes | Path,
    options: Iterable[str] = ("-e", "signal=none"),
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    umask: int = -1,
) -> list[Call]:
    """Run a command under strace and return the calls of all of its threads.

    The test is skipped if strace is missing or may not trace.
    """
    done = subprocess.run(
        [required("strace"), "-f", *options, "-o", log, *command],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=env,
        cwd=cwd,
        umask=umask,
    )
    if b"ptrace" in done.stderr and done.returncode != 0:
        pytest.skip(f"strace may not trace here: {done.stderr!r}")
    assert done.returncode == 0, done.stderr
    return read_calls(log)
