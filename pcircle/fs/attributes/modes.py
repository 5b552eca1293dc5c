"""chmod's mode language: octal and symbolic, parsed once and then applied to any mode.

It follows GNU chmod, including in the cases that POSIX leaves unspecified. An octal mode of fewer
than five digits leaves the set-id bits of directories unchanged unless it contains them. Each
clause acts on the result of the previous one (``u=g,g=o``), and a clause may have several operators
(``a-rw+x``). In a clause without any of ``ugoa``, `+` and `-` leave the bits in the umask alone,
and `=` clears them. `ModeChange.of` applies the change to the mode of an entry, as chmod would.
"""

from __future__ import annotations

import msgspec

ALL = 0o7777
SET_ID = 0o6000
_READ, _WRITE, _EXECUTE = 0o444, 0o222, 0o111
_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": ALL}
_COPIED = {"u": 0o700, "g": 0o070, "o": 0o007}
_BITS = {"r": _READ, "w": _WRITE, "x": _EXECUTE, "X": 0, "s": SET_ID, "t": 0o1000}
_OPERATORS, _OCTAL = "+-=", "01234567"
_WHOLE = 5  # octal modes with this many digits or more also clear the set-id bits of directories


class Clause(msgspec.Struct, frozen=True):
    """One operator with its operands.

    `affected` is the mask of the named classes, or 0 if none is named. `value` contains the bits to
    set, clear or assign. On a directory, a set-id bit changes only if it is also in `mentioned`.
    With `copies`, `value` selects the class to copy from. With `searches` (``X``), execute
    permission is added only to directories and to files that have it for some class.
    """

    operator: str
    affected: int
    value: int
    mentioned: int
    copies: bool = False
    searches: bool = False


class ModeChange(msgspec.Struct, frozen=True):
    """A parsed mode expression; `umask` applies to clauses that name no class."""

    clauses: tuple[Clause, ...]
    umask: int

    def of(self, mode: int, *, is_directory: bool) -> int:
        """Return the new permission bits of an entry with this mode."""
        new = mode & ALL
        for clause in self.clauses:
            spared = SET_ID & ~clause.mentioned if is_directory else 0
            value = clause.value
            if clause.copies:
                value &= new
                value |= sum(
                    permission for permission in (_READ, _WRITE, _EXECUTE) if value & permission
                )
            elif clause.searches and (is_directory or new & _EXECUTE):
                value |= _EXECUTE
            value &= (clause.affected or ~self.umask) & ~spared
            if clause.operator == "=":
                preserved = (~clause.affected if clause.affected else 0) | spared
                new = new & preserved | value
            else:
                new = new | value if clause.operator == "+" else new & ~value
        return new


def parse_mode(text: str, umask: int = 0) -> ModeChange:
    """Parse a mode as chmod does under this umask. Raises ValueError if it is invalid."""
    if text[:1] and text[0] in _OCTAL:
        value, at = _octal(text, 0)
        if at < len(text):
            raise ValueError(f"invalid mode '{text}'")
        mentioned = ALL if at >= _WHOLE else value & 0o7000 | 0o777
        return ModeChange((Clause("=", ALL, value, mentioned),), umask)
    clauses: list[Clause] = []
    at = 0
    while True:
        affected = 0
        while text[at : at + 1] in _WHO:
            affected |= _WHO[text[at]]
            at += 1
        begin = len(clauses)
        while at < len(text) and text[at] in _OPERATORS:
            clause, at = _clause(text, at, affected)
            clauses.append(clause)
        if len(clauses) == begin:
            raise ValueError(f"invalid mode '{text}'")
        if at == len(text):
            return ModeChange(tuple(clauses), umask)
        if text[at] != ",":
            raise ValueError(f"invalid mode '{text}'")
        at += 1


def _octal(text: str, at: int) -> tuple[int, int]:
    """Parse the octal number at this position; return the number and its end position."""
    end = at
    while end < len(text) and text[end] in _OCTAL:
        end += 1
    value = int(text[at:end], 8)
    if value > ALL:
        raise ValueError(f"invalid mode '{text}'")
    return value, end


def _clause(text: str, at: int, affected: int) -> tuple[Clause, int]:
    """Parse the clause whose operator is at this position; return it and its end position."""
    operator = text[at]
    at += 1
    first = text[at : at + 1]
    if first and first in _OCTAL:
        value, at = _octal(text, at)
        if affected or text[at : at + 1] not in ("", ","):
            raise ValueError(f"invalid mode '{text}'")
        return Clause(operator, ALL, value, ALL), at
    if first in _COPIED:
        value = _COPIED[first]
        mentioned = affected & value if affected else value
        return Clause(operator, affected, value, mentioned, copies=True), at + 1
    value, searches = 0, False
    while text[at : at + 1] in _BITS:
        value |= _BITS[text[at]]
        searches |= text[at] == "X"
        at += 1
    mentioned = affected & value if affected else value
    return Clause(operator, affected, value, mentioned, searches=searches), at
