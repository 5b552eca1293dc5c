"""What find and du say of a tree, to judge fprof by."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import Any, NamedTuple

from tests.disk_usage import sizes_du_leaves_out

KINDS = {"f": "files", "d": "directories", "l": "links"}


class Said(NamedTuple):
    """Entries by kind, their bytes, and what these take; hard links count once in bytes."""

    entries: Counter[str]
    apparent_bytes: int
    allocated_bytes: int


def _lines(*command: str | bytes) -> list[bytes]:
    return subprocess.run(command, check=True, capture_output=True).stdout.splitlines()


def judged(*roots: bytes) -> Said:
    """What find and du say of trees together."""
    kinds: Counter[str] = Counter()
    for root in roots:
        letters = _lines("find", root, "-printf", "%y\n")
        kinds.update(KINDS.get(letter.decode(), "special") for letter in letters)
    apparent = _lines("du", "-scb", *roots)[-1]
    allocated = _lines("du", "-sc", "-B1", *roots)[-1]
    size = int(apparent.split()[0]) + sum(size for _, size in sizes_du_leaves_out(*roots))
    return Said(kinds, size, int(allocated.split()[0]))


def told(document: dict[str, Any]) -> Said:
    """The same, as fprof's document has it."""
    counts = document["counts"]
    kinds = Counter({k: counts[k]["number"] for k in ("files", "directories", "links", "special")})
    total = counts["total"]
    return Said(+kinds, total["bytes"], total["allocated_bytes"])
