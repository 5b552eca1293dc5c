"""Sets of counters, each of which is declared once as a class annotation.

    class Counts(CounterSet):
        files: int
        links: int

Counters are attributes in slots, as fast as those of any class, and start at 0. Code that adds,
sends or stores them iterates over `names`, so a new counter needs only one line. In addition, each
set contains a `weight`, the share of the work that is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

C = TypeVar("C", bound="CounterSet")


class _Declared(type):
    """A metaclass that turns annotations into slots, and `int` annotations into counters."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _Declared:
        annotated = _annotations(namespace)
        texts = {field: getattr(kind, "__name__", str(kind)) for field, kind in annotated.items()}
        kinds = {
            field: text
            for field, text in texts.items()
            if not text.removeprefix("typing.").startswith("ClassVar")
        }
        namespace["__slots__"] = tuple(kinds)
        names = [inherited for base in bases for inherited in getattr(base, "names", ())]
        names += [field for field, kind in kinds.items() if kind == "int"]
        namespace["names"] = tuple(names)
        namespace["row_of"] = staticmethod(_row_getter(names))
        return super().__new__(cls, name, bases, namespace)


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of a class body; Python 3.14 evaluates them only on request."""
    if sys.version_info >= (3, 14) and "__annotations__" not in namespace:
        from annotationlib import Format, call_annotate_function, get_annotate_from_class_namespace

        annotate = get_annotate_from_class_namespace(namespace)
        return {} if annotate is None else call_annotate_function(annotate, Format.STRING)
    found: dict[str, Any] = namespace.get("__annotations__", {})
    return found


def _row_getter(names: list[str]) -> Callable[[object], tuple[int, ...]]:
    if len(names) > 1:
        return attrgetter(names[0], *names[1:])
    return lambda counters: tuple(getattr(counters, name) for name in names)


class CounterSet(metaclass=_Declared):
    """A set of counters that can be summed."""

    names: ClassVar[tuple[str, ...]]
    """The names of all counters in order of declaration, base classes first."""
    row_of: ClassVar[Callable[[object], tuple[int, ...]]]
    """The function that returns the counts of an object as a tuple, in the order of `names`."""

    weight: float

    def __init__(self, **counts: int) -> None:
        for name in self.names:
            setattr(self, name, 0)
        self.weight = 0.0
        for name, count in counts.items():
            setattr(self, name, count)

    def row(self) -> tuple[int, ...]:
        """Return the counts as a tuple, in the order of `names`."""
        return type(self).row_of(self)

    @classmethod
    def of(cls: type[C], row: Iterable[int]) -> C:
        """Make a set from a row; the row may be shorter than `names`."""
        return cls(**dict(zip(cls.names, row, strict=False)))

    @classmethod
    def total(cls: type[C], rows: Iterable[tuple[int, ...]]) -> C:
        """Make a set of the sums of rows. Raises ValueError if the rows differ in length."""
        return cls.of(map(sum, zip(*rows, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.row() == other.row()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={getattr(self, name)}" for name in self.names)
        return f"{type(self).__name__}({counts})"
