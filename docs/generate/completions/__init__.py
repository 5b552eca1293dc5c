"""Generate completions for bash, zsh and fish: static files that the shells read."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generate.completions import bash, fish, zsh
from docs.generate.completions.flags import WITHOUT_COMPLETION, program_of
from docs.generate.reference import Reference, references

PLACES = {
    "bash": "share/bash-completion/completions",
    "zsh": "share/zsh/site-functions",
    "fish": "share/fish/vendor_completions.d",
}
"""Directories that the shells search, below a prefix."""


def completed() -> list[Reference]:
    """Return the commands that have completions."""
    return [each for each in references() if program_of(each)[1] != WITHOUT_COMPLETION]


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    for each in completed():
        name = each.command.command_line.split()[0]
        yield f"{PLACES['bash']}/{name}", bash.script(each)
        yield f"{PLACES['zsh']}/_{name}", zsh.script(each)
        yield f"{PLACES['fish']}/{name}.fish", fish.script(each)
