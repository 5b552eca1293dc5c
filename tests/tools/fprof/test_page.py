"""The page, in a real browser: no errors, clicks zoom, and its numbers match the JSON document."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.tools.fcp.running import TWO
from tests.tools.fprof.browser import Browser, find
from tests.tools.fprof.running import run_fprof
from tests.tools.fprof.test_saved import build

HOSTILE = b"</script><script>document.title='owned'</script>\xff\n<!--"


@pytest.fixture(scope="session")
def made(shared_place: bytes) -> tuple[Path, dict[str, Any]]:
    """Create the page of a tree whose names look like HTML, and the JSON of the same run."""
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
    """Return a function that starts a browser."""
    program = find()
    if program is None:
        pytest.skip("no Chromium is installed")
    return lambda **how: Browser(program, **how)


def numbers(browser: Browser, expression: str) -> list[float]:
    return [float(figure) for figure in browser.value(expression)]


def test_the_page_is_self_contained(made: tuple[Path, dict[str, Any]]) -> None:
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
        assert bars == [size_bin["number"] for size_bin in bins] + [
            size_bin["bytes"] for size_bin in bins
        ]
        rows = browser.value(
            "[...document.querySelectorAll('tr[data-label]')]"
            ".map(e => [e.dataset.label, Number(e.dataset.number), Number(e.dataset.bytes)])"
        )
        groups = [[g["label"], g["number"], g["bytes"]] for d in document["by"].values() for g in d]
        assert rows == groups
        cells = shown["heat"]["bytes"]
        assert sum(map(sum, cells)) == counts["files"]["bytes"]
        assert sum(map(sum, shown["heat"]["number"])) == counts["files"]["number"]
        assert sum(map(sum, shown["sent"])) > 0
        assert browser.trouble == []


def test_a_click_enters_a_directory_and_returns(
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


def test_names_are_escaped(
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


# The requirement of WCAG 2.1 (AA): 4.5 for text.
CONTRASTS = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_can_be_read(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser], dark: bool
) -> None:
    with browse(dark=dark) as browser:
        browser.open(made[0])
        for state in ("", "[data-choice=entries]", "#map > button.box"):
            if state:
                browser.click(state)
            found = browser.value(CONTRASTS)
            assert len(found) > 100
            assert [contrast for contrast in found if contrast[0] < 4.5] == []
        # And the check detects problems.
        browser.value("document.documentElement.style.setProperty('--soft', '#808080')")
        assert [contrast for contrast in browser.value(CONTRASTS) if contrast[0] < 4.5] != []


def test_bars_are_seen_in_a_narrow_window(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    with browse(wide=400) as browser:
        browser.open(made[0])
        bars = browser.value(
            "[...document.querySelectorAll('td.bar i')].map(e => { const b ="
            " e.getBoundingClientRect(); return [b.left, b.right, parseFloat(e.style.width)]; })"
        )
        assert len(bars) > 10
        assert max(right for _, right, _ in bars) <= 400
        assert min(right - left for left, right, share in bars if share == 100) >= 24
        assert browser.value("document.documentElement.scrollWidth") <= 400


def test_a_click_on_an_inner_area_enters_it(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    with browse() as browser:
        browser.open(made[0])
        root = browser.value("document.getElementById('map').dataset.path")
        inner = "document.querySelector('#map > button.inner')"
        name, value = browser.value(f"(e => [e.dataset.name, e.dataset.value])({inner})")
        browser.click("#map > button.inner")
        path = browser.value("document.getElementById('map').dataset.path")
        assert path.startswith(root)
        assert path.count("/") == root.count("/") + 2
        assert path.endswith("/" + name)
        assert browser.value("document.getElementById('map').dataset.value") == value
        assert browser.trouble == []


def test_keys_enter_directories_and_return(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    where = "document.getElementById('map').dataset.path"
    focused = "document.activeElement.dataset.name || document.activeElement.tagName"
    with browse() as browser:
        browser.open(made[0])
        root = browser.value(where)
        for _ in range(40):
            browser.press("Tab")
            if browser.value("document.activeElement.matches('#map > button.box')"):
                break
        name = browser.value(focused)
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert browser.value(outline) == "solid"  # the keyboard focus is visible
        assert name in browser.value("document.getElementById('tip').textContent")
        browser.press("Enter")
        assert browser.value(where) == f"{root}/{name}"
        assert browser.value("document.activeElement !== document.body")
        browser.press("Escape")
        assert browser.value(where) == root
        assert browser.value(focused) == name
        assert browser.trouble == []


def test_the_newest_files_are_listed(
    made: tuple[Path, dict[str, Any]], browse: Callable[..., Browser]
) -> None:
    page, document = made
    with browse() as browser:
        browser.open(page)
        shown = browser.value(
            "[...[...document.querySelectorAll('section')].find(e => e.querySelector('h2')"
            ".textContent === 'Newest files').querySelectorAll('tbody td:first-child')]"
            ".map(e => e.textContent)"
        )
        assert shown == [row["path"] for row in document["top"]["newest"]]


def test_pictures_of_the_manual(
    made: tuple[Path, dict[str, Any]],
    browse: Callable[..., Browser],
    place: bytes,
) -> None:
    """The pictures are those in docs/, which PCIRCLE_PICTURES=1 writes, of a common tree."""
    page, writes = made[0], os.environ.get("PCIRCLE_PICTURES") == "1"
    if writes:
        page = Path(os.fsdecode(place), "share.html")
        assert run_fprof(TWO, "-q", "--html", os.fspath(page), "/usr/share/doc").code == 0
    for name, dark in (("fprof-page.png", False), ("fprof-page-dark.png", True)):
        with browse(wide=1000, tall=960, dark=dark) as browser:
            browser.open(page)
            if dark:
                browser.click("[data-choice=entries]")
                browser.click("#map > button.box")
                browser.value("scrollTo(0, 0)")
            picture = browser.picture(whole=False)
        committed = ROOT / "docs" / name
        if writes:
            committed.write_bytes(picture)
        old = committed.read_bytes()
        assert old[:8] == picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert old[16:20] == picture[16:20]  # equally wide
