"""`--max-delete` with `--delete=during`: removals are counted before the copy.

Two jobs: one compares both sides like a dry run, the other walks extraneous entries without
removing them. If there are too many, or if they could not be counted, the mirror that follows
removes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any

import msgspec

from pcircle.cli.program import run_tool
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.ops.checkpoint.resume import CheckpointOptions
from pcircle.tools.fmirror.options import QUIET, UNTOLD, MirrorOptions
from pcircle.tools.fmirror.plan import DeletionPolicy
from pcircle.tools.fmirror.removal import DeletionProgram, ExtraneousPaths
from pcircle.tools.fmirror.report import MirrorConsole


def counted(
    args: argparse.Namespace,
    options: MirrorOptions,
    looked: Callable[[MirrorOptions], tuple[int, MirrorConsole | None]],
) -> tuple[int, MirrorOptions]:
    """Return the exit code of counting, and the options of the mirror that follows.

    `looked` runs the first job with its options; it returns its exit code and, on rank 0, its
    findings.
    """
    more: dict[str, Any] = {"dry": True, "itemize": False, "sign": None, "verify": False}
    more |= {"looks": "surplus", "moved": False, "checkpoint": CheckpointOptions(never=True)}
    more["deleting"] = msgspec.structs.replace(options.deleting, during=False)
    code, console = looked(msgspec.structs.replace(options, **QUIET, **UNTOLD, **more))
    with nullcontext() if console is None else closing(console):
        if code == UsageError.exit_code:
            return 0, options  # the mirror reports it
        if code in (0, EntriesFailed.exit_code):
            found, entries = (
                (ExtraneousPaths(), 0) if console is None else (console.found, console.entries)
            )
            if console is not None:
                found.add_all(console.doubtful)
            untold = argparse.Namespace(
                **vars(args) | UNTOLD | {"verbose": 0, "itemize": False, "quiet": True}
            )
            rules = () if console is None else console.rules
            removal = DeletionProgram(
                untold, options.target, found, entries, dry=True, keeps=False, rules=rules
            )
            removal.again = True
            code = run_tool(removal, options)
    if code in (0, EntriesFailed.exit_code):  # the copy reports failures again
        return 0, options
    return code, msgspec.structs.replace(options, deleting=DeletionPolicy())
