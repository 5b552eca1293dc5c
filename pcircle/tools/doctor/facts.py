"""Facts: named values, or the reasons why they are unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str | None


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value, or None with the reason in `why` if it is unknown.

    For a known value `why` may have further details, such as the error that a trial ended with.
    """

    value: Value
    why: str = ""

    def __post_init__(self) -> None:
        if self.value is None and not self.why:
            raise ValueError("a fact is unknown for a reason")


Facts: TypeAlias = dict[str, Fact]
"""Facts by name. The name ends with the unit, if the value has one."""


def asked(ask: Callable[[], Value]) -> Fact:
    """Return the result of a call as a fact, or the reason if the call raises an exception."""
    try:
        return Fact(ask())
    except Exception as error:  # of any kind: the report continues
        return Fact(None, reason(error))


def tried(trial: Callable[[], object]) -> Fact:
    """Return whether a trial succeeds, with the reason if it raises OSError."""
    try:
        trial()
    except OSError as error:
        return Fact(False, reason(error))
    return Fact(True)


def reason(error: Exception) -> str:
    """Return a short description of an error."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
