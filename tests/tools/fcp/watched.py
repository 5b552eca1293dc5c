"""A tool, with an observer that checks the target before each of the tool's calls.

`python -m tests.tools.fcp.watched TOOL TARGET REPORT OPTION... SRC DST`, with -j 1. Python
announces the calls that change a file's owner, mode, lists or name before it makes them (audit
events), so that states between any two of them are observed, however short. REPORT gets the states,
by inode.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from pcircle.tools.fcp.cli import main as fcp
from pcircle.tools.fmirror.cli import main as fmirror
from tests.tools.fcp.access import Access, access_of

EVENTS = {
    "open",
    *(f"os.{name}" for name in ("chmod", "chown", "setxattr", "removexattr", "utime")),
    *(f"os.{name}" for name in ("rename", "link", "mkdir", "mkfifo", "truncate", "listxattr")),
}


class Watcher:
    """The observed states: inode, size, and access rights."""

    def __init__(self, target: bytes) -> None:
        self._target = target
        self._here = threading.local()
        self.states: set[tuple[int, int, Access]] = set()

    def look(self, event: str, _arguments: object) -> None:
        """Record the states before a call."""
        if event not in EVENTS or getattr(self._here, "busy", False):
            return
        self._here.busy = True
        try:
            self._look(self._target)
        except OSError:
            pass  # another thread has just renamed or removed something
        finally:
            self._here.busy = False

    def _look(self, directory: bytes) -> None:
        for entry in os.scandir(directory):
            path = os.fsencode(entry.path)
            status, access = entry.stat(follow_symlinks=False), access_of(path)
            # Another thread may change the mode between the reading of the list and of the mode.
            while (again := access_of(path)) != access:
                access = again
            size = -1 if entry.is_dir(follow_symlinks=False) else status.st_size
            self.states.add((status.st_ino, size, access))
            if size < 0:
                self._look(path)


def run() -> int:
    """Run the tool with the observer."""
    tool = {"fcp": fcp, "fmirror": fmirror}[sys.argv[1]]
    target, report = map(os.fsencode, sys.argv[2:4])
    sys.argv[1:4] = []
    watcher = Watcher(target)
    sys.addaudithook(watcher.look)
    try:
        return tool()
    finally:
        states = list(watcher.states)
        with open(report, "w") as stream:
            json.dump(states, stream)


if __name__ == "__main__":
    sys.exit(run())
