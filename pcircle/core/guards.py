"""Checks of internal invariants that `python -O` does not remove.

`assert` is removed there, and with it the protection that it gave. The functions here raise
`Inconsistent` if an invariant is violated, which ends the job as a defect, with a report.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

__all__ = ["Inconsistent", "require", "require_that", "require_type"]


class Inconsistent(Exception):
    """An internal invariant is violated."""


def require_that(holds: bool, what: str) -> None:
    """Raise Inconsistent with the message `what` unless `holds` is true."""
    if not holds:
        raise Inconsistent(what)


def require(value: T | None) -> T:
    """Return the value; raise Inconsistent if it is None."""
    if value is None:
        raise Inconsistent("a value is missing")
    return value


def require_type(kind: type[T], value: object) -> T:
    """Return the value; raise Inconsistent if it is not an instance of `kind`."""
    if not isinstance(value, kind):
        raise Inconsistent(f"a {type(value).__name__} is where a {kind.__name__} should be")
    return value
