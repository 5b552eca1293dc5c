"""Convert reStructuredText to the language of manual pages: roff with the macros of man(7).

It supports the elements of the manuals in docs/: paragraphs, lists, tables, literal blocks, links.
Any other element is an error, so nothing is omitted silently. Pictures are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from docutils import nodes

_QUOTED = {"\\": "\\e", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", "-": "\\-"}
_INDENT = 4
# Elements without text, and pictures. Messages of docutils get here only below warning level.
_UNSEEN = (
    nodes.comment,
    nodes.figure,
    nodes.image,
    nodes.system_message,
    nodes.target,
    nodes.title,
)


def escaped(text: str) -> str:
    """Escape prose, so that roff does not interpret it."""
    return "".join(_escape(letter, {"\\": "\\e"}) for letter in text)


def literal(text: str) -> str:
    """Escape literal input, so that no hyphens or curly quotes replace ASCII characters."""
    return "".join(_escape(letter, _QUOTED) for letter in text)


def bold(text: str) -> str:
    """Return literal input in bold."""
    return f"\\fB{literal(text)}\\fR"


def italic(text: str) -> str:
    """Return a placeholder in italics."""
    return f"\\fI{literal(text)}\\fR"


def line(text: str) -> str:
    """Return a line of text, protected if it begins like a roff request."""
    return f"\\&{text}" if text[:1] in (".", "'") else text


def heading(title: str) -> str:
    """Return the heading of a section."""
    return f".SH {_argument(title.upper())}"


def subheading(title: str) -> str:
    """Return the heading of a subsection."""
    return f".SS {_argument(title)}"


def block(text: str) -> list[str]:
    """Return lines as an indented literal block."""
    lines = [line(literal(each)) for each in text.expandtabs().splitlines()]
    return [f".RS {_INDENT}", ".nf", *lines, ".fi", ".RE"]


def item(term: str, text: Iterable[str]) -> list[str]:
    """Return a term and its description."""
    return [".TP", line(term), *text]


def _escape(letter: str, known: dict[str, str]) -> str:
    return known.get(letter) or (letter if letter.isascii() else f"\\[u{ord(letter):04X}]")


def _argument(text: str) -> str:
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


class Page:
    """Convert parts of a document to roff. `manuals` maps pages to the commands they describe."""

    def __init__(self, manuals: dict[str, str]) -> None:
        self._manuals = manuals
        self._blocks: dict[type[nodes.Node], Callable[..., list[str]]] = {
            nodes.paragraph: self._paragraph,
            nodes.literal_block: self._literal_block,
            nodes.bullet_list: self._bullet_list,
            nodes.enumerated_list: self._enumerated_list,
            nodes.definition_list: self._definition_list,
            nodes.table: self._table,
            nodes.section: self._section,
            nodes.note: self.body,
            nodes.block_quote: self._quote,
        }

    def body(self, node: nodes.Element) -> list[str]:
        """Convert the children of a node."""
        return [text for child in node.children for text in self.made(child)]

    def made(self, node: nodes.Node) -> list[str]:
        """Convert a block. Raise ValueError if its kind is not supported."""
        if isinstance(node, _UNSEEN):
            return []
        make = self._blocks.get(type(node))
        if make is None:
            raise ValueError(f"no way to put this on a manual page: {node}")
        return make(node)

    def text(self, node: nodes.Element) -> str:
        """Convert the text of a node, with its fonts, to one line."""
        parts = []
        for child in node.children:
            if isinstance(child, nodes.Text):
                parts.append(escaped(" ".join(child.astext().split("\n"))))
            elif isinstance(child, nodes.literal | nodes.strong):
                parts.append(bold(" ".join(child.astext().split("\n"))))
            elif isinstance(child, nodes.emphasis | nodes.title_reference):
                parts.append(italic(child.astext()))
            elif isinstance(child, nodes.reference):
                parts.append(self._link(child))
            elif not isinstance(child, nodes.target):
                raise ValueError(f"no way to put this into a line of a manual page: {child}")
        return "".join(parts)

    def _link(self, node: nodes.reference) -> str:
        uri = node.get("refuri", "")
        command = self._manuals.get(uri.partition("#")[0].removesuffix(".rst"))
        if command is not None:
            return f"\\fB{command}\\fR(1)"
        return self.text(node) + (f" ({escaped(uri)})" if "://" in uri else "")

    def _paragraph(self, node: nodes.paragraph) -> list[str]:
        text = self.text(node)
        return [".PP", line(text)] if text else []

    def _literal_block(self, node: nodes.literal_block) -> list[str]:
        return [".PP", *block(node.astext())]

    def _quote(self, node: nodes.block_quote) -> list[str]:
        return [f".RS {_INDENT}", *self.body(node), ".RE"]

    def _section(self, node: nodes.section) -> list[str]:
        title = next(iter(node.findall(nodes.title)))
        return [subheading(title.astext()), *begun(self.body(node))]

    def _bullet_list(self, node: nodes.bullet_list) -> list[str]:
        return self._list(node, ["\\(bu"] * len(node.children))

    def _enumerated_list(self, node: nodes.enumerated_list) -> list[str]:
        return self._list(node, [f"{number}." for number in range(1, len(node.children) + 1)])

    def _list(self, node: nodes.Element, marks: list[str]) -> list[str]:
        made = []
        for mark, child in zip(marks, node.findall(nodes.list_item, descend=True), strict=False):
            made += [f".IP {mark} {_INDENT}", *self._within(child)]
        return made

    def _definition_list(self, node: nodes.definition_list) -> list[str]:
        made = []
        for child in node.children:
            term = next(iter(child.findall(nodes.term)))
            definition = next(iter(child.findall(nodes.definition)))
            made += item(self.text(term), self._within(definition))
        return made

    def _within(self, node: nodes.Element) -> list[str]:
        """Convert blocks after a mark or a term, which share a line with the first paragraph."""
        first, *others = node.children
        made = [line(self.text(first))] if isinstance(first, nodes.paragraph) else self.made(first)
        rest = [text for child in others for text in self.made(child)]
        return [*made, ".RS", *begun(rest), ".RE"] if rest else made

    def _table(self, node: nodes.table) -> list[str]:
        rows = [
            [self._cell(entry) for entry in row.findall(nodes.entry)]
            for row in node.findall(nodes.row)
        ]
        heads = len(list(next(iter(node.findall(nodes.tgroup))).findall(nodes.thead)))
        if len(rows[0]) == 2 and not heads:
            return [text for term, about in rows for text in item(term, [line(about)])]
        made = [".PP", ".TS", " ".join(["l"] * (len(rows[0]) - 1) + ["lx"]) + "."]
        for row in rows:
            made.append("\t".join(f"T{{\n{line(cell)}\nT}}" if cell else "" for cell in row))
            if heads and row is rows[0]:
                made.append("_")
        return [*made, ".TE"]

    def _cell(self, node: nodes.entry) -> str:
        return " ".join(self.text(each) for each in node.findall(nodes.paragraph))


def begun(lines: list[str]) -> list[str]:
    """Remove the space before the first paragraph, where there is space already."""
    return lines[1:] if lines[:1] == [".PP"] else lines
