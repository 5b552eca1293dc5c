"""A run of fmirror, as the command or as a function."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pcircle.fs.safe_open import any_link
from pcircle.tools.fmirror.options import options_of
from pcircle.tools.fmirror.phases import MirrorRun
from pcircle.tools.fmirror.state.lock import Lock

if TYPE_CHECKING:
    import argparse

    from pcircle.tools.fmirror.report import MirrorReport


def run_command(args: argparse.Namespace) -> int:
    """Carry out a parsed command line and return the exit code. UsageError."""
    return _run(args)[0]


def called(args: argparse.Namespace) -> MirrorReport | None:
    """Run a mirror from a program without output, and return the report."""
    args.quiet, args.progress, args.verbose, args.itemize = True, "never", 0, False
    return _run(args)[1]


def _run(args: argparse.Namespace) -> tuple[int, MirrorReport | None]:
    options = options_of(args)
    lock = Lock()
    with any_link(options.insecure_links), ExitStack() as ending:
        ending.callback(lock.end)
        run = MirrorRun(args, options, lock, ending)
        report = run.execute()
        return run.code, report
