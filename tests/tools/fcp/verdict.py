"""Invariants after a copy with faults: nothing is lost, nothing falsely claimed.

Every entry of the source is equal in the copy, or it or a directory above it was reported as
failed; and a run that claims success has made a copy without any difference. Entries are identified
by their paths below the source; the source itself is the empty path.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from pcircle.jobs.failures import decode


def logged(path: bytes) -> list[dict[str, Any]]:
    """Return the lines of an error log."""
    with open(path, "rb") as stream:
        return [json.loads(line) for line in stream]


def named(log: bytes) -> set[bytes]:
    """Return the entries that an error log names."""
    return {decode(line["entry"]) for line in logged(log)}


def entries(root: bytes) -> list[bytes]:
    """Return all entries of a tree, parents first, the root with an empty name."""
    found = [b""]
    for directory, directories, files in os.walk(root):
        base = os.path.relpath(directory, root)
        for name in (*directories, *files):
            found.append(name if base == b"." else os.path.join(base, name))
    return found


def differing(source: bytes, target: bytes, *, preserved: bool) -> list[bytes]:
    """Return the entries of the source whose copies are missing or not the same."""
    return [
        entry
        for entry in entries(source)
        if not _same(os.path.join(source, entry), os.path.join(target, entry), preserved=preserved)
    ]


def _same(source: bytes, target: bytes, *, preserved: bool) -> bool:
    ours = os.lstat(source)
    try:
        theirs = os.lstat(target)
    except OSError:
        return False
    if stat.S_IFMT(ours.st_mode) != stat.S_IFMT(theirs.st_mode):
        return False
    if preserved and _kept(ours) != _kept(theirs):
        return False
    if stat.S_ISLNK(ours.st_mode):
        return os.readlink(source) == os.readlink(target)
    return not stat.S_ISREG(ours.st_mode) or _content(source) == _content(target)


def _kept(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


def _content(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def unexplained(differing: list[bytes], failed: set[bytes]) -> list[bytes]:
    """Return differing entries for which neither they nor an ancestor were reported as failed."""
    return [entry for entry in differing if not failed & set(_at_and_above(entry))]


def _at_and_above(entry: bytes) -> list[bytes]:
    parts = entry.split(b"/")
    return [b"", *(b"/".join(parts[:count]) for count in range(1, len(parts) + 1))]


def leftovers(target: bytes) -> list[bytes]:
    """Return temporary files that a run has left behind."""
    if not os.path.isdir(target):
        return []
    return [e for e in entries(target) if os.path.basename(e).startswith(b".fcp-")]
