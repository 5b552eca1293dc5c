"""The counters of a signature: of a rank, and of all ranks."""

from __future__ import annotations

from pcircle.jobs.counters import Entries


class Counters(Entries):
    """The counters of a thread, a rank or a job; written by the worker, read by the main thread.

    `sized` counts entries of known size, and `recalled` offline files that were read. Files in a
    manifest or list are either `compared` or `missing`. Compared files that need not be read are
    also `unchecked`.
    """

    sized: int
    bytes_found: int
    bytes_done: int
    recalled: int
    compared: int
    unchecked: int
    missing: int
