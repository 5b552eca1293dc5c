"""Completions for bash, zsh and fish: files that the shells read, and start nothing for."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generate.completions import bash, fish, zsh
from docs.generate.reference import Reference, references

PLACES = {
    "bash": "share/bash-completion/completions",
    "zsh": "share/zsh/site-functions",
    "fish": "share/fish/vendor_completions.d",
}
"""Where the shells look below a prefix."""


def completed() -> list[Reference]:
    """The commands that have completions: a module of Python has no name that a shell knows."""
    return [each for each in references() if not each.command.command_line.startswith("python ")]


def pages() -> Iterator[tuple[str, str]]:
    """The files: where each is, and its text."""
    for each in completed():
        name = each.command.command_line.split()[0]
        yield f"{PLACES['bash']}/{name}", bash.script(each)
        yield f"{PLACES['zsh']}/_{name}", zsh.script(each)
        yield f"{PLACES['fish']}/{name}.fish", fish.script(each)
