"""Copies that are ended in their middle, once something of them was committed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.fcp.running import Launcher, Run

SLOWLY = ("--ops-limit", "4000", "--bwlimit", "60M", "--checkpoint-interval", "0.1")


def checkpoints(place: bytes) -> list[bytes]:
    """The checkpoints in a directory."""
    return [place + b"/" + n for n in os.listdir(place) if n.startswith(b".fcp-checkpoint-")]


def interrupt(
    launcher: Launcher,
    place: bytes,
    *arguments: str | bytes,
    number: signal.Signals = signal.SIGKILL,
    when: Callable[[], bool] | None = None,
) -> bytes:
    """Start a slow copy and end it once something was committed; returns its checkpoint."""
    with Run(launcher, *SLOWLY, *arguments) as run:
        deadline = time.monotonic() + 60
        while not (is_committed(place) if when is None else when()):
            assert run.process.poll() is None, "the copy was faster than its first epoch"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for pid in run.processes():
            os.kill(pid, number)
        finished = run.finish()
        assert finished.code != 0
        assert run.wait_until_gone() == []
    (found,) = checkpoints(place)
    return found


def is_committed(place: bytes) -> bool:
    """Whether a checkpoint in a directory has a commit of something."""
    try:
        for checkpoint in checkpoints(place):
            for name in os.listdir(checkpoint):
                if name.startswith(b"journal-"):
                    data = Path(os.fsdecode(checkpoint + b"/" + name)).read_bytes()
                    if data.count(b"fcpC") > 1:
                        return True
    except FileNotFoundError:
        pass  # it is being made, or has just ended
    return False
