"""The sizes of directories and special files, which the installed du may omit.

Since coreutils 9.2 ``du --apparent-size`` adds up only files and symbolic links.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

import pytest


@functools.cache
def du_counts_directories() -> bool:
    """Return whether `du -b` adds the size of a directory itself."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "empty").touch()
        own_size = os.stat(folder).st_size
        if not own_size:
            pytest.skip(f"directories have no size in {tempfile.gettempdir()}")
        done = subprocess.run(["du", "-sb", folder], capture_output=True, check=True)
    size = int(done.stdout.split()[0])
    assert size in (0, own_size)
    return size > 0


def sizes_du_leaves_out(*roots: bytes) -> list[tuple[bytes, int]]:
    """Return each entry whose size `du -b` does not add, with that size."""
    if du_counts_directories():
        return []
    command: list[str | bytes] = [
        "find",
        *roots,
        "!",
        "-type",
        "f",
        "!",
        "-type",
        "l",
        "-printf",
        "%s %p\\0",
    ]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    rows = (row.partition(b" ") for row in found.split(b"\0")[:-1])
    return [(path, int(size)) for size, _, path in rows]
