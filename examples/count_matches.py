"""Count matching lines in all files of trees, as `grep -c -r` does: a tool of one's own.

mpirun -np 8 python examples/count_matches.py -i --include '*.log' error /var/log
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any

import msgspec

from pcircle.cli.arguments import Parser
from pcircle.cli.program import TreeConsole, TreeOptions, TreeProgram, main, tree_parser
from pcircle.core.errors import UsageError
from pcircle.jobs.failures import Failure
from pcircle.jobs.tree_task import Entry, TreeCounters, TreePlan, TreeTask
from pcircle.runtime import Context


class Plan(TreePlan, frozen=True, kw_only=True):
    pattern: bytes


class Counters(TreeCounters):
    lines: int


class Count(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    path: bytes
    lines: int


class Task(TreeTask):
    notice_type, counters_type = Failure | Count, Counters
    plan: Plan

    def begin(self) -> None:
        self._search = re.compile(self.plan.pattern).search

    def file(self, entry: Entry, context: Context[Any]) -> None:
        with entry.open() as lines:
            found = sum(1 for line in lines if self._search(line.removesuffix(b"\n")))
        self.counters.lines += found
        context.note([Count(entry.shown, found)])


class Console(TreeConsole):
    def text(self, notice: Failure | Count) -> bytes:
        return b"%b:%d\n" % (notice.path, notice.lines) if isinstance(notice, Count) else b""

    def summary(self, total: Counters) -> str:
        return f"{total.lines:,} matching lines in {total.files:,} files"


class Program(TreeProgram):
    name = "count_matches"
    plan_type, task_type, console_type = Plan, Task, Console


def parser() -> Parser:
    p = tree_parser(Program.name, "PATTERN PATH...", "Count matching lines of each file.")
    p.add_argument("-i", "--ignore-case", action="store_true", help="ignore upper and lower case")
    return p


def carry_out(args: argparse.Namespace) -> int:
    pattern, *paths = map(os.fsencode, args.operands or [""])
    try:
        pattern = re.compile(b"(?i)" * args.ignore_case + pattern).pattern
    except re.error as error:
        raise UsageError(f"invalid PATTERN: {error}") from None
    return Program(TreeOptions.of(args), paths, pattern=pattern).run()


if __name__ == "__main__":
    sys.exit(main(parser, carry_out))
