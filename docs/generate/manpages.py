"""Generate the manual pages of all commands from their parsers and the manuals in docs/.

Names, options, examples and exit codes come from the parser, and the sections from the manual.
Environment and files come from the entries of docs/environment.rst that name the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import docutils.core
from docutils import nodes

import pcircle
from docs.generate import roff
from docs.generate.reference import Group, Option, Reference, references

DOCS = Path(__file__).resolve().parents[1]
SECTION = "1"
# Sections that are useless at a terminal, or are elsewhere on the page.
_LEFT_OUT = (
    "Examples", "All options", "All primaries", "From a program", "Measured", "A worked example",
    "Exit codes", "Tables", "Theory",
)  # fmt: skip
_RENAMED = {"Options": "Notes on options"}
# Pages whose sections describe options that several tools have. Titles name these options.
_SHARED = ("common", "reference/logs")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each page."""
    manuals = {each.command.page: each.command.name for each in reversed(references())}
    manuals |= {each.command.name: each.command.name for each in references()}
    page = roff.Page(manuals)
    for each in references():
        yield f"{each.command.name}.{SECTION}", "\n".join(_page(page, each)) + "\n"
    yield f"pcircle.{SECTION}", "\n".join(_list_of_all()) + "\n"


def _begun(name: str, summary: str) -> Iterator[str]:
    yield "'\\\" t"
    yield '.\\" Made from the parser and the manual by python -m docs.generate: edit these.'
    yield f'.TH {name.upper()} {SECTION} "" "pcircle {pcircle.__version__}" "User Commands"'
    yield ".nh"
    yield ".ad l"
    yield roff.heading("Name")
    yield f"{roff.literal(name)} \\- {roff.escaped(summary)}"
    yield roff.heading("Synopsis")


def _list_of_all() -> Iterator[str]:
    """Yield the page of `pcircle`, which lists the commands."""
    yield from _begun("pcircle", "parallel file tools")
    yield roff.bold("pcircle") + " [\\fITOOL\\fR [\\fIOPTION\\fR]... [\\fIOPERAND\\fR]...]"
    yield roff.heading("Description")
    yield "Lists the commands, or runs a tool, also one that is not on PATH."
    yield "Each command has \\fB\\-\\-help\\fR, and a page of its own."
    for each in references():
        command = each.command
        said = f"{roff.escaped(command.summary[0].upper() + command.summary[1:])}."
        yield from roff.item(roff.bold(command.command_line), [said])
    yield roff.heading("See also")
    yield _named(each.command.name for each in references())


def _named(names: Iterable[str]) -> str:
    return ",\n".join(f"\\fB{roff.literal(name)}\\fR(1)" for name in names)


def _page(page: roff.Page, about: Reference) -> Iterator[str]:
    name = about.command.name
    yield from _begun(name, about.command.summary)
    yield ".nf"
    for usage in about.usage:
        words = usage.removeprefix(about.command.command_line)
        yield f"{roff.bold(about.command.command_line)}{roff.literal(words)}"
    yield ".fi"
    title = _manual(about.command.page)
    yield roff.heading("Description")
    yield from _paragraphs(about.description)
    if about.command.page == name:
        intro = [child for child in title.children if not isinstance(child, nodes.section)]
        yield from (text for child in intro if not _is_usage(child) for text in page.made(child))
    yield roff.heading("Options")
    for group in about.groups:
        yield from _group(group)
    if about.primaries:
        yield from _expression(about)
    yield roff.heading("Notes")
    yield from _paragraphs(about.notes)
    yield from _sections(page, title)
    for shared in _SHARED:
        yield from _sections(page, _about_options(_manual(shared), about))
    yield from _end(page, about)


def _paragraphs(texts: tuple[str, ...]) -> Iterator[str]:
    for at, text in enumerate(texts):
        if at:
            yield ".PP"
        yield roff.line(roff.escaped(text))


def _group(group: Group) -> Iterator[str]:
    if group.title != "Options":
        yield roff.subheading(group.title)
    if group.text:
        yield roff.line(roff.escaped(group.text))
    for option in group.options:
        yield from roff.item(_flags(option), [_said(option)])


def _flags(option: Option) -> str:
    value = option.shown_value
    shown = f"[={roff.italic(value[2:-1])}]" if value.startswith("[") else ""
    shown = shown or (f" {roff.italic(value[1:])}" if value else "")
    return ", ".join(roff.bold(flag) + shown for flag in option.flags)


def _said(option: Option) -> str:
    return roff.line(roff.escaped(option.help[:1].upper() + option.help[1:] + "."))


def _expression(about: Reference) -> Iterator[str]:
    yield roff.heading("Expression")
    group = ""
    for each in about.primaries:
        if each.group != group:
            group = each.group
            yield roff.subheading(group)
        behind = "".join(f" {roff.italic(metavar)}" for metavar in each.metavars)
        term = ", ".join(roff.bold(flag) + behind for flag in each.flags)
        yield from roff.item(term, [f"{roff.escaped(each.help[:1].upper() + each.help[1:])}."])


def _manual(page: str) -> nodes.section:
    """Return the parsed manual."""
    return parsed((DOCS / f"{page}.rst").read_text(encoding="utf-8"))


def parsed(text: str) -> nodes.section:
    """Parse a page with one title. Any problem in it is an error."""
    settings = {"report_level": 2, "halt_level": 2, "doctitle_xform": False}
    document = docutils.core.publish_doctree(text, settings_overrides=settings)
    return next(iter(document.findall(nodes.section)))


def _about_options(shared: nodes.section, about: Reference) -> nodes.section:
    """Return only the sections whose titles name an option of the command."""
    flags = {flag for option in about.options for flag in option.flags}
    found = nodes.section()
    found += [
        section.deepcopy()
        for section in shared.children
        if isinstance(section, nodes.section)
        and flags.intersection(each.astext() for each in section[0].findall(nodes.literal))
    ]
    return found


def _is_usage(node: nodes.Node) -> bool:
    return isinstance(node, nodes.literal_block) and "[OPTION]..." in node.astext()


def _sections(page: roff.Page, title: nodes.section) -> Iterator[str]:
    for section in title.children:
        if isinstance(section, nodes.section):
            name = section.children[0].astext()
            if name not in _LEFT_OUT:
                yield roff.heading(_RENAMED.get(name, name))
                yield from roff.begun(page.body(section))


def _end(page: roff.Page, about: Reference) -> Iterator[str]:
    yield roff.heading("Exit status")
    for each in about.exit_codes:
        codes = roff.bold(", ".join(map(str, each.codes)))
        yield from roff.item(
            codes, [f"{roff.escaped(each.meaning[:1].upper() + each.meaning[1:])}."]
        )
    for section in _manual("environment").children:
        if isinstance(section, nodes.section):
            yield roff.heading(section.children[0].astext())
            yield from _of_command(page, section, about.command.name)
    yield roff.heading("Examples")
    yield from roff.block("\n".join(about.examples))
    yield roff.heading("See also")
    yield _named(["pcircle", *(each.command.name for each in references() if each is not about)])


def _of_command(page: roff.Page, section: nodes.section, name: str) -> Iterator[str]:
    """Yield the definitions of a section that name this command after the colon."""
    for entry in section.findall(nodes.definition_list_item):
        commands = {each.astext() for each in entry.findall(nodes.classifier)}
        named = {word for text in commands for word in text.split(", ")}
        if named & {name, "all"}:
            alone = nodes.definition_list("", entry.deepcopy())
            yield from page.made(alone)
