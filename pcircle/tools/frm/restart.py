"""Restarts a removal after a rank was lost, with correct counts.

Each thread records its removals in shared memory in advance (`pcircle.ops.remove.removal_log`).
From these records, the counts of a killed rank can be recovered, but not the names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.change_program import ChangeProgram
from pcircle.core.errors import StoppedEarly, require_type
from pcircle.jobs.tree_task import TreeTask
from pcircle.ops.remove.plan import RemovalCounters, RemovalPlan
from pcircle.ops.remove.remover import RemoveTask
from pcircle.tools.frm.options import RemoveOptions

if TYPE_CHECKING:
    from pcircle.ops.remove.removal_log import RemovalLog

_UNKNOWN = "a rank was lost, and its removals cannot be counted; run the command again"


class RestartableRemoval(ChangeProgram):
    """The program of a removal that can be restarted if only the counts are required."""

    plan_type: ClassVar[type[RemovalPlan]] = RemovalPlan

    options: RemoveOptions

    def __init__(self, options: RemoveOptions, paths: Sequence[bytes], **more: Any) -> None:
        super().__init__(options, paths, **more)
        self._log: RemovalLog | None = None
        self._previous_log: RemovalLog | None = None  # the log of the last run that lost ranks
        self._previous_counts: Counter[str] = Counter()  # totals of all runs that lost ranks

    def can_lose_ranks(self) -> bool:
        """Return whether the job can restart. It cannot if names of removed entries are needed."""
        return super().can_lose_ranks() or self.options.is_restartable

    def share(self, ranks: int) -> None:
        from pcircle.ops.remove.removal_log import RemovalLog

        self._previous_log, self._log = self._log, RemovalLog(ranks)

    def task(self, plan: bytes, rank: int, size: int) -> TreeTask:
        task = require_type(RemoveTask, super().task(plan, rank, size))
        task.removal_log = self._log if self.can_lose_ranks() else None
        return task

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        decided = msgspec.msgpack.decode(super().prepare_again(plan, ranks), type=RemovalPlan)
        try:
            log = self._previous_log
            where = decided.roots, decided.directory
            removed = None if log is None else log.count_removed(*where)
        except OSError as error:
            raise StoppedEarly(f"{_UNKNOWN}: {error.strerror}") from error
        if removed is None:
            raise StoppedEarly(_UNKNOWN)
        self._previous_counts.update(removed)
        gone = [
            number
            for number, root in enumerate(decided.roots)
            if not os.path.lexists(
                os.path.join(decided.directory, root.holder, root.name or root.within)
            )
        ]
        return msgspec.msgpack.encode(msgspec.structs.replace(decided, gone=tuple(gone)))

    def with_former(self, total: RemovalCounters) -> RemovalCounters:
        """Add the counts of the runs that lost ranks to the counts of the last run."""
        for name, count in self._previous_counts.items():
            setattr(total, name, getattr(total, name) + count)
            total.found += count
        return total
