"""What a rank counts while it signs, and what all of them count together."""

from __future__ import annotations

from pcircle.tool.counters import Entries


class Counters(Entries):
    """Counts of a worker, of a rank or of all; written by the worker, read by the main thread.

    `sized` are the entries whose size is known, `recalled` files that were read although they are
    offline. Of the files that a manifest or list names `compared` are there, of which some are
    `unchecked` since they need not be read, and the others are `missing`.
    """

    sized: int
    bytes_found: int
    bytes_done: int
    recalled: int
    compared: int
    unchecked: int
    missing: int
