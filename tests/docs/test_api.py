"""The API's pages have every public name, and an example of each where a short one is possible."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from pcircle.library.call import FUNCTIONS
from tests.conftest import ROOT
from tests.docs.pages import blocks

PACKAGES = ["aio", "circle", "collective", "ops.digest", "runtime", "testing"]
# Names that are useful only within the walk that they belong to, or as types of other names.
WITHOUT_EXAMPLE = {
    "circle": {"Activity", "FinalAccount", "JoinRef", "Message", "Parcel", "ProgressSums"},
    "collective": {"Member", "Records", "Said", "Store"},
    "ops.digest": {"Algorithm", "PART", "Runs", "RunStore", "Signer"},
}
PUBLIC = [
    (package, name)
    for package in PACKAGES
    for name in importlib.import_module(f"pcircle.{package}").__all__
]


def _path(name: str) -> Path:
    return ROOT / "docs" / "api" / f"{name.rpartition('.')[2]}.rst"


def _page(name: str) -> str:
    return _path(name).read_text(encoding="utf-8")


def _examples(name: str) -> str:
    return "".join(block.text for block in blocks(_path(name)) if block.language == "python")


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_a_public_name_is_on_its_page(package: str, name: str) -> None:
    directive = rf"^\.\. auto(?:class|data|exception|function):: pcircle\.{package}\.{name}$"
    assert re.search(directive, _page(package), re.MULTILINE)


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_a_public_name_has_an_example(package: str, name: str) -> None:
    is_used = re.search(rf"\b{name}\b", _examples(package)) is not None
    assert is_used != (name in WITHOUT_EXAMPLE.get(package, ()))


def test_each_function_is_on_its_page_with_an_example() -> None:
    page = ROOT / "docs" / "library.rst"
    text = page.read_text(encoding="utf-8")
    examples = "".join(block.text for block in blocks(page) if block.language == "python")
    for function in FUNCTIONS:
        assert f".. autofunction:: pcircle.{function}\n" in text
        assert f"pcircle.{function}(" in examples
