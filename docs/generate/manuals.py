"""Generate the lists of options in the manuals of docs/, between two comments of each page."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.generate.paragraphs import declared_text
from docs.generate.reference import Option, Reference, references
from pcircle.cli.arguments import Parser
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import require_type

DOCS = Path(__file__).resolve().parents[1]
BEGIN = ".. From here made from the parser by python -m docs.generate: edit the help there."
END = ".. Up to here."
_EXIT_CODES = "`Exit codes <exit-codes.rst>`_ are the same for all tools."

# Options of the common filters that do not select by themselves.
_LISTS = ("files_from", "null")

FILTERS = re.compile(
    r"(\.\. Filters, made from their declarations:\n\n).*?" rf"(?={re.escape(END)})", re.DOTALL
)
SECTION = re.compile(
    r"(\.\. Options of the section \"([^\"]+)\", made from their declarations:\n\n).*?"
    rf"(?={re.escape(END)})",
    re.DOTALL,
)
REPEATED = re.compile(
    r"(\.\. Options that a resumed run must repeat, made from their declarations:\n\n).*?"
    rf"(?={re.escape(END)})",
    re.DOTALL,
)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each manual with its current list, which is appended if the page has none yet."""
    for page in dict.fromkeys(each.command.page for each in references()):
        path = DOCS / f"{page}.rst"
        text = path.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        about = [each for each in references() if each.command.page == page]
        before = FILTERS.sub(functools.partial(_filters, about), before)
        before = SECTION.sub(functools.partial(_section, about), before)
        before = REPEATED.sub(functools.partial(_repeated, about), before)
        made = "\n".join(_lists(about))
        if not begin:
            before, after = before + "\n", "\n"
        yield path, f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def _lists(about: Sequence[Reference]) -> Iterator[str]:
    """Yield the options of a page; an option of some of its commands names these commands."""
    yield from _titled("All options")
    groups: dict[str, list[Option]] = {}
    for group in (group for each in about for group in each.groups):
        known = {option.flags for option in groups.setdefault(group.title, [])}
        groups[group.title] += [option for option in group.options if option.flags not in known]
    for title, options in groups.items():
        if title != "Options":
            yield f"{title}:\n"
        for option in options:
            of = [each.command.name for each in about if option in each.options]
            alone = "" if len(of) == len(about) else f" ({' and '.join(of)} only)"
            yield from _defined(option.flags, option.shown_value, option.help + alone)
        yield ""
    if about[0].primaries:
        yield from _titled("All primaries")
        yield from _primaries(about[0])
    if about[0].exit_codes:
        yield from _titled("Exit codes")
        for meaning in about[0].exit_codes:
            codes = ", ".join(f"``{code}``" for code in meaning.codes)
            yield from _defined_as(codes, meaning.meaning)
        yield f"\n{_EXIT_CODES}\n"


def _filters(about: Sequence[Reference], found: re.Match[str]) -> str:
    """Return the comment, and a sentence that names the command's options of the common filters."""
    options = require_type(Parser, about[0].command.built()).options
    declared = [
        each
        for field, each in options.offered()
        if field in CommonOptions.FILTERS.fields and field not in _LISTS
    ]
    *names, last = (f"``{one.name}``" for each in declared for one in (each, *each.also))
    shown = f"{', '.join(names)} and {last}"
    text = f"The filters {shown} have the same meaning as in `all tools <common.rst>`_."
    return f"{found[1]}{textwrap.fill(text, 100, break_on_hyphens=False)}\n\n"


def _repeated(about: Sequence[Reference], found: re.Match[str]) -> str:
    """Return the comment, and a paragraph with the options that a resumed run must repeat."""
    options = require_type(Parser, about[0].command.built()).options
    names = [f"``{name}``" for names in options.resume_facts().values() for name in names]
    shown = ", ".join(names).replace("``filters``", "filters")
    text = f"A resumed run must have the same umask, unless it keeps modes, and the same {shown}."
    return f"{found[1]}{textwrap.fill(text, 100, break_on_hyphens=False)}\n\n"


def _section(about: Sequence[Reference], found: re.Match[str]) -> str:
    """Return the comment that begins a section, and the paragraphs of its options."""
    groups = (group for each in about for group in each.groups if group.title == found[2])
    lines: dict[str, None] = {}
    for option in next(groups).options:
        text = declared_text(about[0].command, option.name)
        if text:
            term = ", ".join(f"``{flag}{option.shown_value}``" for flag in option.flags)
            lines[f"{term}\n{textwrap.indent(text, '    ')}\n"] = None
    return "".join((found[1], *lines, "\n"))


def _primaries(about: Reference) -> Iterator[str]:
    group = ""
    for each in about.primaries:
        if each.group != group:
            group = each.group
            yield f"\n{group}:\n" if each is not about.primaries[0] else f"{group}:\n"
        behind = "".join(f" {metavar}" for metavar in each.metavars)
        yield from _defined(each.flags, behind, each.help)
    yield ""


def _titled(title: str) -> Iterator[str]:
    yield f"{title}\n{'-' * len(title)}\n"


def _defined(flags: Sequence[str], behind: str, text: str) -> Iterator[str]:
    yield from _defined_as(", ".join(f"``{flag}{behind}``" for flag in flags), text)


def _defined_as(term: str, text: str) -> Iterator[str]:
    yield term
    yield f"    {text[0].upper()}{_escaped(text[1:])}."


def _escaped(text: str) -> str:
    """Escape marks of reStructuredText: stars begin emphasis, and `file:PATH` would be a link."""
    return re.sub(r"([\\*`]|:(?=\S))", r"\\\1", text)
