"""All options of a command, at the end of its manual: made from its parser.

So each option that `--help` shows is on the site, with a link of its own, and says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

from docs.generate.reference import Group, Option, Reference, references

_SPECIAL = str.maketrans({each: f"\\{each}" for each in "\\*`_|"})


def section(command: Reference) -> Iterator[str]:
    """Lines of the section that a manual ends with."""
    title = f"All options of {command.command.typed}"
    yield from ("", "", title, "-" * len(title), "", "::", "")
    yield from (f"    {line}" for line in command.usage)
    yield from ("", f".. program:: {command.command.typed.rpartition('.')[2]}", "")
    for group in command.groups:
        yield from _group(group)
    for title in dict.fromkeys(each.group for each in command.primaries):
        yield from (f".. rubric:: Expressions: {title[0].lower()}{title[1:]}", "")
        for each in command.primaries:
            if each.group == title:
                yield from _entry(each.invocation, each.help, each.choices)
    yield from ("Examples::", "")
    yield from (f"    {line}" for line in command.examples)
    yield ""


def _group(group: Group) -> Iterator[str]:
    yield from (f".. rubric:: {group.title}", "")
    if group.text:
        yield from (group.text.translate(_SPECIAL), "")
    for option in group.options:
        yield from _entry(option.invocation, _said(option), option.choices)


def _said(option: Option) -> str:
    default = option.default if option.default not in ("0", "[]") else ""
    is_said = not default or "default" in option.help
    return option.help if is_said else f"{option.help} (default: {default})"


def _entry(invocation: str, text: str, choices: tuple[str, ...]) -> Iterator[str]:
    shown = [each for each in choices if each not in invocation]
    words = text.translate(_SPECIAL)
    yield f".. option:: {invocation}".replace("\\", "\\\\")
    yield from ("", f"   {words[:1].upper()}{words[1:]}.")
    if shown:
        yield f"   One of {', '.join(f'``{each}``' for each in shown)}."
    yield ""


def append(app: Sphinx, name: str, source: list[str]) -> None:
    """Give a manual its end."""
    for command in references():
        if command.command.page == name:
            source[0] += "\n".join(section(command))


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("source-read", append)
    return {"parallel_read_safe": True}
