"""The options of fprof: their declarations, values and checks.

This module is imported before the command line is parsed. The parsers import what they need.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from pcircle.cli.declarations import Options, Section, option, override
from pcircle.cli.options import CommonOptions, most_of, size_of
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import invalid, is_whole, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

DIMENSIONS = ("age", "owner", "group", "ext", "depth", "dirsize")

_MAX_TOP = 10_000
_MAX_DIRECTORY = 1 << 40  # entries
_MAX_PIECES = 1_000_000
PIECES = 1024
"""The sample size if --compress is given without a value."""
_DEPTH_DIGITS = 9


class Bins(NamedTuple):
    """The bins of the size histogram: their edges, or the name of a histogram."""

    name: str = ""
    edges: tuple[int, ...] = ()


def _bins(name: str, text: str) -> Bins:
    if text in ("log2", "pow4"):
        return Bins(text)
    return Bins(edges=tuple(sorted({size_of(name, word) for word in text.split(",")})))


_SYNONYMS = {"user": "owner", "uid": "owner", "gid": "group", "extension": "ext", "mtime": "age"}


def _dimensions(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    words = [word for text in texts for word in text.split(",")]
    for word in words:
        if word not in DIMENSIONS:
            shown, known = show(os.fsencode(word)), ", ".join(DIMENSIONS)
            meant = _SYNONYMS.get(word)
            hint = f"did you mean '{meant}'?" if meant else f"choose from {known}"
            raise UsageError(f"{name}: unknown '{shown}'; {hint}")
    return tuple(dict.fromkeys(words))


def _counts(name: str, text: str) -> tuple[int, ...]:
    return tuple(positive(name, word, _MAX_DIRECTORY) for word in text.split(","))


def _level(name: str, text: str) -> int:
    if not is_whole(text):
        raise invalid(name, text, "must be 0 or a positive integer")
    return int(text[:_DEPTH_DIGITS])  # no path is so deep that further digits matter


def _blocks(name: str, text: str) -> tuple[tuple[int, int], ...]:
    return tuple(dict.fromkeys(_block(name, word) for word in text.split(",")))


def _block(name: str, text: str) -> tuple[int, int]:
    """Parse a block size with an optional subblock size, such as 4M or 4M/8k."""
    from pcircle.tools.fprof.profile.examinations import is_unit, subblock_of

    first, _, second = text.partition("/")
    block = size_of(name, first)
    subblock = size_of(name, second) if second else subblock_of(block)
    for size in (block, subblock):
        if not is_unit(size):
            raise UsageError(f"{name}: {size:,} bytes is not a power of two from 512 to 64 MiB")
    if subblock > block:
        raise UsageError(f"{name}: subblock larger than its block")
    return block, subblock


def _in_inode(name: str, text: str) -> int:
    from pcircle.tools.fprof.profile.examinations import LARGEST_INODE_BYTES

    size = size_of(name, text)
    if size > LARGEST_INODE_BYTES:
        raise invalid(name, text, f"must be at most {LARGEST_INODE_BYTES >> 10} KiB")
    return size


def _lists(name: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if not texts:
        return ()
    from pcircle.tools.fprof.entries import lists_of

    return lists_of(name, texts)


class ReportOptions(Options):
    """The requested contents of a report.

    `blocks` contains pairs of block and subblock sizes, and `in_inode` is the maximum size of data
    in inodes. `pieces` is the size of the sample to compress. `tree` requests the largest
    directories, and `everything` all sums that require no examination of files.
    """

    tree: bool = False
    everything: bool = False

    REPORT = Section("Report")
    bins: Bins = option(
        "--bins",
        metavar="LIST",
        parse=_bins,
        otherwise=Bins(),
        words=("log2", "pow4"),
        help="edges of the size histogram: 4k,1M,1G, log2 or pow4",
    )
    """
    Set the edges of the size histogram: either a list such as ``4k,1M,1G``, or ``log2`` or
    ``pow4``. A bin contains files up to and including the size of its edge. In reports on a saved
    profile, an edge is exact if it is a power of two, or 64 to 128 times one. Other edges are
    rounded to an exact edge and reported as approximate.
    """
    by: tuple[str, ...] = option(
        "--by",
        metavar="LIST",
        repeatable=True,
        parse=_dimensions,
        word_list=DIMENSIONS,
        help="group by age, owner, group, ext, depth, dirsize",
    )
    """
    Group entries by ``age`` (days since the last modification), ``owner``, ``group``, ``ext``
    (extension), ``depth`` below PATH or ``dirsize`` (directories by their number of entries). The
    text report shows the first twenty rows of each table; ``--json`` and ``--csv`` write all rows.
    If there are many thousands of owners or extensions, those that do not fit are combined in one
    row.
    """
    directory_edges: tuple[int, ...] = option(
        "--dirbins",
        metavar="LIST",
        parse=_counts,
        otherwise=(),
        help="group directories by entry count, with edges such as 10,100",
    )
    """
    Group directories by their number of entries, as ``--by dirsize`` does, but with the edges in
    LIST, for example ``--dirbins 1,100,10000``. Edges above 128 are rounded up by at most 1/64, and
    the report shows the rounded values.
    """
    top: int = option(
        "--top",
        metavar="N",
        parse=most_of(_MAX_TOP),
        otherwise=0,
        help="list the N largest, newest and oldest entries",
    )
    """
    List the N largest, newest and oldest files. Also list the N directories with the most bytes,
    and those with the most entries, directly in them; subdirectories are not included. The sizes of
    the directories themselves are not counted.
    """
    depth: int | None = option(
        "-d",
        "--depth",
        metavar="N",
        parse=_level,
        help="show directories N levels deep, largest first",
    )
    """
    List all directories down to N levels below PATH (0 lists only PATH), the largest first, whether
    or not the output is a terminal. For each directory, the list shows its size, its share of all
    bytes and its number of entries, including those in subdirectories. Sizes are file sizes, as in
    the column *size* of the counts. If a file has n names, each name accounts for one n-th of its
    bytes. At most 4,096 directories are listed. These are exactly the largest directories of all
    levels, regardless of the number of processes. If there are more, the report states an upper
    bound for the sizes of the remaining ones. A directory is counted only as part of its parent if
    its path below PATH is longer than 1,024 bytes.
    """
    min_depth: int | None = option(
        "--min-depth",
        metavar="N",
        parse=_level,
        help="hide directories less than N levels deep",
    )
    """
    List only directories that are at least N levels below PATH, like ``find -mindepth``. For
    example, ``-d 2 --min-depth 2`` lists only the second level. Without ``-d``, all deeper levels
    are listed as well. Shares are still fractions of all bytes.
    """
    blocks: tuple[tuple[int, int], ...] = option(
        "--blocks",
        metavar="LIST",
        parse=_blocks,
        otherwise=(),
        help="estimate space with blocks of each SIZE or SIZE/SUBBLOCK",
    )
    """
    Compute the space that all files would need with each of these block sizes, both in whole blocks
    and with subblocks for the ends of files. By default, the size of subblocks is chosen as in GPFS
    (IBM Storage Scale 5); ``1M/32k`` specifies a different one. The column *used* shows which share
    of the space would contain data. Block sizes must be powers of two from 512 bytes to 64 MiB. The
    results are exact.
    """
    in_inode: int | None = option(
        "--data-in-inode",
        metavar="SIZE",
        parse=_in_inode,
        help="assume that files up to SIZE are stored in inodes",
    )
    """
    Assume that files of up to SIZE, which may be at most 64 KiB, are stored in their inodes. The
    report shows the number of these files, and ``--blocks`` leaves them out. SIZE is rounded down
    to an edge of the fine bins, and the report states that edge.
    """
    sparse: bool = option("--sparse", help="report sparse files and space saved by compression")
    """
    Report files that occupy less space on disk than their size. The report shows how much of the
    difference is due to holes, and how much is saved in other ways: by compression in the file
    system, or by storing data in inodes. These files are opened but not read. Compression by btrfs
    cannot be detected, because btrfs reports uncompressed sizes.
    """
    stripe: bool = option("--stripe", help="report Lustre layouts")
    """
    Group files by their Lustre layout.
    """
    pieces: int = option(
        "--compress",
        metavar="SAMPLE",
        bare=str(PIECES),
        parse=most_of(_MAX_PIECES),
        otherwise=0,
        help="estimate compression from SAMPLE pieces (default: 1024)",
    )
    """
    Estimate how well the files would compress from SAMPLE pieces of 64 KiB (default: 1024). The
    pieces are drawn so that each byte, including those in holes, has the same chance of being
    chosen. The report states a margin of error, within which the true value lies for 95 out of 100
    trees. Four times as many pieces halve the margin. Pieces that cannot be read increase it
    according to their share of the sample. Access times are preserved, except those of files that
    belong to other users, because only root can preserve these.
    """

    @property
    def groupings(self) -> tuple[str, ...]:
        """The dimensions by which entries are grouped; `directory_edges` implies "dirsize"."""
        return tuple(dict.fromkeys((*self.by, *["dirsize"] * bool(self.directory_edges))))

    @property
    def levels(self) -> range | None:
        """The levels of the directories to list, or None for no list."""
        if self.depth is None and self.min_depth is None:
            return None
        deepest = 10**_DEPTH_DIGITS if self.depth is None else self.depth
        return range(self.min_depth or 0, deepest + 1)

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.levels is not None and not self.levels:
            names = self.declared["min_depth"].name, self.declared["depth"].name
            raise UsageError("{} is larger than {}".format(*names))

    @property
    def edges(self) -> tuple[int, ...]:
        """The edges of a histogram with exact counts."""
        return self.bins.edges

    def facets(self) -> set[str]:
        """Return the names of the `FACETS` that the walk must compute."""
        optional = {
            "top": bool(self.top),
            "tree": self.tree or self.levels is not None,
            "blocks": bool(self.blocks),
            "sparse": self.sparse,
            "stripe": self.stripe,
            "compress": bool(self.pieces),
        }
        found = {
            *self.groupings,
            *(name for name, is_requested in optional.items() if is_requested),
        }
        if self.everything:
            from pcircle.tools.fprof.profile.collect import FACETS

            found |= set(FACETS)
        return found


class ProfileOptions(ReportOptions, CommonOptions):
    """The options of fprof. `lists` contains the kind and the file of each list of files."""

    paths: tuple[bytes, ...]

    _report = ReportOptions.REPORT
    _one = CommonOptions.ONE_FILE_SYSTEM
    _filters = CommonOptions.FILTERS
    _safety = CommonOptions.SAFETY
    strict_operands: bool = override(excludes=("merge",))

    _formats = Section("Report formats")
    save: str | None = option(
        "--save", metavar="FILE", help="save the profile for --merge and --diff"
    )
    entries: bool = option(
        "--entries",
        requires=("save",),
        excludes=("merge", "files_from"),
        help="with --save, also save an index of all entries",
    )
    html: str | None = option(
        "--html", metavar="FILE", help="write a self-contained page with charts and a treemap"
    )
    lists: tuple[tuple[str, str], ...] = option(
        "--list-out",
        metavar="KIND:FILE",
        repeatable=True,
        parse=_lists,
        help="list sparse, stripe, compress or special files in FILE",
    )
    plot: str | None = option(
        "--plot", metavar="FILE", help="write a plot as .png, .svg or .pdf (requires matplotlib)"
    )
    csv: str | None = option("--csv", metavar="DIR", help="write the tables as CSV files to DIR")

    _saved = Section("Saved profiles")
    merge: bool = option(
        "--merge",
        excludes=(
            *("filters", "files_from", "one_file_system", "threads", "lists", "error_log", "jobs"),
            *("transport", "op_timeout_s", "verbose", "stats", "progress", "interval_s"),
        ),
        help="report on several saved profiles as one",
    )
    diff: tuple[str, str] | None = option(
        "--diff",
        nargs=2,
        metavar=("OLD", "NEW"),
        takes="file",
        help="report growth and shrinkage between two profiles",
    )

    _performance = CommonOptions.PERFORMANCE
    _op_timeout = CommonOptions.OP_TIMEOUT
    _output = CommonOptions.OUTPUT
    verbose: int = override(help="list the entries that are read, and print a summary")

    @property
    def prints_null(self) -> bool:
        return bool(self.lists)

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.merge and self.has_filters:
            raise UsageError("--merge cannot be combined with filters")
        if self.files_from is not None and self.has_filters:
            raise UsageError("--files-from cannot be combined with filters")
