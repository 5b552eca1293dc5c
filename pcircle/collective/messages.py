"""What the ranks of a collective operation say to each other.

An operation is named by its requester and a number of its own. Requests are bytes that only the
store understands; so are values, what it answers to a question.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Op: TypeAlias = tuple[int, int]
"""An operation: its requester, and his number of it."""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """What is asked for.

    Operations with the same `key` are done one after the other, as its `owner`, a rank, takes them.
    `members` are the ranks that do it, the owner among them if it is to do a part. One that only
    `asks` changes nothing. With `waits` the answer comes when all show what was done, else when it
    is decided.
    """

    key: bytes
    owner: int
    members: tuple[int, ...]
    what: bytes
    asks: bool = False
    waits: bool = True


class Said(msgspec.Struct, frozen=True, array_like=True):
    """A member's answer: its value, or why it refuses."""

    rank: int
    value: bytes = b""
    refusal: str = ""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """The requester to the owner: do this."""

    op: Op
    request: Request


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Get ready, and have the `rest` get ready.

    All operations of the coordinator before his number `settled` are over.
    """

    op: Op
    coordinator: int
    serial: int
    settled: int
    request: Request
    rest: tuple[int, ...]


class Votes(msgspec.Struct, frozen=True, array_like=True, tag="votes"):
    """Of a member and its rest: whether all are ready."""

    op: Op
    said: tuple[Said, ...]


class Decide(msgspec.Struct, frozen=True, array_like=True, tag="decide"):
    """Show what was made ready, or undo it; have the `rest` do so."""

    op: Op
    coordinator: int
    serial: int
    commit: bool
    rest: tuple[int, ...]


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Of a member and its rest: who could not do what was decided, and why."""

    op: Op
    said: tuple[Said, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """What became of an operation: nothing, or all of it.

    `decided` is None where that is in doubt until the decision's record can be read. `said` has the
    values of those who were asked, the refusals, and who is lost or late.
    """

    op: Op
    decided: bool | None
    said: tuple[Said, ...] = ()


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """The requester has its answer: it will not look for the decision any more."""

    op: Op


Message: TypeAlias = Ask | Prepare | Votes | Decide | Done | Answer | Heard
