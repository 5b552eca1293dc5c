"""dcmp's expressions, `-o EXPR:FILE`: which entries a file lists.

Conditions `FIELD=STATE` are joined by `@` (and) and `,` (or), the first binding closer. Here an
expression is a tuple of alternatives, each a tuple of conditions. What is on one side only has no
state but that of EXIST. Of entries of different types no other field is compared, so each differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pcircle.comparing.fields import (
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
from pcircle.errors import UsageError

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
    """An expression. UsageError if it is none."""
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
    """The fields that must be compared for them."""
    fields = NOTHING
    for expression in expressions:
        for part in expression:
            for field, _ in part:
                fields |= FIELDS.get(field, NOTHING)
    return fields


def matches(expression: Expression, exist: str, different: int) -> bool:
    """Whether an entry is meant: it exists like this, and has that different."""
    return any(all(_holds(*each, exist, different) for each in part) for part in expression)


def _holds(field: str, state: str, exist: str, different: int) -> bool:
    if field == "EXIST":
        return state == exist or (state == "DIFFER" and exist != BOTH)
    differs = bool(different & (FIELDS[field] | KIND))
    return exist == BOTH and differs == (state == "DIFFER")
