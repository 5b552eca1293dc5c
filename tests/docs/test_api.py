"""The API's pages have every public name, and an example of each where there can be a short one."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from pcircle.tools.commands import COMMANDS
from tests.conftest import ROOT
from tests.docs.pages import blocks

ROOMS = ["aio", "circle", "collective", "runtime", "signature", "testing"]
# What only makes sense within the walk that it is part of, or as the type of something else.
WITHOUT_EXAMPLE = {
    "circle": {"Activity", "FinalAccount", "JoinRef", "Message", "Parcel", "ProgressSums"},
    "collective": {"Member", "Records", "Said", "Store"},
    "signature": {"Algorithm", "PART", "Runs", "RunStore", "Signer"},
}
PUBLIC = [
    (room, name) for room in ROOMS for name in importlib.import_module(f"pcircle.{room}").__all__
]


def _page(name: str) -> str:
    return (ROOT / "docs" / "api" / f"{name}.rst").read_text(encoding="utf-8")


def _examples(name: str) -> str:
    page = ROOT / "docs" / "api" / f"{name}.rst"
    return "".join(block.text for block in blocks(page) if block.language == "python")


@pytest.mark.parametrize(("room", "name"), PUBLIC)
def test_a_public_name_is_on_its_page(room: str, name: str) -> None:
    directive = rf"^\.\. auto(?:class|data|exception|function):: pcircle\.{room}\.{name}$"
    assert re.search(directive, _page(room), re.MULTILINE)


@pytest.mark.parametrize(("room", "name"), PUBLIC)
def test_a_public_name_has_an_example(room: str, name: str) -> None:
    is_used = re.search(rf"\b{name}\b", _examples(room)) is not None
    assert is_used != (name in WITHOUT_EXAMPLE.get(room, ()))


def test_the_function_of_each_tool_has_an_example() -> None:
    functions = {}
    for command in COMMANDS:
        module = importlib.import_module(command.module.rpartition(".")[0])
        for name, found in inspect.getmembers(module, inspect.isfunction):
            if found.__module__ == module.__name__ and not name.startswith("_"):
                functions[name] = module.__name__
    assert len(functions) > 5
    for name, module_name in functions.items():
        assert f".. autofunction:: {module_name}.{name}\n" in _page("tools")
        assert re.search(rf"\b{name}\(", _examples("tools")), name
