"""A limit on the failures that are printed to standard error.

Thousands of lines help nobody. The first failures are printed; then one line refers to the error
log, or to the option for it. If standard error is not a terminal and there is no error log, all
failures are printed, because standard error is the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from pcircle.cli.output import Output
from pcircle.core.names import show

SHOWN = 20


class Capped:
    """Limits messages about failures to `SHOWN` lines, unless they would be lost."""

    def __init__(self, tool: str, stream: TextIO | None, log: str | None) -> None:
        self._tool = tool
        self._everything = log is None and not Output(stream).isatty()
        self._log = log
        self._seen = 0

    def take(self, lines: Sequence[str]) -> list[str]:
        """Return the lines to print; the first omitted line is replaced by the reason."""
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
