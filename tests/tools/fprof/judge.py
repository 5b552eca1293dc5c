"""The output of find and du about a tree, as a reference for fprof."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import Any, NamedTuple

from tests.disk_usage import sizes_du_leaves_out

KINDS = {"f": "files", "d": "directories", "l": "links"}


class Said(NamedTuple):
    """Entries by type, and apparent and allocated bytes; hard links count once in bytes."""

    entries: Counter[str]
    apparent_bytes: int
    allocated_bytes: int


def _lines(*command: str | bytes) -> list[bytes]:
    return subprocess.run(command, check=True, capture_output=True).stdout.splitlines()


def judged(*roots: bytes) -> Said:
    """Return the totals of find and du for several trees."""
    kinds: Counter[str] = Counter()
    for root in roots:
        letters = _lines("find", root, "-printf", "%y\n")
        kinds.update(KINDS.get(letter.decode(), "special") for letter in letters)
    apparent = _lines("du", "-scb", *roots)[-1]
    allocated = _lines("du", "-sc", "-B1", *roots)[-1]
    size = int(apparent.split()[0]) + sum(size for _, size in sizes_du_leaves_out(*roots))
    return Said(kinds, size, int(allocated.split()[0]))


def document_totals(document: dict[str, Any]) -> Said:
    """Return the same totals in the format of fprof's document."""
    counts = document["counts"]
    kinds = Counter({k: counts[k]["number"] for k in ("files", "directories", "links", "special")})
    total = counts["total"]
    return Said(+kinds, total["bytes"], total["allocated_bytes"])
