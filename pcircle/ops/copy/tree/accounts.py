"""Failed entries of a copy: counted and reported."""

from __future__ import annotations

from typing import Any

from pcircle.fs.entry_errors import kind_of, told, tried
from pcircle.jobs.failures import Accounts, Failure
from pcircle.ops.copy.tree.action_log import Acting
from pcircle.ops.copy.tree.counters import Counters
from pcircle.ops.copy.tree.plan import DIRECTORY, Plan
from pcircle.runtime import Context


class CopyAccounts(Accounts):
    """Counts and reports the failures of one worker thread."""

    def __init__(self, plan: Plan, counters: Counters, acting: Acting | None) -> None:
        super().__init__(counters)
        self._plan = plan
        self._acting = acting

    def tell(self, failure: Failure, context: Context[Any]) -> None:
        if self._acting is not None:
            self._acting.failed(failure)
        super().tell(failure, context)

    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        entry = path if self._plan.roots[root].kind == DIRECTORY else b""
        doing = doing or tried(error, "copy")
        shown = self._plan.shown(root, path)
        return Failure(shown, doing, *told(error), root, entry, kind_of(error))
