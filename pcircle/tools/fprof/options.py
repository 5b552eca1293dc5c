"""The resolved options of fprof, for new and for saved profiles, and the check of output files."""

from __future__ import annotations

import os

from pcircle.cli import json_output as jsonout
from pcircle.cli.options import CommonOptions
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.tools.fprof.plan import index_of
from pcircle.tools.fprof.reports.outputs import Outputs
from pcircle.tools.fprof.reports.report import ReportOptions


class ProfileOptions(CommonOptions, frozen=True, kw_only=True):
    """The resolved options of fprof.

    `lists` contains the kind and the file name of each requested list of files.
    """

    paths: tuple[bytes, ...]
    report_options: ReportOptions = ReportOptions()
    csv: str | None = None
    save: str | None = None
    entries: bool = False
    html: str | None = None
    plot: str | None = None
    lists: tuple[tuple[str, str], ...] = ()

    def outputs(self) -> Outputs:
        """Return the requested outputs of the report."""
        files = {name: getattr(self, name) for name in ("json", "csv", "save", "html", "plot")}
        return Outputs(**files, tree=self.report_options.tree)


def check_outputs(options: ProfileOptions) -> None:
    """Raise UsageError if an output file cannot be written, before the walk begins."""
    _check_files(options)
    if options.plot is not None:
        from pcircle.cli import pictures

        pictures.check(options.plot)
    if options.csv is not None:
        from pcircle.tools.fprof.reports import csvout

        csvout.check(options.csv)


def _check_files(options: ProfileOptions) -> None:
    files = {"json": options.json, "save": options.save, "html": options.html}
    files |= {"plot": options.plot, "error-log": options.error_log}
    files |= {f"list-out={kind}": name for kind, name in options.lists}
    if options.save is not None and options.entries:
        files["entries"] = index_of(options.save)
    option_by_path: dict[str, str] = {}
    for option, where in files.items():
        if where is None or (option, where) == ("json", "-"):
            continue
        shown = show(os.fsencode(where))
        if where == "-":
            raise UsageError(f"--{option}: '-' is not supported: the text is on standard output")
        # Logs and lists are checked when they are opened at the start.
        if not option.startswith(("error-log", "list-out")):
            jsonout.check(where)
        other = option_by_path.setdefault(os.path.realpath(where), option)
        if other != option and not where.startswith("/dev/"):
            raise UsageError(f"--{other} and --{option} cannot both write to '{shown}'")
