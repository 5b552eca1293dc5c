"""A tool whose reports have a row per rank up to another number of ranks.

``python -m tests.runtime.summing ROWS TOOL ARGUMENT...``
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from pcircle.circle import EngineSettings
from pcircle.cli.startup import command
from pcircle.runtime import Observer, Program, Task

_usual = Program.settings


def settings(self: Program, observer: Observer[Any] | None, task: Task[Any, Any]) -> EngineSettings:
    """Return the settings of the tool, with the given `rank_rows`."""
    return msgspec.structs.replace(_usual(self, observer, task), rank_rows=int(ROWS))


if __name__ == "__main__":
    _, ROWS, tool, *arguments = sys.argv
    sys.argv = [tool, *arguments]
    Program.settings = settings  # type: ignore[method-assign]
    sys.exit(command(tool)())
