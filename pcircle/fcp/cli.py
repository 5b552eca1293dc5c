"""The command line of fcp: what was typed.

Only the standard library is imported here, and of that little, so that
`--help`, `--version` and a mistyped option answer at once. What the options
mean is decided in `pcircle.fcp.command`, which is imported once they are known
to be well formed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from pcircle import __version__
from pcircle.errors import Defect, PcircleError, UsageError
from pcircle.transport.launch import detect

BARE_PRESERVE = "mode,ownership,timestamps"

DESCRIPTION = """\
Copy files and whole trees on many processors or nodes at once.

Where the copies go follows cp: an existing directory DST takes DST/basename(SRC);
otherwise DST becomes the copy; several sources need an existing directory.
Directories are copied with all that is in them. Existing files are replaced, each
at the moment its copy is complete."""

EPILOG = """\
Sizes are 4096, 64k, 1M, 1MiB or 2GB; durations 30, 0.5s, 5m or 2h.

Without MPI, fcp starts its own processes on this machine: one per core up to 8, or
--jobs. Under mpirun or srun it uses theirs: mpirun -np 8 fcp SRC DST.

Exit codes: 0 all copied; 1 some entries failed, each one named; 2 refused, nothing was
touched; 3 --verify found a copy that differs; 4 stopped early (no space, a lost rank);
70 a defect of fcp; 130 and 143 interrupted."""


FILTERS = """\
Patterns are rsync's: the first that matches decides; * stops at a slash, ** does not;
a / at the beginning is SRC itself, one at the end asks for a directory."""


class _Filter(NamedTuple):
    """A filter option in its place among the others."""

    kind: str
    text: str


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Asks for the terminal's width by itself: argparse imports a module for archives to do so."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size().columns
        except OSError:  # not a terminal
            columns = 80
        super().__init__(prog, width=max(40, columns - 2))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    """The options of fcp."""
    p = _Parser(
        prog="fcp",
        usage="fcp [OPTION]... SRC... DST",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    p.add_argument("operands", nargs="*", metavar="SRC... DST", help=argparse.SUPPRESS)
    _add_what(p)
    _add_filters(p)
    _add_existing(p)
    _add_checkpoint(p)
    add = p.add_argument_group("how").add_argument
    add("-j", "--jobs", metavar="N", help="processes on this machine")
    add("--transport", choices=("auto", "mpi", "local"), default="auto", help="default: auto")
    add("--chunksize", metavar="SIZE", help="fix the size of the chunks of large files")
    when = ("auto", "always", "never")
    add(
        "--reflink",
        choices=when,
        default="auto",
        help="share blocks with the source if possible; or else fail (bare --reflink); or never",
    )
    add(
        "--sparse",
        choices=when,
        default="auto",
        help="keep holes as they are; make holes of zeros, too; or fill them",
    )
    add("--bwlimit", metavar="RATE", help="bytes copied in a second, by all processes together")
    add("--ops-limit", metavar="N", help="metadata operations in a second, so as well")
    add = p.add_argument_group("what is said").add_argument
    add("-q", "--quiet", action="store_true", help="only failures")
    add("-v", "--verbose", action="count", default=0, help="the ranks' shares; -vv: more of them")
    add("--progress", choices=("auto", "always", "never"), default="auto", help="default: auto")
    add("--interval", metavar="T", default="10", help="between progress lines; default: 10 s")
    add("--json", metavar="FILE", help="the result as a JSON document; - is standard output")
    add(
        "-s",
        "--signature",
        metavar="ALGORITHM",
        help="sign what was copied: xxh128 (bare), sha256, sha512, blake2b, blake3",
    )
    add("--error-log", metavar="FILE", help="a line of JSON for each failed entry")
    add("--version", action="version", version=f"fcp {__version__}")
    return p


def _add_what(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("where and what").add_argument
    add("-r", "-R", "--recursive", action="store_true", help="--files-from: with all below")
    add("-t", "--target-directory", metavar="DIR", help="copy all SRC into DIR")
    add("-T", "--no-target-directory", action="store_true", help="DST is the copy itself")
    add(
        "-a",
        "--archive",
        action="store_true",
        help="everything: --preserve=all, and FIFOs, sockets and devices",
    )
    bare = BARE_PRESERVE
    add("-p", dest="preserve", action="append_const", const=bare, help=f"as --preserve={bare}")
    add(
        "--preserve",
        metavar="LIST",
        action="append",
        help="keep these, of mode,ownership,timestamps,xattr,acl,links,all; without =LIST as -p",
    )
    add("--retry-from", metavar="ERRORLOG", help="only the entries that failed, as logged there")
    _add_links(add)
    add("--verify", action="store_true", help="read each copy from disk again, and compare")
    add("--dry-run", action="store_true", help="say what would be done (-v: of each entry)")


def _add_checkpoint(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("interrupted copies").add_argument
    add("--resume", action="store_true", help="go on from the checkpoint; without one, begin")
    add("--restart", action="store_true", help="discard the checkpoint and begin anew")
    add("--checkpoint-interval", metavar="T", help="between checkpoints; default: 60 s")
    add("--checkpoint-dir", metavar="DIR", help="keep it there and not beside the copy")
    add("--no-checkpoint", action="store_true", help="keep none")


def _add_links(add: Callable[..., object]) -> None:
    add(
        "-P",
        "--no-dereference",
        dest="links",
        action="store_const",
        const="none",
        default="none",
        help="copy symbolic links as links (the default)",
    )
    add(
        "-L",
        "--dereference",
        dest="links",
        action="store_const",
        const="all",
        help="copy what symbolic links lead to",
    )
    add(
        "-H",
        dest="links",
        action="store_const",
        const="operands",
        help="so for those given as SRC only",
    )
    add("-x", "--one-file-system", action="store_true", help="do not enter other file systems")


def _add_existing(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("what exists in DST").add_argument
    add("-f", "--force", action="store_true", help="--inplace: remove what can't be opened")
    add("-n", "--no-clobber", action="store_true", help="keep it; -u and -f then do nothing")
    add("-u", "--update", action="store_true", help="replace it if it is older")
    add("--skip-same", action="store_true", help="keep files of equal size and time (with -p)")
    add("--inplace", action="store_true", help="write into existing files; not atomic")
    add("--fsync", action="store_true", help="all is on disk before success is reported")


def _add_filters(p: argparse.ArgumentParser) -> None:
    add = p.add_argument_group("what of the directories", FILTERS).add_argument
    for kind in ("exclude", "include"):
        tell = partial(_Filter, kind)
        add(
            f"--{kind}",
            dest="filters",
            action="append",
            metavar="GLOB",
            type=tell,
            help=f"{kind} what matches",
        )
        add(
            f"--{kind}-from",
            dest="filters",
            action="append",
            metavar="FILE",
            type=partial(_Filter, f"{kind}-from"),
            help=f"{kind} what matches a line of FILE",
        )
    add("--files-from", metavar="FILE", help="only the paths below SRC that FILE names; - is stdin")
    add("-0", "--null", action="store_true", help="what stands in such a FILE ends with NUL")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options and operands in any order; behind `--` all are operands."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    # A value that may be left out is given only with `=`.
    bare = {
        "--preserve": f"--preserve={BARE_PRESERVE}",
        "--reflink": "--reflink=always",
        "--signature": "--signature=xxh128",
        "-s": "-sxxh128",
    }
    typed = parser().parse_intermixed_args([bare.get(word, word) for word in arguments[:end]])
    typed.operands += arguments[end + 1 :]
    return typed


def _explain(error: UsageError, arguments: Sequence[str]) -> str:
    """The message, with the option that was probably meant."""
    known = parser().format_help()
    for word in arguments:
        name = word.split("=")[0]
        if word.startswith("--") and len(name) > 2 and name in str(error):
            import difflib
            import re

            options = sorted(set(re.findall(r"--[a-z-]+", known)))
            near = difflib.get_close_matches(name, options, 1)
            if near and near[0] != name:
                return f"{error}; did you mean {near[0]}?"
    return str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fcp; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    speaks = not detect(os.environ).rank
    try:
        return _run(arguments, speaks)
    except UsageError as error:
        if speaks:
            _complain(f"{_explain(error, arguments)}\nTry 'fcp --help'.")
        return error.exit_code
    except PcircleError as error:
        _complain(str(error))
        return error.exit_code


def _complain(text: str) -> None:
    from pcircle.ui.output import Output

    Output(sys.stderr).line(f"fcp: {text}")


def _run(arguments: Sequence[str], speaks: bool) -> int:
    try:
        if not speaks:
            sys.stdout, standard = open(os.devnull, "w"), sys.stdout  # noqa: SIM115
        typed = _parse(arguments)
        if not speaks:
            sys.stdout.close()
            sys.stdout = standard
    except SystemExit as end:  # --help and --version
        return end.code if isinstance(end.code, int) else Defect.exit_code
    from pcircle.fcp.command import copy_typed

    return copy_typed(typed)
