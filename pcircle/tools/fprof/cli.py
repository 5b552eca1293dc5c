"""The command line of fprof; `pcircle.tools.fprof.command` runs it."""

from __future__ import annotations

import argparse
from typing import Final

from pcircle.cli.arguments import ToolCommand, notes
from pcircle.tools.fprof.options import ProfileOptions

USAGE = """\
fprof [OPTION]... [PATH]...
       fprof --save FILE [OPTION]... [PATH]...
       fprof --merge [OPTION]... FILE...
       fprof --diff OLD NEW"""

DESCRIPTION = """\
Profile file systems: count entries by kind and size and, on request, by age,
owner, extension and directory, and estimate the space they need elsewhere.
PATH defaults to the working directory.

A file with several hard links counts once per name, but its bytes count only
once. A symbolic link given as PATH is followed; other links are not."""

EPILOG = notes(
    "fprof",
    """\
Exit codes: 0 success; 1 some entries could not be examined, each one named;
2 refused; 4 stopped early (no space, a lost rank); 70 internal error;
130 and 143 interrupted.

Examples:
  fprof --by age,ext --top 10 /data
  fprof --html data.html --save data.profile /data
  mpirun -np 8 fprof --json data.json /data
  fprof --diff last.profile data.profile""",
)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fprof.command import profile_typed

    return profile_typed(args)


_TOTAL = "-d 0 shows the total of each PATH"
_ELSEWHERE = {
    "-s": _TOTAL,
    "--summarize": _TOTAL,
    "-a": "--top N lists the largest files",
    "-c": "a profile of several PATHs includes their total",
    "--max-depth": "-d N shows N levels",
}
"""Hints for users of du."""
_MOST_USED = ("-d", "--top", "--by", "-x", "--exclude", "--html", "--csv", "--save", "--diff", "-j")
_COMMAND = ToolCommand(
    "fprof",
    "[PATH]...",
    USAGE,
    DESCRIPTION,
    EPILOG,
    ProfileOptions.add_to,
    _carry_out,
    most_used=_MOST_USED,
    elsewhere=_ELSEWHERE,
)
parser: Final = _COMMAND.parser
main: Final = _COMMAND.main
