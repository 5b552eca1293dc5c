"""The counters of a signature: of a rank, and of all ranks."""

from __future__ import annotations

from pcircle.jobs.counters import Entries


class Counters(Entries):
    """The counters of a thread, a rank or a job; written by the worker, read by the main thread.

    `sized` counts entries of known size, `recalled` offline files that were read. Of the files in a
    manifest or list, `compared` exist, some of which are `unchecked` because they need not be read;
    the others are `missing`.
    """

    sized: int
    bytes_found: int
    bytes_done: int
    recalled: int
    compared: int
    unchecked: int
    missing: int
