"""Failures on standard error: a person is shown the first ones, and where the others are.

Two thousand lines are no message. Entries are named until they would fill screens;
then the error log has the rest, or would have it. Where nobody watches and no log is written, all
are named: standard error is the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from pcircle.ui.names import show
from pcircle.ui.output import Output

SHOWN = 20


class Capped:
    """Names failures: no more than `SHOWN` lines, unless nobody would know the rest."""

    def __init__(self, tool: str, stream: TextIO | None, log: str | None) -> None:
        self._tool = tool
        self._everything = log is None and not Output(stream).isatty()
        self._log = log
        self._seen = 0

    def take(self, lines: Sequence[str]) -> list[str]:
        """Those of some more lines that are shown, and with the first that is not the reason."""
        room = max(0, SHOWN - self._seen)
        before, self._seen = self._seen, self._seen + len(lines)
        if self._everything or self._seen <= SHOWN:
            return list(lines)
        said = list(lines[:room])
        if before <= SHOWN:
            listed = "add --error-log FILE to list all"
            where = listed if self._log is None else f"'{show(os.fsencode(self._log))}' lists all"
            said.append(f"{self._tool}: further failures are only counted: {where}")
        return said
