"""FIFOs, sockets and devices that are not copied (`pcircle.ops.copy.entry.special` copies them).

Without -a they are left out of trees, as in other tools, and reported once for each kind; a SRC of
this kind is a failure.
"""

from __future__ import annotations

import os

from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import SPECIAL, Changed, Trouble, special_kind
from pcircle.ops.copy.tree.counters import Counters
from pcircle.ops.copy.tree.items import Item, Skipped
from pcircle.ops.copy.tree.plan import Plan
from pcircle.runtime import Context


class Skipper:
    """Leaves out special files, counts them, and reports the first of each kind."""

    def __init__(self, plan: Plan, counters: Counters) -> None:
        self._plan = plan
        self._counters = counters
        self._told: set[tuple[int, str]] = set()

    def skip(
        self, root: int, above: bytes, name: bytes, source_fd: int, context: Context[Item]
    ) -> int:
        """Leave out a special file; return its mode. OSError if it has changed its kind."""
        status = os.stat(name, dir_fd=source_fd, follow_symlinks=self._plan.follow)
        kind = special_kind(status.st_mode)
        if not kind:
            raise Changed("it is no longer a special file")
        self._counters.special_skipped += 1
        self._counters.sized += 1
        # By root: a signature has to know which one lacks something.
        if (root, kind) not in self._told:
            self._told.add((root, kind))
            path = os.path.join(self._plan.roots[root].source_shown, join_path(above, name))
            context.note([Skipped(path, kind, root)])
        return status.st_mode


def not_copied(source_fd: int, name: bytes) -> OSError:
    """Return why a special file as SRC is not copied. OSError if it does not exist."""
    status = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
    what = special_kind(status.st_mode)
    if not what:
        return Changed("it is no longer a special file")
    return Trouble(SPECIAL, f"it is a {what}: add -a to copy it")
