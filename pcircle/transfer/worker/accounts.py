"""Entries that could not be copied: counted, and told as data."""

from __future__ import annotations

import os
from typing import Any

from pcircle.fs.trouble import kind_of, told, tried
from pcircle.runtime import Context
from pcircle.tool.failures import Accounts, Failure
from pcircle.transfer.acting import Acting
from pcircle.transfer.counters import Counters
from pcircle.transfer.plan import DIRECTORY, Plan


class CopyAccounts(Accounts):
    """One worker thread's."""

    def __init__(self, plan: Plan, counters: Counters, acting: Acting | None) -> None:
        super().__init__(counters)
        self._plan = plan
        self._acting = acting

    def tell(self, failure: Failure, context: Context[Any]) -> None:
        """See `Accounts`."""
        if self._acting is not None:
            self._acting.failed(failure)
        super().tell(failure, context)

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        """See `Accounts`."""
        base = self._plan.roots[root]
        entry = path if base.kind == DIRECTORY else b""
        shown = os.path.join(base.source_shown, entry) if entry else base.source_shown
        doing = doing or tried(error, "copy")
        return Failure(shown, doing, *told(error), root, entry, kind_of(error))
