"""Generate the types of the keyword arguments of `pcircle.copy` and the other functions.

The parsers of the tools define the options, so the types are derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap

from pcircle.library.call import FUNCTIONS, Keyword, keywords_of, options_of

_TYPES = {"flag": "bool", "number": "str | float", "path": "AnyPath", "text": "str"}
_COMMON = "WalkKeywords"
_PROGRESS = "Callable[[ProgressView], object] | None", "receives views of the running job"
_STDOUT = "Callable[[bytes], object] | None", "receives what the command would print as its result"
_HEAD = '''\
"""The keyword arguments of the functions, generated from the options of the tools.

`python -m docs.generate` writes this module, which only type checkers and editors read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from pcircle.cli.progress import ProgressView
from pcircle.library import AnyPath
from pcircle.library.call import Cancel

class CallKeywords(TypedDict, total=False):
    """Keyword arguments that are not options."""

    cancel: Cancel | None
    """stops the job when set"""
    messages: Callable[[str], object] | None
    """receives each line that the command would print on standard error"""
'''


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of the module."""
    fields = {function: dict(_fields(function)) for function in FUNCTIONS}
    walking = [found for function, found in fields.items() if function in _WALKING]
    common = {
        name: kind
        for name, kind in walking[0].items()
        if all(found.get(name) == kind for found in walking)
    }
    text = _HEAD + _class(_COMMON, "CallKeywords", common)
    for function, found in fields.items():
        for name, kind in (("progress", _PROGRESS), ("stdout", _STDOUT)):
            if name in keywords_of(function):
                found[name] = kind
        base = _COMMON if function in _WALKING else "CallKeywords"
        rest = {name: kind for name, kind in found.items() if base != _COMMON or name not in common}
        text += _class(f"{function.capitalize()}Keywords", base, rest)
    yield "pcircle/library/keywords.pyi", text


_WALKING = [function for function in FUNCTIONS if function not in ("broadcast", "find")]


def _class(name: str, base: str, fields: Mapping[str, tuple[str, str]]) -> str:
    lines = [f'    {field}: {kind}\n    """{text}"""\n' for field, (kind, text) in fields.items()]
    about = f"Keyword arguments of `{name.removesuffix('Keywords').lower()}`."
    if name == _COMMON:
        about = "Keyword arguments of all functions that walk trees."
    return f'\nclass {name}({base}, total=False):\n    """{about}"""\n\n' + "".join(lines)


def _fields(function: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the options of a function, each with its type and help text."""
    for keyword, found in options_of(function).items():
        text = (found.action.help or "").replace("%%", "%").replace("\\", "\\\\")
        text = "\n    ".join(wrap(text, 90))
        yield keyword, (_type(found), text)


def _type(keyword: Keyword) -> str:
    value, choices = keyword.type, keyword.action.choices
    kind = _TYPES[value.name]
    if value.name == "flag":
        return kind
    if choices is not None:
        kind = f"Literal[{', '.join(map(repr, choices))}]".replace("'", '"')
    if value.is_optional:
        kind += " | bool"
    if value.is_repeatable:
        kind += f" | Sequence[{kind}]"
    return f"{kind} | None"
