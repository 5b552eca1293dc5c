"""Finds the numbers that a text attributes to a paper, and whether a source is cited.

A sentence that names a paper or its authors and has a number must cite a figure, a table, a section
or the like. So must a list item whose emphasized beginning has a number, because it quotes a paper.
The source of a number in a table's column for the paper may also be in its row, in the head of a
column, or in the paragraph before the table.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.core import publish_doctree

_PAPER = re.compile(
    r"\b((?i:papers?(?!-)|thesis|authors)|LaFon|Misra|Carns|Settlemyer|Wang|Snyder|Yang)\b"
)
_PART = r"(\d+(\([ab]\))?(-\d+)?|[IVX]+(-[A-Z])?)"
_KIND = r"(figs?\.?|figures?|tables?|sections?|chapters?|cases?)"
_SOURCE = re.compile(
    rf"\b{_KIND} {_PART}((,| and| to|, and) {_PART})*\b"
    r"|\b[IVX]+-[A-Z]\b|\(III?\b|\b(abstract|evaluation)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\b(19|20)\d\d(-\d\d-\d\d)?\b|\bsets? \d(,? (and )?\d)*\b|\b[A-Za-z_]+-?\d+\b|\bLinux [\d.]+",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(ten|hundred|thousand|million|half|quarter|twice|doubled?|orders? of magnitude)\b",
    re.IGNORECASE,
)
_END = re.compile(r"(?<=[.?!])(?<!\bal\.)(?<!\bfig\.)(?<!\bfigs\.) |(?<=\bal\.) (?=[A-Z])")


class Attribution(NamedTuple):
    """A text with a number of a paper, and what may cite its source."""

    place: str
    text: str
    context: str

    @property
    def has_source(self) -> bool:
        return _SOURCE.search(self.context) is not None


class Table(NamedTuple):
    """A table of a page: its section, the paragraph before it, its heads and its rows."""

    section: str
    before: str
    heads: list[str]
    rows: list[list[str]]

    @property
    def of_paper(self) -> list[int]:
        """Return the columns that have numbers of a paper."""
        return [
            number
            for number, head in enumerate(self.heads)
            if _PAPER.search(head) and any(has_number(row[number]) for row in self.rows)
        ]


def has_number(text: str) -> bool:
    """Return whether a text has a number that is no reference and no label."""
    return _NUMBER.search(_LABEL.sub(" ", _SOURCE.sub(" ", text))) is not None


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without references to code."""
    bare = re.sub(r"``[^`]*``|`[^`]*`|examples\.papers\S*", "", text)
    return _END.split(" ".join(bare.split()))


def in_text(place: str, text: str, emphasized: str = "") -> Iterator[Attribution]:
    """Yield what a paragraph attributes to a paper; *emphasized* is its beginning."""
    for number, sentence in enumerate(sentences(text)):
        named = _PAPER.search(sentence) and has_number(sentence)
        if named or (number == 0 and has_number(emphasized)):
            yield Attribution(place, sentence, sentence)


def in_page(page: Path) -> Iterator[Attribution]:
    """Yield what a page attributes to a paper."""
    document = _document(page)
    for paragraph in document.findall(nodes.paragraph):
        if not _is_within(paragraph, nodes.table):
            place = f"{page.name}, {_section(paragraph)}"
            yield from in_text(place, _plain(paragraph), _emphasized(paragraph))
    for table in tables(page):
        yield from in_table(page.name, table)


def in_table(page: str, table: Table) -> Iterator[Attribution]:
    """Yield the rows that have a number of a paper."""
    for row in table.rows:
        columns = [n for n, cell in enumerate(row) if n in table.of_paper or _PAPER.search(cell)]
        if any(has_number(row[number]) for number in columns):
            titled = [f"{head} {cell}" for head, cell in zip(table.heads, row, strict=True)]
            context = "\n".join([table.before, *titled])
            yield Attribution(f"{page}, {table.section}", " | ".join(row), context)


def tables(page: Path) -> list[Table]:
    """Return the tables of a page that have a head."""
    return [
        Table(_section(table), _before(table), _heads(table), _rows(table, nodes.tbody))
        for table in _document(page).findall(nodes.table)
        if _heads(table)
    ]


def in_module(module: Path) -> Iterator[Attribution]:
    """Yield what the docstrings and comments of a module attribute to a paper."""
    source = module.read_text(encoding="utf-8")
    for text in (*_docstrings(source), *_comments(source)):
        for paragraph in re.split(r"\n\s*\n", text):
            yield from in_text(module.name, paragraph)


@cache
def _document(page: Path) -> nodes.document:
    settings = {"report_level": 5, "halt_level": 5}
    return publish_doctree(page.read_text(encoding="utf-8"), settings_overrides=settings)


def _plain(node: nodes.Node) -> str:
    """Return the text of a node without literals, in one line."""
    texts = (text for text in node.findall(nodes.Text) if not _is_within(text, nodes.literal))
    return " ".join("".join(text.astext() for text in texts).split())


def _is_within(node: nodes.Node, kind: type[nodes.Element]) -> bool:
    return any(isinstance(parent, kind) for parent in _parents(node))


def _parents(node: nodes.Node) -> Iterator[nodes.Element]:
    while node.parent is not None:
        yield node.parent
        node = node.parent


def _section(node: nodes.Node) -> str:
    kinds = (nodes.section, nodes.document)
    section = next(parent for parent in _parents(node) if isinstance(parent, kinds))
    return section.children[0].astext()


def _emphasized(paragraph: nodes.paragraph) -> str:
    """Return the emphasized beginning of a list item."""
    first = paragraph.children[0]
    item = isinstance(paragraph.parent, nodes.list_item)
    return first.astext() if item and isinstance(first, nodes.emphasis) else ""


def _before(table: nodes.table) -> str:
    siblings: Sequence[nodes.Node] = table.parent.children
    above = siblings[: siblings.index(table)]
    texts = [_plain(sibling) for sibling in above if isinstance(sibling, nodes.paragraph)]
    return texts[-1] if texts else ""


def _heads(table: nodes.table) -> list[str]:
    return [" ".join(column).strip() for column in zip(*_rows(table, nodes.thead), strict=True)]


def _rows(table: nodes.table, part: type[nodes.Element]) -> list[list[str]]:
    return [
        [_plain(entry) for entry in row.findall(nodes.entry)]
        for body in table.findall(part)
        for row in body.findall(nodes.row)
    ]


def _docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def _comments(source: str) -> list[str]:
    """Return the comments; join consecutive lines."""
    found: list[str] = []
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            (line, column), text = token.start, token.string.lstrip("# ")
            if line == previous + 1 and not token.line[:column].strip():
                found[-1] += f" {text}"
            else:
                found.append(text)
            previous = line
    return found
