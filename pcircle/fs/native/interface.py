"""The numbers that the C module and its Python twin share with their callers."""

from __future__ import annotations

INTERFACE = 10
"""The number of this interface. A C module with another number is not used."""

UNTRIED = -(1 << 63)
NOT_PLAIN = UNTRIED + 1

KEEP_MODE, KEEP_OWNER, KEEP_TIMES, KEEP_LISTS, KEEP_ATTRIBUTES, ASK_LISTS = 1, 2, 4, 8, 16, 32
"""Attributes to preserve.

If extended attributes (`KEEP_ATTRIBUTES`) or access control lists (ACLs) are preserved, a file that
has any is not plain. ACLs are found by listing the names of attributes (`KEEP_LISTS`) or, if the
file system does not list ACLs, looked up by name (`ASK_LISTS`).
"""

MAX_FILE_BYTES = 1 << 20

COLUMNS = (
    *("mode", "links", "uid", "gid", "size", "blocks", "block_size", "inode", "device", "rdev"),
    *("atime", "atime_ns", "mtime", "mtime_ns", "ctime", "ctime_ns"),
)
"""The columns of a table of n entries: first n modes, then n link counts, and so on.

Each number has 8 bytes. Times consist of a column of seconds and one of nanoseconds. `blocks` are
units of 512 bytes. `inode`, `device` and `rdev` are unsigned.
"""

OF_EACH, OF_BODY, OF_NAME = -1, -2, -3
"""Sources of a field other than a column; see `format_entries`."""
AS_IS, LEFT, RIGHT, AS_NUMBERS = range(4)
"""Alignments of a field. `AS_NUMBERS` aligns numbers on the right and other text on the left."""
