"""The options of fbench: their declarations and values.

This module is imported before the command line is parsed. The parsers import what they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions, most_of, seed_of, size_of
from pcircle.core.units import invalid
from pcircle.tools.fbench.plan import BACKENDS, CASES, MAX_ENTRIES, PAPER_CASES

if TYPE_CHECKING:
    from pcircle.tools.fbench.tree_maker import Shape

_MOST = 1 << 20
_MAX_BLOCK_BYTES = 1 << 30


def _unique(_: str, texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _block_bytes(name: str, text: str) -> int:
    size = size_of(name, text)
    if not 1 <= size <= _MAX_BLOCK_BYTES:
        raise invalid(name, text, "must be from 1 byte to 1 GiB")
    return size


def _shape(_: str, text: str) -> Shape:
    from pcircle.tools.fbench.tree_maker import shape_of

    return shape_of(text)


class BenchOptions(CommonOptions):
    """The options of fbench; for the numbers see `BenchPlan`.

    `cases` and `backends` are empty, and `files` and `blocks` are 0, if they are not given.
    """

    folder: bytes

    _measurement = Section("Measurement")
    cases: tuple[str, ...] = option(
        "--case",
        repeatable=True,
        choices=tuple(dict.fromkeys((*CASES, *PAPER_CASES))),
        metavar="CASE",
        parse=_unique,
        help="measure this case (repeatable; default: all)",
    )
    backends: tuple[str, ...] = option(
        "--backend",
        repeatable=True,
        choices=BACKENDS,
        parse=_unique,
        help="measure this backend (repeatable; default: both)",
    )

    _performance = Section("Performance")
    _ranks = taken("jobs", "transport", "threads")
    jobs: int | None = override(
        names=("-j", "--jobs", "--clients"), help="clients, or clients per MPI rank (default: 1)"
    )
    threads: int | None = override(help="threads per client (default: adaptive)")
    files: int = option(
        "--files",
        metavar="N",
        parse=most_of(_MOST),
        otherwise=0,
        help="files per client (default: 4; papers: 5)",
    )
    blocks: int = option(
        "--blocks",
        metavar="N",
        parse=most_of(_MOST),
        otherwise=0,
        help="blocks per file (default: 64; papers: 100)",
    )
    block_bytes: int = option(
        "--block-size",
        metavar="SIZE",
        default="1M",
        parse=_block_bytes,
        help="size of a block (default: 1M)",
    )

    TREES = Section("Test trees")
    seed: int = option(
        "--seed",
        metavar="N",
        parse=seed_of,
        otherwise=0,
        help="seed for the tree or the damage (default: 0)",
    )
    shape: Shape | None = option(
        "--shape",
        metavar="LIST",
        parse=_shape,
        help="shape of the tree, such as files=1000,depth=5,size=64k",
    )
    made: str | None = option("--made", metavar="FILE", help="record of the tree to corrupt")
    changes: int = option(
        "--changes",
        metavar="N",
        parse=most_of(MAX_ENTRIES),
        otherwise=10,
        help="number of files to corrupt (default: 10)",
    )
    record: str | None = option(
        "--record", metavar="FILE", help="write the record to FILE (default: standard output)"
    )

    _output = Section("Output")
    _results = taken("quiet", "json")
    json: str | None = override(help="write the figures as JSON (-: standard output)")
    plot: str | None = option(
        "--plot", metavar="FILE", help="write a plot as .png, .svg or .pdf (requires matplotlib)"
    )
    _shared = taken("syslog", "version")
