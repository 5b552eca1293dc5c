"""Counters that are declared once: each is an annotation of a class, and all else follows from it.

    class Counts(Counting):
        files: int
        links: int

Such counters are attributes in slots, as fast as those of any class, and begin with 0. What adds
them up, sends them or keeps them goes by `names`, so that a new counter is one line. `weight`, the
share of the work that is done, is beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

C = TypeVar("C", bound="Counting")


class _Declared(type):
    """Makes slots of annotations, and counters of those that are `int`."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _Declared:
        annotated = namespace.get("__annotations__", {}).items()
        texts = {field: getattr(kind, "__name__", str(kind)) for field, kind in annotated}
        kinds = {
            field: text
            for field, text in texts.items()
            if not text.removeprefix("typing.").startswith("ClassVar")
        }
        namespace["__slots__"] = tuple(kinds)
        names = [each for base in bases for each in getattr(base, "names", ())]
        names += [field for field, kind in kinds.items() if kind == "int"]
        namespace["names"] = tuple(names)
        namespace["row_of"] = staticmethod(_row_getter(names))
        return super().__new__(cls, name, bases, namespace)


def _row_getter(names: list[str]) -> Callable[[Any], tuple[int, ...]]:
    if len(names) > 1:
        return attrgetter(names[0], *names[1:])
    return lambda counters: tuple(getattr(counters, name) for name in names)


class Counting(metaclass=_Declared):
    """Counters, and the sums of such counters."""

    names: ClassVar[tuple[str, ...]]
    """The counters, in the order of their declaration, those of base classes first."""
    row_of: ClassVar[Callable[[Any], tuple[int, ...]]]
    """The counts of such an object in a row, in this order."""

    weight: float

    def __init__(self, **counts: int) -> None:
        for name in self.names:
            setattr(self, name, 0)
        self.weight = 0.0
        for name, count in counts.items():
            setattr(self, name, count)

    def row(self) -> tuple[int, ...]:
        """The counts in a row."""
        return type(self).row_of(self)

    @classmethod
    def of(cls: type[C], row: Iterable[int]) -> C:
        """Counters of a row, as far as it goes."""
        return cls(**dict(zip(cls.names, row, strict=False)))

    @classmethod
    def total(cls: type[C], rows: Iterable[tuple[int, ...]]) -> C:
        """The sums of rows. ValueError if these are not of the same counters."""
        return cls.of(map(sum, zip(*rows, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.row() == other.row()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={getattr(self, name)}" for name in self.names)
        return f"{type(self).__name__}({told})"
