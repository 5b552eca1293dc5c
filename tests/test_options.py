"""Every option that help shows is parsed, and every parsed option is used.

Checked on the parsers themselves, and in the source with ``ast``: an option that is parsed and
never read fails, and so does an unused field of a tool's ``Options``, ``Plan`` or ``Form``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.cli.arguments import Parser
from tests.test_layering import PACKAGE, TOOLS

every_tool = pytest.mark.parametrize("tool", sorted(TOOLS))
every_command = pytest.mark.parametrize("tool", sorted({*TOOLS, "scale"}))
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z0-9][\w-]*")
# Words in help that look like options, but belong to other programs or are combined letters.
ELSEWHERE = re.compile(r"mpirun -np|python -m|fcp -s prints|-vv|setfacl -\w+|size,-mtime")
DECIDED = ("Options", "Plan", "Settings", "Form")
# `ranks`: the name in `pcircle.cli.program` of the options that set the number of ranks.
# `form`, `machine` and `attribute_filter`: structures whose fields have the names of options.
HOLDERS = frozenset({"options", "plan", "settings", "ranks", "form", "machine", "attribute_filter"})
ARGUMENTS = frozenset({"args"})


def _parser(tool: str) -> Parser:
    built: Parser = importlib.import_module(f"pcircle.tools.{tool}.cli").parser()
    return built


def _actions(tool: str) -> list[argparse.Action]:
    return [action for action in _parser(tool)._actions if action.option_strings]


@every_command
def test_help_names_every_option_and_no_other(tool: str) -> None:
    said = ELSEWHERE.sub("", _parser(tool).format_help())
    if tool == "ffind":  # its description names primaries, and its examples contain expressions
        said = said.partition("\nOptions:")[2].partition("\nExamples:")[0]
    taken = {option for action in _actions(tool) for option in action.option_strings}
    assert set(OPTION.findall(said)) == taken
    assert [action.dest for action in _actions(tool) if not action.help] == []


@every_command
def test_help_states_the_real_defaults(tool: str) -> None:
    for action in _actions(tool):
        said = re.search(r"default:? (\w+)", str(action.help))
        if said and action.default not in (None, argparse.SUPPRESS):
            assert said[1] == str(action.default), action.option_strings
        if action.choices and action.default is not None:
            assert action.default in action.choices, action.option_strings


def _holder(node: ast.expr) -> str:
    """Return the last name of the object of an attribute: ``plan`` for ``self._plan.dry``."""
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return last.lstrip("_")


def _read_attributes(node: ast.AST, holders: frozenset[str]) -> Iterator[str]:
    """Return the attributes read from *holders*, including all candidates of a ``getattr``."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        if _holder(node.value) in holders:
            yield node.attr
    elif isinstance(node, ast.ClassDef) and node.name.endswith(DECIDED):
        yield from (
            name
            for inner in node.body
            for name in _read_attributes_within(inner, frozenset({"self"}))
        )
    elif isinstance(node, ast.FunctionDef):
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        if any(_is_getattr(call, holders) for call in calls):
            constants = (inner for inner in ast.walk(node) if isinstance(inner, ast.Tuple))
            yield from (
                element.value
                for inner in constants
                for element in inner.elts
                if isinstance(element, ast.Constant) and isinstance(element.value, str)
            )


def _read_attributes_within(node: ast.AST, holders: frozenset[str]) -> Iterator[str]:
    return (name for inner in ast.walk(node) for name in _read_attributes(inner, holders))


def _is_getattr(call: ast.Call, holders: frozenset[str]) -> bool:
    is_named = isinstance(call.func, ast.Name) and call.func.id == "getattr"
    return is_named and bool(call.args) and _holder(call.args[0]) in holders


@functools.cache
def _owners() -> dict[Path, str]:
    """Return all modules, each with the tool to which it belongs, or an empty string."""
    owners = dict.fromkeys(PACKAGE.rglob("*.py"), "")
    commands = {*TOOLS, "doctor", "scale"}
    return owners | {
        path: tool for tool in commands for path in (PACKAGE / "tools" / tool).rglob("*.py")
    }


@every_command
def test_every_option_is_read(tool: str) -> None:
    paths = [path for path, owner in _owners().items() if owner in (tool, "")]
    holders = HOLDERS | ARGUMENTS
    read = {name for path in paths for name in _names_read(path, holders)}
    declared = _parser(tool).options.declared
    dests = {field: each.dest for field, each in declared.items()}
    read |= {dest for field, dest in dests.items() if field in read}
    assert {action.dest for action in _actions(tool)} - {"help", "version"} - read == set()


@functools.cache
def _names_read(path: Path, holders: frozenset[str]) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return {name for node in nodes for name in _read_attributes(node, holders)}


def _fields(tool: str) -> set[str]:
    """Return the fields of a tool's ``Options``, ``Plan`` and ``Settings``."""
    paths = [path for path, owner in _owners().items() if owner == tool]
    paths.append(PACKAGE / "ops" / "copy" / "entry" / "settings.py")
    return {
        field.target.id
        for path in paths
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.ClassDef) and node.name.endswith(DECIDED)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


@every_tool
def test_every_option_field_is_used(tool: str) -> None:
    fields = _fields(tool)
    assert len(fields) > 5
    # Read by the tool, or by the packages below the tools.
    paths = [path for path, owner in _owners().items() if owner in (tool, "")]
    asked = {name for path in paths for name in _names_read(path, HOLDERS | ARGUMENTS)}
    assert fields - asked == set()


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("args.one", {"one"}),
        ("self._args.one.strip()", {"one"}),
        ("args.one = 1", set()),
        ("f(one=args)", set()),
        ("other.one", set()),
        ("def f(args):\n    for x in ('one', 'two'):\n        getattr(args, x)", {"one", "two"}),
        ("def f(args):\n    x = ('one', 'two')\n    getattr(other, x)", set()),
    ],
)
def test_the_check_finds_reads(source: str, read: set[str]) -> None:
    found = {
        name for node in ast.walk(ast.parse(source)) for name in _read_attributes(node, ARGUMENTS)
    }
    assert found == read
