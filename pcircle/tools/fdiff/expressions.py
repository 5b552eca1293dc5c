"""Expressions of dcmp, `-o EXPR:FILE`, which select the entries of a list.

Conditions `FIELD=STATE` are joined by `@` (and) and `,` (or); `@` binds closer. An expression is a
tuple of alternatives, each a tuple of conditions. An entry that only one side has matches only
conditions on EXIST. If types differ, no other field is compared, and all fields count as different.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pcircle.core.errors import UsageError
from pcircle.ops.compare.fields import (
    ACL,
    ATIME,
    CONTENT,
    CTIME,
    GROUP,
    KIND,
    MODE,
    MTIME,
    NOTHING,
    OWNER,
    SIZE,
)

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
    """Parse an expression. UsageError."""
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
    """Return the fields that expressions need."""
    fields = NOTHING
    for expression in expressions:
        for part in expression:
            for field, _ in part:
                fields |= FIELDS.get(field, NOTHING)
    return fields


def matches(expression: Expression, exist: str, different: int) -> bool:
    """Return whether an entry with this existence and these differences matches."""
    return any(
        all(_holds(*condition, exist, different) for condition in part) for part in expression
    )


def _holds(field: str, state: str, exist: str, different: int) -> bool:
    if field == "EXIST":
        return state == exist or (state == "DIFFER" and exist != BOTH)
    differs = bool(different & (FIELDS[field] | KIND))
    return exist == BOTH and differs == (state == "DIFFER")
