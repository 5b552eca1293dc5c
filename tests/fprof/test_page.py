"""The page, in a real browser: nothing goes wrong, clicks zoom, and its numbers are the JSON's."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fcp.running import TWO
from tests.fprof.browser import Browser, find
from tests.fprof.running import run_fprof
from tests.fprof.test_saved import build

HOSTILE = b"</script><script>document.title='owned'</script>\xff\n<!--"


@pytest.fixture(scope="session")
def made(shared_place: bytes) -> tuple[Path, dict[str, Any]]:
    """The page of a tree with names that try to be HTML, and the JSON of the same run."""
    tree = build(os.path.join(shared_place, b"drawn"), 6)
    hostile = os.path.join(tree, HOSTILE.replace(b"/", b"|"))
    os.makedirs(hostile + b"/below")
    with open(hostile + b"/below/file." + b"<b>", "wb") as file:
        file.truncate(3_000_000)
    page, document = tree + b".html", tree + b".json"
    by = "age,owner,group,ext,depth,dirsize"
    options = ("--by", by, "--bins", "log2", "--top", "10")
    finished = run_fprof(TWO, "-q", *options, "--html", page, "--json", document, tree)
    assert (finished.code, finished.said) == (0, "")
    with open(document, "rb") as stream:
        return Path(os.fsdecode(page)), json.load(stream)


@pytest.fixture(scope="module")
def browse() -> Callable[..., Browser]:
    """A function that starts a browser."""
    program = find()
    if program is None:
        pytest.skip("no Chromium is installed")
    return lambda **how: Browser(program, **how)


def numbers(browser: Browser, expression: str) -> list[float]:
    return [float(each) for each in browser.value(expression)]


def test_the_page_has_all_in_itself(made: tuple[Path, dict[str, Any]]) -> None:
    text = made[0].read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "{{" not in text.replace("={{", "")
    addresses = set(re.findall(r"https?://[^\"' ]+", text.split('id="data">')[0]))
    assert addresses == set()
    assert text.count("</script>") == 2


def test_numbers_are_those_of_the_document(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    page, document = made
    with browse() as browser:
        browser.open(page)
        shown = json.loads(browser.value("document.getElementById('data').textContent"))
        assert shown["report"] == document
        tiles = browser.value(
            "Object.fromEntries([...document.querySelectorAll('.tile')]"
            ".map(e => [e.dataset.name, Number(e.dataset.value)]))"
        )
        counts = document["counts"]
        assert tiles["files"] == counts["files"]["number"]
        assert tiles["directories"] == counts["directories"]["number"]
        assert tiles["bytes in files"] == counts["files"]["bytes"]
        assert tiles["on disk"] == counts["total"]["allocated_bytes"]
        assert tiles["median size"] == document["sizes"]["median"]
        bars = numbers(browser, "[...document.querySelectorAll('[data-bin]')]"
                       ".map(e => e.dataset.value)")  # fmt: skip
        bins = document["sizes"]["bins"]
        assert bars == [each["number"] for each in bins] + [each["bytes"] for each in bins]
        rows = browser.value(
            "[...document.querySelectorAll('tr[data-label]')]"
            ".map(e => [e.dataset.label, Number(e.dataset.number), Number(e.dataset.bytes)])"
        )
        told = [[g["label"], g["number"], g["bytes"]] for d in document["by"].values() for g in d]
        assert rows == told
        cells = shown["heat"]["bytes"]
        assert sum(map(sum, cells)) == counts["files"]["bytes"]
        assert sum(map(sum, shown["heat"]["number"])) == counts["files"]["number"]
        assert sum(map(sum, shown["sent"])) > 0
        assert browser.trouble == []


def test_a_click_goes_into_a_directory_and_back(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    page, document = made
    with browse() as browser:
        browser.open(page)
        root = document["roots"][0]
        assert browser.value("document.getElementById('map').dataset.path") == root
        total = float(browser.value("document.getElementById('map').dataset.value"))
        boxes = numbers(browser, "[...document.querySelectorAll('#map > .box')]"
                        ".map(e => e.dataset.value)")  # fmt: skip
        assert 0.9 * total <= sum(boxes) <= total  # the smallest are too small to be drawn
        name = browser.value("document.querySelector('#map > button').dataset.name")
        value = browser.value("document.querySelector('#map > button').dataset.value")
        browser.click("#map > button")
        assert browser.value("document.getElementById('map').dataset.path") == f"{root}/{name}"
        assert browser.value("document.getElementById('map').dataset.value") == value
        browser.click(".crumbs button")
        assert browser.value("document.getElementById('map').dataset.path") == root
        browser.click("[data-choice=entries]")
        assert (
            int(browser.value("document.getElementById('map').dataset.value"))
            == (document["counts"]["entries"])
        )
        assert browser.trouble == []


def test_names_stay_names(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    with browse() as browser:
        browser.open(made[0])
        assert browser.value("document.title").startswith("fprof: ")
        assert browser.value("document.querySelectorAll('script').length") == 2
        assert browser.value("document.body.textContent.includes('\\\\xff\\\\x0a<!--')")
        assert browser.trouble == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("wide", [360, 1280])
def test_it_fits_any_width_and_both_schemes(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser], wide: int, dark: bool
) -> None:
    with browse(wide=wide, dark=dark) as browser:
        browser.open(made[0])
        assert browser.value("document.documentElement.scrollWidth") <= wide
        color = browser.value("getComputedStyle(document.body).backgroundColor")
        shade = sum(map(int, re.findall(r"\d+", color)[:3]))
        assert (shade < 200) == dark
        picture = browser.picture()
        width, height = struct.unpack(">II", picture[16:24])
        assert width == wide
        assert height > 600
        assert browser.trouble == []
