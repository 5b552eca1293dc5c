"""What was found out, by name; or why it was not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str | None


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value; None if it is not known, and `why` then says why not.

    Of what is not there `why` may say how that showed.
    """

    value: Value
    why: str = ""

    def __post_init__(self) -> None:
        if self.value is None and not self.why:
            raise ValueError("a fact is unknown for a reason")


Facts: TypeAlias = dict[str, Fact]
"""By name; a name ends with the unit, if there is one."""


def asked(ask: Callable[[], Value]) -> Fact:
    """What a call returns. What it raises is the reason why nothing is known."""
    try:
        return Fact(ask())
    except Exception as error:  # of any kind: a report goes on
        return Fact(None, reason(error))


def tried(trial: Callable[[], object]) -> Fact:
    """Whether a trial succeeds; of a refusal the reason."""
    try:
        trial()
    except OSError as error:
        return Fact(False, reason(error))
    return Fact(True)


def reason(error: Exception) -> str:
    """An error in a few words."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
