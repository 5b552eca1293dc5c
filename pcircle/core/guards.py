"""What must hold inside the program, asked in a way that `python -O` does not take out.

`assert` goes away there, and with it whatever it guarded. Each of these raises `Inconsistent` if it
does not hold, which ends a job as a defect, with a report.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

__all__ = ["Inconsistent", "require", "require_that", "require_type"]


class Inconsistent(Exception):
    """The program contradicts itself."""


def require_that(holds: bool, what: str) -> None:
    """Go on only if something holds; `what` says what is wrong if it does not."""
    if not holds:
        raise Inconsistent(what)


def require(value: T | None) -> T:
    """A value that is there wherever this is asked."""
    if value is None:
        raise Inconsistent("a value is missing")
    return value


def require_type(kind: type[T], value: Any) -> T:
    """A value, which is of this kind wherever this is asked."""
    if not isinstance(value, kind):
        raise Inconsistent(f"a {type(value).__name__} is where a {kind.__name__} should be")
    return value
