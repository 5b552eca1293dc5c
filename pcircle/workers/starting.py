"""Starting worker threads.

They are daemons: one that hangs in the kernel can't be ended and must not keep its process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

HELPER = "overlap-"
"""How the names of helpers begin: of a worker, who waits for them."""


class Limit:
    """The time limit for calls on files that holds in this process: see `pcircle.workers.deadline`.

    `lost` is how many were given up. With a limit, files may only be asked for by functions of
    `os`.
    """

    limit_s: float | None = None
    lost = 0


class _Worker(threading.Thread):
    """A thread that was begun here."""


def are_alive() -> bool:
    """Whether any worker of this process has not ended.

    Helpers count by the worker that they help: without one they wait for nothing but their end.
    """
    workers = (each for each in threading.enumerate() if isinstance(each, _Worker))
    return any(not worker.name.startswith(HELPER) for worker in workers)


def begin(
    workers: list[threading.Thread], work: Callable[..., None], *args: Any, name: str
) -> bool:
    """Start one more thread, numbered in its name; false if this process may have no more."""
    worker = _Worker(target=work, args=args, name=f"{name}{len(workers)}", daemon=True)
    try:
        worker.start()
    except RuntimeError:
        return False
    workers.append(worker)
    return True


def begin_first(
    workers: list[threading.Thread], work: Callable[..., None], *args: Any, name: str
) -> bool:
    """As `begin`, but RuntimeError if there is no thread at all."""
    begun = begin(workers, work, *args, name=name)
    if not workers:
        raise RuntimeError("can't start a thread: this process may have no more")
    return begun
