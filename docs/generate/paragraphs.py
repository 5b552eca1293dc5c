"""Paragraphs of manuals: the strings below the declarations of options."""

from __future__ import annotations

import ast
import functools
import inspect
import sys

from pcircle.cli.arguments import Parser
from pcircle.cli.declarations import Options
from pcircle.tools.commands import Command


def declared_text(command: Command, name: str) -> str:
    """Return the paragraph below the declaration of an option, or an empty string."""
    parser = command.built()
    if not isinstance(parser, Parser) or parser.options is None:
        return ""
    for field, each in parser.options.offered():
        if name in each.names:
            bases = (base for base in parser.options.__mro__ if issubclass(base, Options))
            return next(
                filter(None, (_texts(base.__module__, base.__name__).get(field) for base in bases)),
                "",
            )
    return ""


@functools.cache
def _texts(module: str, options: str) -> dict[str, str]:
    """Return the strings below the declarations in a class, by field."""
    source = inspect.getsource(sys.modules[module])
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == options:
            for one, text in zip(node.body, node.body[1:], strict=False):
                target = getattr(one, "target", None) or getattr(one, "targets", [None])[0]
                value = text.value if isinstance(text, ast.Expr) else None
                if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                    found[target.id] = inspect.cleandoc(str(value.value))
    return found
