"""Searches in the process of the test, with their output."""

from __future__ import annotations

import os
from typing import NamedTuple

from pcircle.cli.program import TreeReport
from pcircle.library.call import Call, arguments_of, run_words

_ACTIONS = ("-print", "-ls", "-json", "-csv", "-count", "-du", "-exec", "-delete", "-fprint")


class Search(NamedTuple):
    """The report of a search, and the bytes that the command would print."""

    report: TreeReport
    text: bytes

    @property
    def paths(self) -> list[bytes]:
        """Return the paths, which end with NUL unless the expression prints lines."""
        return self.text.split(b"\0" if b"\0" in self.text else b"\n")[:-1]


def find(*words: str | bytes, **options: object) -> Search:
    """Search like `pcircle.find`, but on this thread; also return the output of actions."""
    pieces: list[bytes] = []
    line = [*arguments_of("find", options)[0], *map(os.fsdecode, words)]
    report = run_words("find", line, Call(stdout=pieces.append))
    text = b"".join(pieces)
    has_action = any(word.startswith(_ACTIONS) and word != "-executable" for word in line)
    return Search(report, text if has_action else text.replace(b"\0", b"\n"))
