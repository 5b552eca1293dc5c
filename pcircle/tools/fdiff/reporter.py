"""Reports compared entries, and evaluates the expressions of dcmp that select entries for a list.

To report an entry means to print its line, log its action, count it, and add it to lists. Each
thread reports its own results. Rank 0 also reports the results that are known only at the end.

An expression is the EXPR of `-o EXPR:FILE`. Conditions `FIELD=STATE` are joined by `@` (and) and
`,` (or); `@` has the higher precedence. An expression is parsed into a tuple of alternatives, each
of which is a tuple of conditions. An entry that exists on one side only can match no conditions
other than those on EXIST. If the types of a pair differ, no other field is compared, and all fields
count as different.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from typing import ClassVar, Final

from pcircle.core.encoding import show
from pcircle.core.errors import IntegrityError, UsageError
from pcircle.fs.directories import Directories
from pcircle.fs.stats import Stats
from pcircle.jobs.action_log import NOTICE_LINES, ActionLog
from pcircle.jobs.failures import NoticeSink, failure_of
from pcircle.jobs.tree_task import TreeTask
from pcircle.ops.compare.fields import (
    ACL,
    ATIME,
    CONTENT,
    CTIME,
    GROUP,
    KIND,
    LINKS,
    MODE,
    MTIME,
    NOTHING,
    OWNER,
    RDEV,
    SIZE,
    TARGET,
    field_names,
    itemize,
    itemize_one_sided,
    kind_letter,
)
from pcircle.ops.compare.statuses import error_side
from pcircle.tools.fdiff.plan import DIFFERENT, ONLY_A, DiffCounters, DiffPlan, MatchedPaths

_KINDS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
}
# The action that would make B like A is the first in this table for which a field differs.
_ACTIONS = (
    (KIND | TARGET | RDEV, "replace"),
    (SIZE | CONTENT, "update"),
    (LINKS, "link"),
    (OWNER | GROUP, "chown"),
    (MODE | ACL, "chmod"),
)
_MOVED = "+Mf++++++++"


class FirstDifferenceError(IntegrityError):
    """Raised to end the comparison at the first difference if `--first` is given."""


class DiffReporter:
    """Reports compared entries.

    Each thread has its own instance. `first` is the action log of the rank's first thread.
    """

    def __init__(
        self, plan: DiffPlan, counters: DiffCounters, rank: int, first: ActionLog | None = None
    ) -> None:
        self._plan = plan
        self._counters = counters
        self.actions: ActionLog = ActionLog("fdiff", plan.acts, rank, first, planned=True)
        self._lists: dict[int, list[bytes]] = {}
        self._found = False
        self.matches_equal: bool = any(matches(expression, BOTH, 0) for expression in plan.matches)

    def pair(self, path: bytes, mode: int, size: int, different: int) -> None:
        """Report a pair with A's mode and size, or only add it to lists if it is equal."""
        self._match(BOTH, path, different)
        if not different:
            return
        self._found = True
        counters = self._counters
        counters.different += 1
        for bit, name in enumerate(DIFFERENT):
            if different >> bit & 1:
                setattr(counters, name, getattr(counters, name) + 1)
        action = next((word for fields, word in _ACTIONS if different & fields), "touch")
        if action == "touch" and different & MTIME and stat.S_ISREG(mode):
            action = "touch" if self._plan.reads else "update"
        self._tell(action, path, mode, size, field_names(different), different)

    def alone(
        self, side: int, path: bytes, mode: int, size: int = 0, *, reported: bool = True
    ) -> None:
        """Count an entry that exists on one side only, and report it if `reported` is set."""
        self._found = True
        self._match((ONLY_SRC, ONLY_DEST)[side], path, 0)
        if side:
            self._counters.only_b += 1
        else:
            self._counters.only_a += 1
        if reported:
            action, why = ("copy", "delete")[side], ("only_a", "only_b")[side]
            self._tell(action, path, mode, size, (why,), side=side)

    def moved(self, path: bytes, other: bytes, mode: int, size: int) -> None:
        """Report a file of A that exists in B under another path."""
        self._counters.moved += 1
        labels = self._plan.labels
        label = f"{_MOVED} " if labels is None else labels.moved
        line = f"{label}{show(path)} => {show(other)}\n"
        self._act("move", path, mode, size, line, ("moved", f"from {show(other)}"))

    def _tell(
        self,
        action: str,
        path: bytes,
        mode: int,
        size: int,
        why: tuple[str, ...],
        different: int = NOTHING,
        *,
        side: int | None = None,
    ) -> None:
        slash = "/" * (kind_letter(mode) == "d")
        name = f"{show(path) or '.' * bool(slash) or self._plan_name()}{slash}"
        labels = self._plan.labels
        if labels is None:
            one_sided = side is not None and itemize_one_sided(side, mode)
            line = f"{one_sided or itemize(different, mode)} {name}\n"
        elif side is None:
            line = f"{labels.differs}{name}: {', '.join(why)}\n"
        else:
            line = f"{labels.only_b if side else labels.only_a}{name}\n"
        self._act(action, path, mode, size, line, why)

    def _plan_name(self) -> str:
        """Return the name of a root that is a file."""
        return show(self._plan.roots[0].shown)

    def _act(
        self, action: str, path: bytes, mode: int, size: int, line: str, why: tuple[str, ...]
    ) -> None:
        said = b"" if self._plan.quiet else line.encode()
        kind = _KINDS.get(stat.S_IFMT(mode), "")
        self.actions.done(action, 0, path, kind, size, said=said, why=why)

    def _match(self, exist: str, path: bytes, different: int) -> None:
        for number, expression in enumerate(self._plan.matches):
            if matches(expression, exist, different):
                self._lists.setdefault(number, []).append(path or b".")

    def _matched(self, number: int, paths: Sequence[bytes]) -> MatchedPaths:
        end = self._plan.end
        listed = [path + end for path in paths if end not in path]
        return MatchedPaths(number, b"".join(listed), len(paths) - len(listed))

    def tell(self, context: NoticeSink) -> None:
        """Send all reports to rank 0 at the end of an item.

        Raise FirstDifferenceError if a difference was found and one is enough.
        """
        self.actions.tell(context)
        lists, self._lists = self._lists, {}
        for number, paths in lists.items():
            for at in range(0, len(paths), NOTICE_LINES):
                context.note([self._matched(number, paths[at : at + NOTICE_LINES])])
        if self._found and self._plan.first:
            raise FirstDifferenceError("stopped at the first difference, as requested")


