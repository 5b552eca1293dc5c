"""Every number that a page or a module attributes to a paper cites its source, and is correct.

The numbers are in ``examples/papers/*_paper.py``. Pages are compared with them row by row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from examples.papers import carns_paper, fcp_paper, lafon_paper, pxfs_paper
from examples.papers.command import DOCS
from examples.papers.stated import Stated
from tests.conftest import ROOT
from tests.papers.attributions import (
    Attribution,
    has_number,
    in_module,
    in_page,
    in_table,
    in_text,
    tables,
)

PAGES = [
    *sorted((ROOT / "docs").glob("papers*.rst")),
    *(ROOT / "docs" / f"{name}.rst" for name in ("aio", "design", "scale")),
]
MODULES = sorted((ROOT / "examples" / "papers").glob("*.py"))
TABLES = sorted(DOCS.glob("*.csv"))
NUMBERS = [carns_paper, fcp_paper, lafon_paper, pxfs_paper]

Row = tuple[float, ...]
Column = list[Row]  # the numbers of each cell
Columns = dict[tuple[str, str], Column]  # by section and head


def _carns() -> Columns:
    ups, shares = carns_paper.SPEED_UPS, carns_paper.MYRINET_SHARES
    create, *others = [round(100 * shares[name].value) for name in ("create", "remove", "stat")]
    return {
        ("Figures 9, 10 and 11: simulated, Adenine", "the paper"): [
            (ups["create"].value, carns_paper.SPEED_UPS_SERVERS.value, 1),
            (ups["remove"].value,),
            (ups["stat"].value,),
            *[()] * 4,
        ],
        ("Figures 15, 16 and 17: prototype, Jazz, Myrinet", "the paper"): [
            (create, carns_paper.MYRINET_SHARES_SERVERS.value),
            *((share,) for share in others),
            (carns_paper.MYRINET_GAIN_SERVERS.value,),
            (),
        ],
        ("Figure 18: a source tree on 74 servers", "prototype: the paper, figure 18"): [
            (stated.value, 1) for stated in carns_paper.TREE_SPEED_UPS.values()
        ],
    }


def _fcp() -> Columns:
    nodes, stripes = fcp_paper.NODES.value, fcp_paper.STRIPES.value
    files, sizes = fcp_paper.FILES.value, fcp_paper.EACH_BYTES.value
    mixed, default = fcp_paper.MIXED_BYTES.value, fcp_paper.DEFAULT_STRIPES.value
    tools = fcp_paper.TABLE_S.value.values()
    sums = fcp_paper.CHECKSUM_S.value.values()
    bars = [stated.value[default] for stated in fcp_paper.NODES_S.values()]
    file, chunk = fcp_paper.FILE_BYTES.value, fcp_paper.CHUNK_BYTES.value
    nodes_section = "Figures 6 to 9: nodes and stripes, simulated"
    return {
        ("Differences of the measurements from the paper's setup", "the paper (III, III-A)"): [
            (nodes[-1], fcp_paper.CORES.value),
            (default,),
            (fcp_paper.PROCESSES.value,),
            (1, sizes["set 1"] / 1e12),
            (1, sizes["set 2"] / 1e9),
            (files["set 3"], sizes["set 3"] / 1e6),
            (files["set 4"], mixed[0] / 1024, mixed[1] / 1e6),
        ],
        **{
            ("Table I: four tools", tool): [(_two(row[tool] / row["fcp"]),) for row in tools]
            for tool in ("cp", "rsync", "dcp")
        },
        ("Checksums", "paper, on over off"): [(_two(on / off),) for off, on, _ in sums],
        ("Checksums", "paper, corrupted over on"): [(_two(bad / on),) for _, on, bad in sums],
        ("Ranks on one machine", "the paper: 2, 4, 8 nodes"): [
            tuple(round((bar[0] or 0) / (faster or 1), 1) for faster in bar[1:]) for bar in bars
        ],
        (nodes_section, "the paper (III-B)"): [
            (nodes[-1], fcp_paper.SPEED_UP.value),
            stripes[2:3],
            nodes[-2:],
            stripes[:1],
            stripes[:1],
            stripes[:3],
            (nodes[0], stripes[3], fcp_paper.STRIPES_OVER.value, stripes[2]),
            (stripes[3], fcp_paper.MIN_STRIPES_OVER.value, stripes[2]),
        ],
        ("The paper's ideas in pcircle", "the paper"): [*[()] * 10, (file, chunk), ()],
        ("The paper's ideas in pcircle", "the paper (II-F)"): [(file,), (chunk,), ()],
    }


def _lafon() -> Columns:
    busiest = (lafon_paper.BUSIEST_BYTES.value,)
    return {("Figure 1: bytes from rank to rank, CP", "paper"): [(), busiest, ()]}


def _pxfs() -> Columns:
    lost = pxfs_paper.LOST.value.values()
    names = ("create", "close", "open", "stat", "truncate", "remove", "mkdir", "rmdir")
    waits, futures = pxfs_paper.SYNCHRONOUS_MS.value, pxfs_paper.ASYNCHRONOUS_MS.value
    return {
        ("Case 3: computing during a transfer", "synchronous, thesis"): [row[:2] for row in lost],
        ("Case 3: computing during a transfer", "asynchronous, thesis"): [row[2:] for row in lost],
        ("Operations on names", "the thesis"): [(waits[name], futures[name]) for name in names],
        ("Operations on names", "ratio, thesis"): [
            (_two(futures[name] / waits[name]),) for name in names
        ],
        ("The workloads: 24 clients, 16 servers", "the paper"): [
            (ratio,) for ratio in pxfs_paper.WORKLOADS.value.values()
        ],
    }


def _two(number: float) -> float:
    return round(number, 2)


COLUMNS = {
    "papers-carns.rst": _carns(),
    "papers-fcp.rst": _fcp(),
    "papers-lafon.rst": _lafon(),
    "papers-pxfs.rst": _pxfs(),
}


def _numbers(cell: str) -> list[float]:
    bare = re.sub(r"\bsets? \d(, \d)*", "", cell).replace(",000", "000")
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e\d+)?", bare)]


def _all_stated() -> Iterator[tuple[str, Stated[object]]]:
    for module in MODULES:
        found = vars(import_module(f"examples.papers.{module.stem}"))
        for name, value in found.items():
            for stated in value.values() if isinstance(value, dict) else [value]:
                if isinstance(stated, Stated):
                    yield f"{module.stem}.{name}", stated


# ---- sources ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, *MODULES], ids=lambda path: path.name)
def test_numbers_of_papers_cite_their_source(path: Path) -> None:
    found = in_page(path) if path.suffix == ".rst" else in_module(path)
    missing = [one for one in found if not one.has_source]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "attributed", "has_source"),
    [
        ("The paper has 5 files.", True, False),
        ("In the thesis it takes twice as long.", True, False),
        ("Carns et al. had 74 servers. Ours has 8.", True, False),
        ("The paper has 5 files (section III-A).", True, True),
        ("As in figures 9 to 11 of the paper, 50 servers.", True, True),
        ("The paper explains figure 3(a) in section 4.", False, True),
        ("Ours has 5 files.", False, False),
    ],
)
def test_a_number_of_a_paper_is_found(text: str, attributed: bool, has_source: bool) -> None:
    found = list(in_text("page", text))
    assert len(found) == attributed
    assert all(one.has_source == has_source for one in found)


@pytest.mark.parametrize(
    ("head", "before", "has_source"),
    [("the paper", "", False), ("paper, figure 6", "", True), ("the paper", "See III-C.", True)],
)
def test_a_number_in_a_table_is_found(
    tmp_path: Path, head: str, before: str, has_source: bool
) -> None:
    page = tmp_path / "page.rst"
    line = "=====  ==================\n"
    page.write_text(f"Title\n=====\n\n{before}\n\n{line}set    {head}\n{line}a      1.5\n{line}")
    [table] = tables(page)
    [found] = in_table("page", table)
    assert isinstance(found, Attribution)
    assert found.has_source == has_source


def test_each_stated_number_has_a_source() -> None:
    found = dict(_all_stated())
    assert len(found) > 40
    for name, stated in found.items():
        assert re.search(
            r"(figures?|table|section|chapter) (\d|[IVX]+\b)|^Yang et al., evaluation",
            stated.source,
        ), name


@pytest.mark.parametrize("module", NUMBERS, ids=lambda module: module.__name__)
def test_the_modules_of_numbers_have_nothing_without_a_source(module: object) -> None:
    stated = {name.partition(".")[2] for name, _ in _all_stated()}
    assert set(module.__all__) <= stated  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_tables_of_figures_cite_the_paper(path: Path) -> None:
    """The first line of a table, or the head of a column, has the source."""
    note, _, rest = path.read_text(encoding="utf-8").partition("\n")
    lines = rest.splitlines() if note.startswith("#") else [note, *rest.splitlines()]
    for row in csv.DictReader(lines):
        for head, cell in row.items():
            if re.search(r"\bpaper\b|prototype", head) and has_number(cell):
                found = Attribution(path.name, f"{head}: {cell}", f"{note} {head}")
                assert found.has_source, found


# ---- values ----------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_columns_of_papers_have_the_stated_numbers(page: Path) -> None:
    expected = dict(COLUMNS.get(page.name, {}))
    for table in tables(page):
        for number, head in enumerate(table.heads):
            rows = expected.pop((table.section, head), None)
            if rows is None:
                assert number not in table.of_paper, f"{head} is not compared"
                continue
            assert len(rows) == len(table.rows)
            for row, values in zip(table.rows, rows, strict=True):
                stated, _, _ = row[number].partition(";")  # ours follows
                assert _numbers(stated) == list(values), row
    assert not expected
