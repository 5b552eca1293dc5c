"""The options of fdiff: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pcircle.cli.declarations import Section, option, override
from pcircle.cli.options import CommonOptions, window_ns_of


def _fields() -> Sequence[str]:
    from pcircle.ops.compare.fields import WORDS

    return WORDS


class DiffOptions(CommonOptions, root="A", done="differing"):
    """The options of fdiff."""

    _comparison = Section("Comparison")
    contents: bool = option("-c", "--contents", "--checksum", help="compare contents as well")
    quick: bool = option(
        "--quick", excludes=("fields",), help="compare only kind, size and modification time"
    )
    fields: str | None = option(
        "--fields",
        metavar="LIST",
        word_list=_fields,
        help="fields to compare (see the manual), or default, or all",
    )
    ignore: str | None = option(
        "--ignore", metavar="LIST", word_list=_fields, help="fields not to compare"
    )
    window_ns: int | None = option(
        "--modify-window",
        metavar="T",
        parse=window_ns_of,
        help="treat times that differ by at most T as equal",
    )
    ids: Literal["numeric", "names"] = option(
        "--ids",
        choices=("numeric", "names"),
        default="numeric",
        help="compare owners by number (default) or name",
    )
    one_sided: bool = option("--one-sided", help="ignore entries that exist only in B")
    moved: bool = option("--moved", help="match moved files by size and time")
    by_content: bool = option("--by-hash", help="match moved files by content")
    first: bool = option("--first", help="stop at the first difference")

    _filters = CommonOptions.FILTERS
    _one = CommonOptions.ONE_FILE_SYSTEM
    _recursive = CommonOptions.RECURSIVE
    _safety = CommonOptions.SAFETY

    _performance = CommonOptions.PERFORMANCE
    _op_timeout = CommonOptions.OP_TIMEOUT
    _noatime = CommonOptions.NOATIME
    _stop = CommonOptions.STOP

    _output = CommonOptions.OUTPUT
    quiet: bool = override(help="report failures only")
    verbose: int = override(help="report what was compared (-vv: also inter-process traffic)")
    itemize: bool = option(
        "-i",
        "--itemize",
        "--itemize-changes",
        help="also list the contents of directories on only one side",
    )
    format: Literal["words", "rsync", "dcmp"] | None = option(
        "--format",
        choices=("words", "rsync", "dcmp"),
        help="words (on a terminal), rsync's columns, or dcmp's counts",
    )
    outputs: tuple[str, ...] = option(
        "-o",
        "--output",
        metavar="EXPR:FILE",
        repeatable=True,
        help="write entries that match a dcmp expression to FILE",
    )
    _records = CommonOptions.RECORDS

    @property
    def prints_null(self) -> bool:
        return bool(self.outputs)
