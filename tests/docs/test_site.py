"""The site: each page is in its contents, and scripts in pages are valid for a shell."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from docutils.core import publish_doctree

from tests.conftest import ROOT, Run
from tests.docs.pages import PAGES, Block, blocks

DOCS = ROOT / "docs"
KINDS = ["Tutorial", "How-to", "Reference", "Explanation"]
SCRIPTS = [block for page in PAGES for block in blocks(page) if block.language == "bash"]


def _entries() -> list[str]:
    """Return the pages in all tables of contents."""
    found = []
    for page in PAGES:
        here = page.parent.relative_to(DOCS)
        for listed in re.findall(
            r"^\.\. toctree::\n((?:   .*\n|\n)+)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            names = [line.strip() for line in listed.splitlines() if line.strip()]
            found += [
                posixpath.normpath(posixpath.join(here, name))
                for name in names
                if not name.startswith(":")
            ]
    return found


def test_each_page_is_in_the_contents_once() -> None:
    names = [str(page.relative_to(DOCS).with_suffix("")) for page in PAGES]
    assert sorted(_entries()) == sorted(set(names) - {"index"})


def test_the_contents_are_of_four_kinds() -> None:
    text = (DOCS / "index.rst").read_text(encoding="utf-8")
    assert re.findall(r":caption: (.+)", text)[:4] == KINDS


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda script: f"{script.page.stem}:{script.line}")
def test_a_script_can_be_read(run: Run, block: Block) -> None:
    done = run(["bash", "-n", "-c", block.text])
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.rst")), ids=lambda page: page.stem)
def test_a_page_beside_the_code_is_shown_without_warnings(page: Path) -> None:
    publish_doctree(
        page.read_text(encoding="utf-8"),
        source_path=str(page),
        settings_overrides={"halt_level": 2},
    )
