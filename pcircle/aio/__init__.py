"""Asynchronous file operations: futures, continuations, and as many at once as pay.

On parallel file systems an operation takes a millisecond and a process that
waits for it does nothing. Here every operation returns at once with a future;
see `pcircle.aio.scheduler` for where it runs and `pcircle.aio.futures` for what
can follow. After PXFS (Snyder 2013; Yang et al. 2013).

Apart from these, and older, is the pool that the runtime of the tools hands its
items to, `pcircle.aio.pool`. The tools start without the rest: names are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcircle.aio.composite import copy_file, make_path, read_file, write_file
    from pcircle.aio.files import Files
    from pcircle.aio.futures import Cancelled, Future, dataflow, when_all, when_any
    from pcircle.aio.operations import Operation
    from pcircle.aio.scheduler import Scheduler

__all__ = [
    "Cancelled",
    "Files",
    "Future",
    "Operation",
    "Scheduler",
    "copy_file",
    "dataflow",
    "make_path",
    "read_file",
    "when_all",
    "when_any",
    "write_file",
]

_ROOMS = {
    "composite": ("copy_file", "make_path", "read_file", "write_file"),
    "files": ("Files",),
    "futures": ("Cancelled", "Future", "dataflow", "when_all", "when_any"),
    "operations": ("Operation",),
    "scheduler": ("Scheduler",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
