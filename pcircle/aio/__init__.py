"""Asynchronous file operations: futures, continuations and an adaptive number of threads.

On parallel file systems an operation can take a millisecond, and a process that waits for it is
idle. Here, submitting an operation returns a future at once. `pcircle.aio.scheduler` describes
where operations run, and `pcircle.aio.futures` how to attach continuations. The design follows PXFS
(Snyder 2013; Yang et al. 2014).

The file tools need no futures and use only `pcircle.threads`. The modules of this package are
imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcircle.aio.composite import copy_file, make_path, read_file, write_file
    from pcircle.aio.control import Barrier, Event, Semaphore
    from pcircle.aio.files import Files
    from pcircle.aio.futures import Cancelled, Future, dataflow, when_all, when_any
    from pcircle.aio.operations import Operation
    from pcircle.aio.scheduler import Scheduler

__all__ = [
    "Barrier",
    "Cancelled",
    "Event",
    "Files",
    "Future",
    "Operation",
    "Scheduler",
    "Semaphore",
    "copy_file",
    "dataflow",
    "make_path",
    "read_file",
    "when_all",
    "when_any",
    "write_file",
]

_MODULES = {
    "composite": ("copy_file", "make_path", "read_file", "write_file"),
    "control": ("Barrier", "Event", "Semaphore"),
    "files": ("Files",),
    "futures": ("Cancelled", "Future", "dataflow", "when_all", "when_any"),
    "operations": ("Operation",),
    "scheduler": ("Scheduler",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
