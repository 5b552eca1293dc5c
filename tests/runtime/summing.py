"""A tool whose ranks have a row each in the report up to another number of them.

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
    """The tool's own, with `rank_rows` as asked for."""
    return msgspec.structs.replace(_usual(self, observer, task), rank_rows=int(ROWS))


if __name__ == "__main__":
    _, ROWS, tool, *arguments = sys.argv
    sys.argv = [tool, *arguments]
    Program.settings = settings  # type: ignore[method-assign]
    sys.exit(command(tool)())
