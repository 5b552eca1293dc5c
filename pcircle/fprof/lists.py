"""`--files-from`: what of a directory is to be profiled, by name.

Paths are below the one PATH. Those in one directory that stand together in the list become one
item, so a list as `find` writes it is looked up as fast as a walk. Listed directories count by
themselves; what is in them does not, unless it is listed. The list is rank 0's alone, which has it
in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from pcircle.errors import UsageError
from pcircle.ui.names import show

MOST_NAMES = 1024  # of an item


def read(path: str, *, null: bool) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """Directories, and names in them, of a list's paths: UsageError if it can't be read.

    `null`: paths end with NUL and not with a line's end. `-` is standard input.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        shown = show(os.fsencode(path))
        raise UsageError(f"--files-from: cannot read '{shown}': {error.strerror}") from None
    return list(_grouped(data.split(b"\0" if null else b"\n")))


def _grouped(paths: list[bytes]) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
    last: bytes | None = None
    names: list[bytes] = []
    for path in paths:
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        if b".." in parts:
            raise UsageError(f"--files-from: '{show(path)}' leads out of what is profiled")
        if not parts:
            continue
        directory = b"/".join(parts[:-1])
        if names and (directory != last or len(names) == MOST_NAMES):
            assert last is not None
            yield last, tuple(names)
            names = []
        last = directory
        names.append(parts[-1])
    if names and last is not None:
        yield last, tuple(names)
