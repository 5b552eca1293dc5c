"""Lists and the like that options name, opened for reading."""

from __future__ import annotations

import os
from typing import BinaryIO

from pcircle.trusted import reading


def open_input(name: str | bytes, *, dash: bool = False) -> BinaryIO:
    """A file for reading; with `dash`, `-` is standard input. Untrusted, OSError."""
    path = os.fsencode(name)
    if dash and path == b"-":
        return open(0, "rb", closefd=False)
    return open(reading(path), "rb")
