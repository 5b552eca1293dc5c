"""Kill ranks of a local run at arbitrary moments, and return the outcome."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.tools.fcp.running import Finished, Launcher, Run

_STEP_S = 0.0005


def children(pid: int) -> list[int]:
    """Return the children of a process, in order of creation."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []  # it has ended


def run_killing(
    rng: Random,
    program: str,
    jobs: int,
    *arguments: str | bytes,
    within_s: float = 0.3,
    kills: int = 1,
    cwd: bytes | None = None,
) -> tuple[Finished, int]:
    """Run a tool and kill ranks other than the first; return the result and the kills."""
    killed: set[int] = set()
    run = Run(Launcher(jobs=jobs), *arguments, program=(f"pcircle.tools.{program}",), cwd=cwd)
    with run:
        for _ in range(kills):
            ranks: Sequence[int] = ()
            while run.process.poll() is None and len(ranks) < jobs - 1 - len(killed):
                time.sleep(_STEP_S)
                ranks = [pid for pid in children(run.process.pid) if pid not in killed]
            time.sleep(rng.random() * within_s)
            ranks = [pid for pid in children(run.process.pid) if pid not in killed]
            if ranks:
                chosen = rng.choice(ranks)
                with suppress(ProcessLookupError):
                    os.kill(chosen, signal.SIGKILL)
                    killed.add(chosen)
        finished = run.finish()
        assert run.wait_until_gone() == []
    return finished, len(killed)
