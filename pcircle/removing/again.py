"""A removal that is begun again where ranks were lost, and counts what they had removed.

What a rank that was killed has removed is known from what its threads had written down before, in
memory that all ranks share (`pcircle.removing.intents`). That gives numbers, and no names.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.errors import StoppedEarly
from pcircle.guards import require
from pcircle.removing.plan import RemovalPlan
from pcircle.tool.changing import ChangeProgram
from pcircle.walk.attributes import ANY

if TYPE_CHECKING:
    from pcircle.removing.intents import Intents

_NOT_AGAIN = ("bytes", "trash", "empty_trash", "files_from", "apply", "empty_dirs", "keep_times")
_UNKNOWN = "a rank was lost, and what it has removed cannot be counted; run it again"


class OutlivingRemoval(ChangeProgram):
    """A program that removes, of which what counts is how much went."""

    plan_type = RemovalPlan

    def __init__(self, typed: argparse.Namespace, paths: Sequence[bytes], **more: Any) -> None:
        super().__init__(typed, paths, **more)
        self._intents: Intents | None = None
        self._former: Intents | None = None  # of the run that lost ranks
        self._before: Counter[str] = Counter()  # what has gone in runs that lost ranks

    def outlives(self) -> bool:
        """See `ToolProgram`: if what was done need but be counted, and not be known by name."""
        typed, plain = self.typed, self.options.wanted == ANY
        named = typed.verbose or typed.json_lines is not None or typed.list_out is not None
        given = [name for name in _NOT_AGAIN if getattr(typed, name)]
        return super().outlives() or (plain and not (named or given))

    def share(self, ranks: int) -> None:
        """See `ToolProgram`."""
        from pcircle.removing.intents import Intents

        self._former, self._intents = self._intents, Intents(ranks)

    def task(self, plan: bytes, rank: int, size: int) -> Any:
        """See `Program`."""
        task: Any = super().task(plan, rank, size)
        task.intents = self._intents if self.outlives() else None
        return task

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        """See `ToolProgram`."""
        decided = msgspec.msgpack.decode(super().prepare_again(plan, ranks), type=RemovalPlan)
        try:
            removed = require(self._former).removed(decided.roots, decided.directory)
        except OSError as error:
            raise StoppedEarly(f"{_UNKNOWN}: {error.strerror}") from error
        if removed is None:
            raise StoppedEarly(_UNKNOWN)
        self._before.update(removed)
        gone = [
            number
            for number, root in enumerate(decided.roots)
            if not os.path.lexists(
                os.path.join(decided.directory, root.holder, root.name or root.within)
            )
        ]
        return msgspec.msgpack.encode(msgspec.structs.replace(decided, gone=tuple(gone)))

    def with_former(self, total: Any) -> Any:
        """The counts of the last run, and with them what went in those that lost ranks."""
        for name, count in self._before.items():
            setattr(total, name, getattr(total, name) + count)
            total.found += count
        return total
