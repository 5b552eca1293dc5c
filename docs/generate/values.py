"""Words that options accept, apart from the choices of the parsers.

The tools check these words when they run, and list the valid ones in their messages; a test
compares both.
"""

from __future__ import annotations

from typing import NamedTuple

from pcircle.cli.declarations import Options
from pcircle.ops.digest import algorithm_names, checksums


class Values(NamedTuple):
    """The words of an option; if `is_list`, it accepts several, separated by commas."""

    words: tuple[str, ...]
    is_list: bool


def _list(words: str) -> Values:
    return Values(tuple(words.split()), is_list=True)


def _one(words: str) -> Values:
    return Values(tuple(words.split()), is_list=False)


_FIELDS = _list(
    "kind size mtime atime ctime mode owner group links target content xattr acl holes flags "
    "stripe rdev default all"
)
_ALGORITHMS = Values(algorithm_names(), is_list=False)
_ALL_ALGORITHMS = dict.fromkeys((*checksums.NAMES, *algorithm_names()))  # each name once
_EVERYWHERE = {
    "--kind": _list("f d l p s b c"),
    "--signature": _ALGORITHMS,
}
_OF_COMMAND = {
    ("fdiff", "--fields"): _FIELDS,
    ("fdiff", "--ignore"): _FIELDS,
    ("fsum", "--algorithm"): Values(tuple(_ALL_ALGORITHMS), is_list=False),
}
NONE = Values((), is_list=False)


def declared_values(options: type[Options], name: str) -> Values | None:
    """Return the words of an option as declared, or None if it accepts any."""
    for _, declared in options.offered():
        for each in (declared, *declared.also):
            if name in each.names and (each.words or each.word_list):
                return Values((*each.words, *each.word_list), is_list=bool(each.word_list))
    return None


def values_of(command: str, option: str) -> Values:
    """Return the words of an option, by its long name; none if it accepts any."""
    return _OF_COMMAND.get((command, option)) or _EVERYWHERE.get(option, NONE)
