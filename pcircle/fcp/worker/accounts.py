"""Entries that could not be copied: counted, and told as data."""

from __future__ import annotations

import os
from typing import Any

from pcircle.fcp.acting import Acting
from pcircle.fcp.counters import Counters
from pcircle.fcp.plan import DIRECTORY, Plan
from pcircle.fs.trouble import kind_of, told, tried
from pcircle.runtime import Context
from pcircle.tool.failures import Failure


class Accounts:
    """One worker thread's."""

    def __init__(self, plan: Plan, counters: Counters, acting: Acting | None) -> None:
        self._plan = plan
        self._counters = counters
        self._acting = acting

    def fail(
        self,
        root: int,
        path: bytes,
        doing: str | None,
        error: OSError,
        context: Context[Any],
        *,
        sized: bool = False,
    ) -> None:
        """Account for an entry that could not be copied; `sized` if it was counted as such.

        `doing` None is what the error says.
        """
        self._counters.failed += 1
        if not sized:
            self._counters.sized += 1
        self.tell(self.failure(root, path, doing, error), context)

    def tell(self, failure: Failure, context: Context[Any]) -> None:
        """Have a failure told that is counted already."""
        if self._acting is not None:
            self._acting.failed(failure)
        context.note([failure])

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        """An entry's failure, as data."""
        base = self._plan.roots[root]
        entry = path if base.kind == DIRECTORY else b""
        shown = os.path.join(base.source_shown, entry) if entry else base.source_shown
        doing = doing or tried(error, "copy")
        return Failure(shown, doing, *told(error), root, entry, kind_of(error))
