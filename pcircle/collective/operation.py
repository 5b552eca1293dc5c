"""A collective operation: its messages, the state that it changes, and the record of its decision.

An operation is identified by its requester and a number that the requester chose. Requests and
values are bytes that only the store interprets.

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
from typing import Protocol, TypeAlias

import msgspec

from pcircle.core.writing import write_all

Op: TypeAlias = tuple[int, int]
"""An operation, identified by its requester and the requester's number."""
_COMMIT, _UNDO = b"commit\n", b"undo\n"


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A requested operation.

    Operations with the same `key` are performed one at a time, in the order in which their `owner`,
    a rank, receives them. `members` lists the ranks that perform the operation, including the owner
    if it takes part. If `asks` is set, the operation is a query, which changes nothing. If `waits`
    is set, the answer is sent when all members have made the change visible; otherwise it is sent
    as soon as the operation is decided.
    """

    key: bytes
    owner: int
    members: tuple[int, ...]
    what: bytes
    asks: bool = False
    waits: bool = True


class Said(msgspec.Struct, frozen=True, array_like=True):
    """A member's response: a value, or the reason for its refusal.

    `errno` is the error's number if the store raised OSError.
    """

    rank: int
    value: bytes = b""
    refusal: str = ""
    errno: int = 0


class OperationRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Sent by the requester to the owner: perform this operation."""

    op: Op
    request: Request


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Prepare the operation, and forward this message to the ranks in `forward_to`.

    All operations of the coordinator with a serial number below `settled` have ended.
    """

    op: Op
    coordinator: int
    serial: int
    settled: int
    request: Request
    forward_to: tuple[int, ...]


class Votes(msgspec.Struct, frozen=True, array_like=True, tag="votes"):
    """Responses of a member and its subtree to `Prepare`."""

    op: Op
    said: tuple[Said, ...]


class Decide(msgspec.Struct, frozen=True, array_like=True, tag="decide"):
    """Commit or undo the prepared operation; forward this message to the ranks in `forward_to`."""

    op: Op
    coordinator: int
    serial: int
    commit: bool
    forward_to: tuple[int, ...]


class DecisionReport(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Sent when a member and its subtree have obeyed `Decide`; lists the failures."""

    op: Op
    said: tuple[Said, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The outcome of an operation: it is performed completely or not at all.

    `decided` is None if the outcome is in doubt until the record of the decision can be read.
    `said` contains the values of the members, their refusals, and the ranks that are lost or late.
    """

    op: Op
    decided: bool | None
    said: tuple[Said, ...] = ()


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """The requester has its answer and will no longer look for the decision record."""

    op: Op


Message: TypeAlias = OperationRequest | Prepare | Votes | Decide | DecisionReport | Answer | Heard


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