# ---- expressions ---------------------------------------------------------------------------------

Expression = tuple[tuple[tuple[str, str], ...], ...]

BOTH, ONLY_SRC, ONLY_DEST = "COMMON", "ONLY_SRC", "ONLY_DEST"
FIELDS: Final = {
    "TYPE": KIND,
    "SIZE": SIZE,
    "UID": OWNER,
    "GID": GROUP,
    "ATIME": ATIME,
    "MTIME": MTIME,
    "CTIME": CTIME,
    "PERM": MODE,
    "ACL": ACL,
    "CONTENT": CONTENT,
}


def parse(text: str) -> Expression:
    """Parse an expression. Raise UsageError if it is invalid."""
    return tuple(tuple(_condition(word) for word in part.split("@")) for part in text.split(","))


def _condition(word: str) -> tuple[str, str]:
    field, _, state = word.partition("=")
    states = ["COMMON", "DIFFER"] + ["ONLY_SRC", "ONLY_DEST"] * (field == "EXIST")
    if field != "EXIST" and field not in FIELDS:
        known = ", ".join(("EXIST", *FIELDS))
        raise UsageError(f"--output: unknown field '{field}'; choose from {known}")
    if state not in states:
        raise UsageError(
            f"--output: unknown state '{state}' of {field}; choose from {', '.join(states)}"
        )
    return field, state


def fields_in(expressions: Sequence[Expression]) -> int:
    """Return the fields to which the expressions refer."""
    fields = NOTHING
    for expression in expressions:
        for part in expression:
            for field, _ in part:
                fields |= FIELDS.get(field, NOTHING)
    return fields


def matches(expression: Expression, exist: str, different: int) -> bool:
    """Return whether an expression matches an entry.

    `exist` is `BOTH`, `ONLY_SRC` or `ONLY_DEST`, and `different` contains the differences.
    """
    return any(
        all(_holds(*condition, exist, different) for condition in part) for part in expression
    )


def _holds(field: str, state: str, exist: str, different: int) -> bool:
    if field == "EXIST":
        return state == exist or (state == "DIFFER" and exist != BOTH)
    differs = bool(different & (FIELDS[field] | KIND))
    return exist == BOTH and differs == (state == "DIFFER")


class ComparisonTask(TreeTask):
    """The state of one rank or thread in a comparison, excluding the walk.

    `stats` are the status tables of both sides, and `targets` are the open directories of B.
    """

    counters_type: ClassVar[type[DiffCounters]] = DiffCounters
    plan: DiffPlan
    first: ComparisonTask | None
    stats: tuple[Stats, Stats]
    reporter: DiffReporter
    targets: Directories

    def fail_side(
        self, side: int, path: bytes, doing: str, error: OSError, context: NoticeSink
    ) -> None:
        """Count and report a failure on one side."""
        self.counters.failed += 1
        shown = self.plan.roots[ONLY_A + side]
        context.note([failure_of(shown, side, path, doing, error)])

    def fail(self, path: bytes, doing: str, error: OSError, context: NoticeSink) -> None:
        """Count and report a failure on the side that the error identifies."""
        self.fail_side(error_side(error), path, doing, error, context)
