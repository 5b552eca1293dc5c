"""The messages of a collective operation.

An operation is identified by its requester and a number that the requester chose. Requests and
values are bytes that only the store interprets.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Op: TypeAlias = tuple[int, int]
"""An operation, identified by its requester and the requester's number."""


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
