"""The state that a collective operation changes, and the record of its decision.

A `Store` is one rank's part of the shared state. It makes each change in two steps: a prepared
change survives the end of the process, but is not visible and can be undone.

A decision is a file that is created atomically with its content: the first rank to create it has
decided. The coordinator creates it when all members are ready. If the coordinator is lost, members
that are waiting for the decision record an undo themselves. If a record exists already, they follow
that instead. So, as long as ranks can reach the directory, none waits for a dead rank, and no two
act differently. A rank that cannot reach it remains in doubt and makes nothing visible. It checks
again after a while, and when it is next started.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from pcircle.collective.messages import Op
from pcircle.core.writing import write_all

_COMMIT, _UNDO = b"commit\n", b"undo\n"


class Store(Protocol):
    """One rank's part of the state. Raises `Refused` or OSError to reject an operation."""

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Prepare a change that survives this process; return a value for the requester."""
        ...

    def look(self, what: bytes) -> bytes:
        """Answer a query, which changes nothing."""
        ...

    def commit(self, op: Op) -> None:
        """Make a prepared change visible, unless it is visible already."""

    def undo(self, op: Op) -> None:
        """Discard a prepared change, if it exists."""

    def in_doubt(self) -> Iterable[Op]:
        """Return the operations that are prepared, but neither committed nor undone."""
        ...


class Refused(Exception):
    """A store refuses an operation; the text is the reason."""


class Records(Protocol):
    """Persistent storage for decisions."""

    def settle(self, op: Op, commit: bool) -> bool | None:
        """Decide an undecided operation; return the decision, or None if it cannot be read."""

    def forget(self, op: Op) -> None:
        """Remove a decision that all members have followed."""


class Directory:
    """Decisions as files in a directory that all members can reach."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def _name(self, op: Op) -> bytes:
        return os.path.join(self._path, b"%d-%d" % op)

    def settle(self, op: Op, commit: bool) -> bool | None:
        """Decide like `Records.settle`; the decision is on disk when this returns."""
        name = self._name(op)
        stood = commits = False
        with suppress(OSError):  # if writing fails, another rank's record may exist
            commits = self._decide(name, _COMMIT if commit else _UNDO) and commit
            stood = True
        try:
            with open(name, "rb") as file:
                decided = file.read() == _COMMIT
            self._sync()  # even if another rank wrote it
        except FileNotFoundError:
            # Another rank has removed the record. Unless this rank committed, it was an undo.
            return False if stood and not commits else None
        except OSError:
            return None
        return decided

    def _decide(self, name: bytes, decision: bytes) -> bool:
        """Create the record; return False if it exists already. Raises OSError."""
        # A unique name: writing into a shared temporary file could change the record.
        temporary = b"%b.%b" % (name, os.urandom(8).hex().encode())
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                write_all(fd, decision)
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                os.link(temporary, name)
            except FileExistsError:
                return False
            return True
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def _sync(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def forget(self, op: Op) -> None:
        with suppress(OSError):  # a record that remains is valid
            os.unlink(self._name(op))
