"""The program of fcp: interprets the options and runs the copy."""

from __future__ import annotations

import argparse

from pcircle.tools.common.copy_program import run_copy
from pcircle.tools.fcp.options import FcpOptions


def copy_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    options = FcpOptions.of(args)
    return run_copy(options.with_jobs_for(options.sources))
