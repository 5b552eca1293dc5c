"""The options of fsum; `pcircle.tools.fsum.command` interprets them."""

from __future__ import annotations

import argparse

from pcircle.cli.arguments import (
    Parser,
    add_filters,
    add_op_timeout,
    add_output,
    add_performance,
    add_recursive,
    add_safety,
    notes,
)
from pcircle.cli.shell import ToolCommand

USAGE = """\
fsum [OPTION]... PATH...
       fsum -o MANIFEST PATH
       fsum --check|--update|--rot MANIFEST [ROOT]
       fsum --diff OLD NEW"""

DESCRIPTION = """\
Print one signature per PATH, covering all names, kinds and contents below it.

Equal trees have equal signatures, with any number of processes; owners, times
and holes do not matter. fcp -s prints the same signature for a copy.
A symbolic link given as PATH is followed; other links are signed as links."""

EPILOG = notes(
    "fsum",
    """\
Exit codes: 0 success; 1 some entries could not be read, each one named, and
their PATH has no signature; 2 refused; 3 a check found differences; 4 stopped
early (no space, a lost rank); 70 internal error; 130 and 143 interrupted.

Examples:
  fsum data /archive/data
  mpirun -np 8 fsum -o data.manifest /archive/data
  fsum --check data.manifest
  fsum --format coreutils -a sha256 data""",
)


def _add(p: Parser) -> None:
    add = p.add_argument_group("Signature").add_argument
    add(
        "-a",
        "--algorithm",
        metavar="NAME",
        help="digest: xxh128 (default), sha256, sha512, blake2b, blake3",
    )
    add(
        "--format",
        choices=("pcsig", "coreutils"),
        default="pcsig",
        help="pcsig, or coreutils: one line per file, like sha256sum",
    )
    add("-o", "--output", metavar="MANIFEST", help="also write a manifest of all entries")
    add("--force", action="store_true", help="with -o, replace an existing file")
    add("-x", "--one-file-system", action="store_true", help="stay on one file system")
    add = p.add_argument_group(
        "Manifests", "ROOT defaults to the path recorded in the manifest."
    ).add_argument
    add("-c", "--check", metavar="MANIFEST", help="compare a tree with a manifest or checksum list")
    add(
        "--quick",
        action="store_true",
        help="with --check, skip files of unchanged size and time",
    )
    add(
        "--strict",
        action="store_true",
        help="accepted as in sha256sum; malformed lines always fail",
    )
    add("--update", metavar="MANIFEST", help="update MANIFEST, reading only changed files")
    add("--rot", metavar="MANIFEST", help="reread unmodified files to find silent corruption")
    add(
        "--diff",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="compare two manifests without reading files",
    )
    add_recursive(add_filters(p, "PATH").add_argument, "-r")
    add_safety(p)
    add = add_performance(p).add_argument
    add_op_timeout(add)
    add("--chunksize", metavar="SIZE", help="chunk size of large files (default: adaptive)")
    add_output(p)


def _carry_out(args: argparse.Namespace) -> int:
    from pcircle.tools.fsum.command import sum_typed

    return sum_typed(args)


_MOST_USED = ("-a", "-o", "-c", "--quick", "--update", "--diff", "--format", "--exclude")
_COMMAND = ToolCommand(
    "fsum", "PATH...", USAGE, DESCRIPTION, EPILOG, _add, _carry_out, most_used=_MOST_USED
)
parser, main = _COMMAND.parser, _COMMAND.main
