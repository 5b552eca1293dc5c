"""Find changes of state that simulated ranks share, but ranks of a real job do not.

A rank of a real job is a process: state that a task keeps in a class, a global or an object passed
to all tasks exists once per rank. In the simulator it exists once. A task that changes it works
here but fails in a real job, so these changes are detected.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CellType, CodeType, FunctionType, ModuleType

from pcircle.runtime.task import I, R, Task

_IMMUTABLE = (int, float, complex, bool, str, bytes, tuple, frozenset, type(None), type, range)
_CODE = (FunctionType, ModuleType, staticmethod, classmethod, property, type)
_Look = Callable[[], object]


class SharedState:
    """A snapshot of the state that the tasks of a job share."""

    def __init__(self, tasks: Sequence[Task[I, R]], may_change: Collection[str]) -> None:
        self._looks = dict(_of_instances(tasks))
        for task in tasks[:1]:
            self._looks.update(_of_class(type(task)))
        for name in list(self._looks):
            if name in may_change or name.rpartition(".")[2] in may_change:
                del self._looks[name]
        self._before = {name: _fingerprint(look) for name, look in self._looks.items()}

    def changed(self) -> list[str]:
        """Return the names of the state that differs from the snapshot."""
        return sorted(
            name
            for name, look in self._looks.items()
            if self._before[name] is not None and _fingerprint(look) != self._before[name]
        )


def _fingerprint(look: _Look) -> bytes | None:
    try:
        return pickle.dumps(look())
    except Exception:
        return None  # cannot be compared


def _of_instances(tasks: Sequence[Task[I, R]]) -> Iterator[tuple[str, _Look]]:
    """Yield objects that are attributes of several tasks."""
    if len(tasks) < 2:
        return
    first, other = vars(tasks[0]), vars(tasks[1])
    for name, value in first.items():
        if value is other.get(name) and not isinstance(value, (*_IMMUTABLE, *_CODE)):
            yield f"self.{name}", _same(value)


def _of_class(kind: type) -> Iterator[tuple[str, _Look]]:
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("pcircle", "builtins", "typing", "abc"):
            continue
        for name, value in list(vars(base).items()):
            if isinstance(value, FunctionType):
                yield from _of_function(value, set())
            elif not (name.startswith(("__", "_abc_")) or isinstance(value, _CODE)):
                yield f"{base.__name__}.{name}", _attribute(base, name)


def _of_function(function: FunctionType, seen: set[CodeType]) -> Iterator[tuple[str, _Look]]:
    """Yield the globals, closure variables and default values of a function."""
    if function.__code__ in seen:
        return
    seen.add(function.__code__)
    for number, value in enumerate(function.__defaults__ or ()):
        if not isinstance(value, (*_IMMUTABLE, *_CODE)):
            yield f"default {number + 1} of {function.__qualname__}", _same(value)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # it is not there yet
        yield from _of_value(name, value, _content(cell), seen)
    module = function.__globals__
    for name in _names(function.__code__):
        if name in module:
            look = _entry(module, name)
            yield from _of_value(name, module[name], look, seen)


def _of_value(
    name: str, value: object, look: _Look, seen: set[CodeType]
) -> Iterator[tuple[str, _Look]]:
    if isinstance(value, FunctionType):
        if _is_users(value):
            yield from _of_function(value, seen)
    elif not isinstance(value, _CODE) and not isinstance(value, Task):
        yield name, look


def _is_users(function: FunctionType) -> bool:
    top = (function.__module__ or "").partition(".")[0]
    return top != "pcircle" and top not in sys.stdlib_module_names


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _same(value: object) -> _Look:
    return lambda: value


def _content(cell: CellType) -> _Look:
    return lambda: cell.cell_contents


def _attribute(owner: type, name: str) -> _Look:
    return lambda: vars(owner).get(name)


def _entry(module: dict[str, object], name: str) -> _Look:
    return lambda: module.get(name)
