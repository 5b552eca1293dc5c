"""A failed entry: what every tool tells of one, to the user, to the error log and to rank 0."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from pcircle.fs.trouble import kind_of, told
from pcircle.runtime import Context
from pcircle.ui.errorlog import encode
from pcircle.ui.names import show
from pcircle.ui.report import FailedEntry, error_name
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.fs.data import Recalls


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """An entry of which the work failed: what was tried, on which path, and why.

    `path` is as the user knows it, `entry` the path below root number `root`. Where the
    system has no `errno` for it, there is a `kind` of `pcircle.fs.trouble`.
    """

    path: bytes
    doing: str
    errno: int | None
    reason: str
    root: int
    entry: bytes
    kind: str = ""

    def said(self, tool: str) -> str:
        """The failure in one line, as the tool says it."""
        return f"{tool}: cannot {self.doing} '{show(self.path)}': {self.reason}"

    def reported(self) -> FailedEntry:
        """The failure as a report has it."""
        error = error_name(self.errno, self.kind)
        return FailedEntry(show(self.path), self.doing, self.errno, self.reason, error)


def failure_of(root: Root, number: int, path: bytes, doing: str, error: OSError) -> Failure:
    """The failure of the entry `path` below a root, which has this number."""
    entry = b"" if root.name else path
    shown = os.path.join(root.shown, entry) if entry else root.shown
    return Failure(shown, doing, *told(error), number, entry, kind_of(error))


class Recalled(msgspec.Struct, frozen=True, array_like=True, tag="recalled"):
    """A file that is offline, and about to be read."""

    path: bytes


def tell_recalls(
    recalls: Recalls, shown: Callable[[int, bytes], bytes], context: Context[Any]
) -> None:
    """Have the first file that is recalled told, by the item at hand; `shown` makes its path."""
    recalls.tell = lambda root, path: context.note([Recalled(shown(root, path))])


def shown_below(root: Root, path: bytes) -> bytes:
    """The path of an entry below a root, or of the root that is a file, as the user knows it."""
    return root.shown if root.name else os.path.join(root.shown, path)


class Failing(Protocol):
    """The counters that a failure is counted in."""

    failed: int
    sized: int


class Accounts(ABC):
    """Entries that fail, on one worker thread: counted, and told as data."""

    def __init__(self, counters: Failing) -> None:
        self._failing = counters

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
        """Account for an entry that has failed; `sized` if it was counted as such.

        `doing` None is what the error says.
        """
        self._failing.failed += 1
        if not sized:
            self._failing.sized += 1
        self.tell(self.failure(root, path, doing, error), context)

    def tell(self, failure: Failure, context: Context[Any]) -> None:
        """Have a failure told that is counted already."""
        context.note([failure])

    @abstractmethod
    def failure(self, root: int, path: bytes, doing: str | None, error: OSError) -> Failure:
        """An entry's failure, as data."""


class LogLine(msgspec.Struct, frozen=True):
    """A failed entry in the error log.

    `path` is for people, and so is `error`: the name of the system's `errno`, or of a kind of
    failure that the system has no number for. `entry`, below operand number `root`, is
    percent-encoded; it is empty for the operand itself.
    """

    path: str
    doing: str
    errno: int | None
    error: str
    reason: str
    root: int
    entry: str


def log_line(failure: Failure) -> LogLine:
    """The line of a failed entry, for the error log."""
    return LogLine(
        path=show(failure.path),
        doing=failure.doing,
        errno=failure.errno,
        error=error_name(failure.errno, failure.kind),
        reason=failure.reason,
        root=failure.root,
        entry=encode(failure.entry),
    )


def line_of(notice: object) -> bytes:
    """What the error log has of a notice, of tools that read only: a line if it is a failure."""
    if not isinstance(notice, Failure):
        return b""
    return msgspec.json.encode(log_line(notice)) + b"\n"
