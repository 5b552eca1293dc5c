"""Index entries for options and messages, which the search of the site shows before other results.

An option in the title of a section, such as ``Lists: ``--list-out```` , leads to that section. An
option in the list of all options leads to its line; it ranks with other results if several tools
have the option. A message on the page of troubleshooting leads to its explanation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from docs.generate.reference import references

MESSAGES = "troubleshooting"
ALL_OPTIONS = "All options"
_FEWEST_LETTERS = len("--j")
_FEWEST_MESSAGE_LETTERS = len("not installed")


class OptionIndex(SphinxTransform):
    """Add the index entries of a page."""

    default_priority = 410

    def apply(self, **_: Any) -> None:
        for section in list(self.document.findall(nodes.section)):
            title = next(section.findall(nodes.title))
            options = _options(title)
            if options:
                section.insert(1, _index(section["ids"][0], options, is_main=True))
            if title.astext() == ALL_OPTIONS:
                self._add_terms(section)
        if self.env.docname == MESSAGES:
            self._add_messages()

    def _add_terms(self, section: nodes.section) -> None:
        for term, definition in _definitions(section):
            options = _options(term)
            if options:
                target = nodes.make_id(f"option-{options[-1]}")
                term["ids"].append(target)
                is_main = _COUNTS[options[-1]] == 1
                definition.insert(0, _index(target, options, is_main=is_main))

    def _add_messages(self) -> None:
        for number, (term, definition) in enumerate(_definitions(self.document)):
            target = f"message-{number}"
            term["ids"].append(target)
            parts = (part.strip(" :;,.'()") for part in term.astext().split("…"))
            texts = [part for part in parts if len(part) >= _FEWEST_MESSAGE_LETTERS]
            definition.insert(0, _index(target, texts, is_main=True))


def _definitions(node: nodes.Node) -> Iterator[tuple[nodes.term, nodes.definition]]:
    """Yield the terms and definitions below a node."""
    for item in node.findall(nodes.definition_list_item):
        (term,), (definition,) = item.findall(nodes.term), item.findall(nodes.definition)
        yield term, definition


def _options(node: nodes.Node) -> list[str]:
    """Return the long options among the literals of a node, without their values."""
    words = (literal.astext().split("[")[0].split() for literal in node.findall(nodes.literal))
    return [word[0] for word in words if word and word[0].startswith("--")]


def _index(target: str, texts: Iterable[str], *, is_main: bool) -> addnodes.index:
    entries = [
        ("single", name, target, "main" if is_main else "", None)
        for text in texts
        for name in _names(text)
    ]
    return addnodes.index(entries=entries)


def _names(text: str) -> Iterator[str]:
    """Yield a text and, if it is an option, also its name without dashes."""
    yield text
    if text.startswith("--") and len(text) > _FEWEST_LETTERS:
        yield text.removeprefix("--")


def _pages_with(options: Iterable[tuple[str, str]]) -> Counter[str]:
    """Count the pages on which each option is listed, of pairs of a page and an option."""
    return Counter(option for _, option in set(options))


_COUNTS = _pages_with(
    (each.command.page, flag)
    for each in references()
    for option in each.options
    for flag in option.flags
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform with Sphinx."""
    app.add_transform(OptionIndex)
    return {"parallel_read_safe": True}
