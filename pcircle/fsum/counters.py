"""What a rank counts while it signs, and what all of them count together."""

from __future__ import annotations

from pcircle.counting import Counting
from pcircle.tool.counters import Measured


class Counters(Measured, Counting):
    """Counts of a worker, of a rank or of all; written by the worker, read by the main thread.

    Each of the entries `found` ends as exactly one of files, directories, links, special or
    failed. `sized` are those whose size is known.
    """

    found: int
    sized: int
    scans_due: int
    scans_done: int
    files: int
    directories: int
    links: int
    special: int
    failed: int
    bytes_found: int
    bytes_done: int
