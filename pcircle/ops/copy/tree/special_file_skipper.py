"""Special files that are not copied (`pcircle.ops.copy.entry.special_files` copies them).

Unless -a is given, FIFOs, sockets and devices in trees are skipped, as in other tools, and reported
once per kind. A SRC that is a special file is a failure.
"""

from __future__ import annotations

import os

from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import SPECIAL, Changed, EntryError, special_kind
from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.ops.copy.tree.items import CopyPlan, Item, SkippedSpecial
from pcircle.runtime import Context


class SpecialFileSkipper:
    """Counts skipped special files and reports the first one of each kind."""

    def __init__(self, plan: CopyPlan, counters: CopyCounters) -> None:
        self._plan = plan
        self._counters = counters
        self._reported: set[tuple[int, str]] = set()

    def skip(
        self, root: int, above: bytes, name: bytes, source_fd: int, context: Context[Item]
    ) -> int:
        """Skip a special file and return its mode. Raises OSError if its type has changed."""
        status = os.stat(name, dir_fd=source_fd, follow_symlinks=self._plan.follow)
        kind = special_kind(status.st_mode)
        if not kind:
            raise Changed("it is no longer a special file")
        self._counters.special_skipped += 1
        self._counters.sized += 1
        # Each root is reported separately, because a signature must know which one is incomplete.
        if (root, kind) not in self._reported:
            self._reported.add((root, kind))
            path = os.path.join(self._plan.roots[root].source_shown, join_path(above, name))
            context.note([SkippedSpecial(path, kind, root)])
        return status.st_mode


def not_copied(source_fd: int, name: bytes) -> OSError:
    """Return the error for a SRC that is a special file.

    Raises OSError if there is no such file.
    """
    status = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
    what = special_kind(status.st_mode)
    if not what:
        return Changed("it is no longer a special file")
    return EntryError(SPECIAL, f"it is a {what}: add -a to copy it")
