"""The options of `pcircle doctor`: their declarations and values."""

from __future__ import annotations

from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions
from pcircle.core.units import interval_s


class DoctorOptions(CommonOptions):
    """The options of `pcircle doctor`."""

    _examination = Section("Examination")
    no_trials: bool = option("--no-trials", help="do not test features, and write nothing to PATH")
    timeout_s: float = option(
        "--timeout",
        metavar="T",
        default="30",
        parse=interval_s,
        help="give up on a PATH after T (default: 30 s)",
    )

    _output = Section("Output")
    _shared = taken("json", "version")
    json: str | None = override(help="write the report as JSON (-: standard output)")
