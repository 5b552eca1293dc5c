"""The tools write the messages that `docs/troubleshooting.rst` explains."""

from __future__ import annotations

import ast
import functools
import os
import re

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.rst").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^``(.+)``\n    \S", PAGE, re.MULTILINE)
_SYSTEMS = {os.strerror(number) for number in range(1, 134)}
_SHORTEST = 4


@functools.cache
def _texts() -> list[str]:
    """Return all strings of the package, with `…` in place of values."""
    found = []
    for path in (ROOT / "pcircle").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "…" for v in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_messages_are_found() -> None:
    assert MESSAGES
    assert len(MESSAGES) == len(set(MESSAGES))
    assert not _is_written("no tool writes this")


def _is_written(message: str) -> bool:
    """Return whether each constant part of a message occurs in some string."""
    parts = [part.strip(" :;,") for part in message.split("…")]
    wanted = [part for part in parts if len(part) >= _SHORTEST]
    return bool(wanted) and all(any(part in text for text in _texts()) for part in wanted)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_tools_write_it(message: str) -> None:
    assert message in _SYSTEMS or _is_written(message)
