"""Reports of saved profiles, and comparisons of two profiles."""

from __future__ import annotations

import argparse
from itertools import accumulate

from pcircle import __version__
from pcircle.cli import json_output as jsonout
from pcircle.cli.output import MessageStream
from pcircle.cli.results import Results
from pcircle.core.errors import EntriesFailed, UsageError, worst
from pcircle.core.writing import standard_error
from pcircle.tools.fprof.options import ProfileOptions
from pcircle.tools.fprof.profile import diffing, saved
from pcircle.tools.fprof.profile.model import merge
from pcircle.tools.fprof.reports.outputs import check_outputs, tell, write_outputs
from pcircle.tools.fprof.reports.report import ProfileRun, make
from pcircle.transport.launch import launched


def report_saved(options: ProfileOptions) -> int:
    """Report on the saved profiles that the operands name, and return the exit code.

    Ranks other than rank 0 do nothing. Raise UsageError if the options or profiles are unsuitable.
    """
    if launched().rank:
        return 0
    check_outputs(options)
    *_, merged = accumulate((saved.read(path) for path in options.paths), merge)
    missing = sorted(options.facets() - set(merged.facets))
    if options.tree and "tree" in missing:
        missing.remove("tree")  # the tree is optional
    if missing:
        raise UsageError(f"--merge: these profiles lack {', '.join(missing)}")
    if options.top > merged.top:
        limit = f"these profiles keep the first {merged.top:,} of each list"
        raise UsageError(f"--top: {limit}")
    run = ProfileRun(exit_code=EntriesFailed.exit_code if merged.failed or merged.unreadable else 0)
    report = make(merged, options, run)
    results = Results("fprof", options.json, MessageStream(standard_error()).line)
    write_outputs(options, merged, report, run, results)
    return worst((run.exit_code, results.code))


def diff(args: argparse.Namespace) -> int:
    """Compare two saved profiles on rank 0, and return the exit code."""
    ProfileOptions.refuse_others(args, "two saved profiles")
    if launched().rank:
        return 0
    if args.json is not None:
        jsonout.check(args.json)
    old, new = args.diff
    found = diffing.compare(saved.read(old), saved.read(new), (old, new), __version__)
    parts = None if args.quiet else lambda unicode: diffing.render(found)
    results = Results("fprof", args.json, MessageStream(standard_error()).line)
    tell(found, parts, results)
    return worst((found.exit_code, results.code))
