"""The data model of reports, shared by all output formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from pcircle import __version__
from pcircle.cli.console import rank_share
from pcircle.cli.report import RankShare, RankSummary, ToolReport
from pcircle.core.encoding import show
from pcircle.jobs.failures import FailedEntry
from pcircle.runtime import RankReport
from pcircle.tools.fprof.options import Bins, ReportOptions
from pcircle.tools.fprof.plan import totals
from pcircle.tools.fprof.profile.groups import (
    DirectorySize,
    DirectoryTree,
    Group,
    Top,
    directory_of,
    directory_sizes,
    groups,
    moment,
    share,
    top_of,
    tree_of,
)
from pcircle.tools.fprof.profile.model import Profile
from pcircle.tools.fprof.profile.sizes import (
    RELATIVE_ERROR,
    is_edge,
    quantile,
    rebin,
    standard_edges,
)

if TYPE_CHECKING:
    from pcircle.tools.fprof.profile.examinations import Blocks, Compression, InInode, Sparse


SCHEMA = 1


class Amount(msgspec.Struct, frozen=True):
    """A number of entries, their apparent sizes in bytes, and their bytes on disk."""

    number: int
    bytes: int
    allocated_bytes: int


class KindCounts(msgspec.Struct, frozen=True):
    """The entries by kind.

    `specials` maps each kind of special file to the number of such files. `hard_linked_names` is
    the number of names that the `hard_linked_files` have together. `unreadable` directories are
    included in `directories`. `failed` entries are of unknown kind and included only in `entries`.
    """

    entries: int
    files: Amount
    directories: Amount
    links: Amount
    special: Amount
    specials: dict[str, int]
    total: Amount
    hard_linked_names: int
    hard_linked_files: int
    unreadable: int
    failed: int


class Bin(msgspec.Struct, frozen=True):
    """Files of at most `up_to` bytes that are larger than those in the previous bin.

    In the last bin, `up_to` may be None: the bin then has no upper limit.
    """

    up_to: int | None
    number: int
    bytes: int
    number_share: float
    bytes_share: float


class SizeDistribution(msgspec.Struct, frozen=True):
    """The distribution of file sizes.

    `quantile_error` is the maximum relative error of quantiles. If the bins are not `exact`, files
    may be counted in a neighbouring bin, because some edges are not edges of fine bins.
    """

    mean: float
    median: int | None
    quantiles: dict[str, int]
    quantile_error: float
    largest: int
    bins: tuple[Bin, ...]
    exact: bool


class RankWork(RankShare, frozen=True, kw_only=True):
    """The work of one rank.

    `threads` is the number of workers at the end. Their time in seconds is divided into
    `readdir_s`, `stat_s`, `adding_s` (all other work) and `idle_s`. `protocol_s` is the processor
    time of the engine thread.
    """

    readdir_s: float
    stat_s: float
    adding_s: float
    protocol_s: float
    idle_s: float


class ProfileReport(ToolReport, frozen=True, kw_only=True):
    """The report of a profile."""

    roots: tuple[str, ...]
    taken: str
    counts: KindCounts
    sizes: SizeDistribution
    largest_directory: DirectorySize | None
    tree: DirectoryTree | None = None
    by: dict[str, tuple[Group, ...]] | None = None
    top: Top | None = None
    blocks: tuple[Blocks, ...] | None = None
    data_in_inode: InInode | None = None
    sparse: Sparse | None = None
    stripes: tuple[Group, ...] | None = None
    compression: Compression | None = None
    elapsed_s: float
    entries_per_s: float
    reasons: tuple[str, ...]
    failures: tuple[FailedEntry, ...]
    failures_omitted: int
    ranks: tuple[RankWork, ...]
    rank_summary: RankSummary | UnsetType = UNSET


class StoppedReport(ToolReport, frozen=True, kw_only=True):
    """The report of a run that did not complete and therefore has no profile."""

    roots: tuple[str, ...]
    elapsed_s: float
    reasons: tuple[str, ...]
    failures: tuple[FailedEntry, ...]
    failures_omitted: int


def stopped(roots: Sequence[bytes], run: ProfileRun) -> StoppedReport:
    """Return the report of a run that has no profile."""
    return StoppedReport(
        schema=SCHEMA,
        tool="fprof",
        version=__version__,
        exit_code=run.exit_code,
        roots=tuple(map(show, roots)),
        elapsed_s=round(run.elapsed_s, 6),
        reasons=run.reasons,
        failures=run.failures,
        failures_omitted=run.failures_omitted,
    )


QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


def counts_of(profile: Profile) -> KindCounts:
    """Return the entries of a profile by kind."""
    amounts = {kind: Amount(*tally) for kind, tally in profile.kinds.items()}
    total = Amount(*map(sum, zip(*profile.kinds.values(), strict=True)))
    return KindCounts(
        entries=total.number + profile.failed,
        files=amounts["file"],
        directories=amounts["directory"],
        links=amounts["link"],
        special=amounts["special"],
        specials={name: row[0] for name, row in sorted(profile.specials.items())},
        total=total,
        hard_linked_names=profile.names[0],
        hard_linked_files=profile.names[1],
        unreadable=profile.unreadable,
        failed=profile.failed,
    )


def sizes_of(profile: Profile, bins: Bins) -> SizeDistribution:
    """Return the histogram of sizes with these bins."""
    if bins.edges and profile.edges == bins.edges:
        edges, rows, exact = list(bins.edges), profile.edge_tallies, True
    else:
        edges = list(bins.edges) or standard_edges(bins.name, profile.largest_bytes)
        rows = rebin(profile.sizes, edges)
        exact = all(map(is_edge, edges))
    number, total, _ = profile.kinds["file"]
    behind: list[int | None] = [*edges, None]
    filled = [
        Bin(up_to, row[0], row[1], share(row[0], number), share(row[1], total))
        for up_to, row in zip(behind, [list(r) or [0, 0] for r in rows], strict=True)
    ]
    if filled and not filled[-1].number:
        filled.pop()
    numbers = {place: tally[0] for place, tally in profile.sizes.items()}
    found = {f"{q:g}": quantile(numbers, q) for q in QUANTILES}
    # The middle of a bin may exceed the largest size in it.
    found = {name: size and min(size, profile.largest_bytes) for name, size in found.items()}
    return SizeDistribution(
        mean=round(total / number, 3) if number else 0.0,
        median=found["0.5"],
        quantiles={name: size for name, size in found.items() if size is not None},
        quantile_error=RELATIVE_ERROR,
        largest=profile.largest_bytes,
        bins=tuple(filled),
        exact=exact,
    )


class ProfileRun(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run; for a saved profile, only the exit code is set."""

    exit_code: int
    elapsed_s: float = 0.0
    reasons: tuple[str, ...] = ()
    failures: tuple[FailedEntry, ...] = ()
    failures_omitted: int = 0
    reports: tuple[RankReport, ...] = ()
    rank_summary: RankSummary | UnsetType = UNSET


def make(profile: Profile, options: ReportOptions, run: ProfileRun) -> ProfileReport:
    """Return the report of a profile."""
    counts = counts_of(profile)
    widest = profile.wide[0] if profile.wide else None
    return ProfileReport(
        schema=SCHEMA,
        tool="fprof",
        version=__version__,
        exit_code=run.exit_code,
        roots=tuple(map(show, profile.roots)),
        taken=moment(profile.taken_s),
        counts=counts,
        sizes=sizes_of(profile, options.bins),
        largest_directory=None if widest is None else directory_of(profile.roots, widest),
        by=_by(profile, options) or None,
        top=top_of(profile, options.top) if options.top else None,
        elapsed_s=round(run.elapsed_s, 6),
        entries_per_s=round(counts.entries / run.elapsed_s, 3) if run.elapsed_s else 0.0,
        reasons=run.reasons,
        failures=run.failures,
        failures_omitted=run.failures_omitted,
        ranks=tuple(map(_rank_work, run.reports)),
        rank_summary=run.rank_summary,
        **_details(profile, options),
    )


def _rank_work(report: RankReport) -> RankWork:
    """Return the work of a rank from its report."""
    counts = totals(report.counts)
    return RankWork(
        **msgspec.structs.asdict(rank_share(report, counts.settled, counts.bytes)),
        readdir_s=counts.readdir_us / 1e6,
        stat_s=counts.stat_us / 1e6,
        adding_s=counts.adding_us / 1e6,
        protocol_s=counts.protocol_us / 1e6,
        idle_s=counts.idle_us / 1e6,
    )


def _by(profile: Profile, options: ReportOptions) -> dict[str, tuple[Group, ...]]:
    by = {facet: groups(profile, facet) for facet in options.groupings}
    if options.directory_edges:
        by["dirsize"] = directory_sizes(profile, options.directory_edges)
    return by


def _details(profile: Profile, options: ReportOptions) -> dict[str, Any]:
    """Return the requested directories, findings in files, and space that files take elsewhere."""
    found: dict[str, Any] = {}
    if options.levels is not None:
        found["tree"] = tree_of(profile, options.levels)
    if options.stripe:
        found["stripes"] = groups(profile, "stripe")
    if not (options.sparse or options.pieces or options.blocks or options.in_inode is not None):
        return found
    from pcircle.tools.fprof.profile import examinations

    if options.sparse:
        found["sparse"] = examinations.Sparse(*profile.sparse)
    if options.pieces:
        found["compression"] = examinations.compression_of(profile)
    inode = None
    if options.in_inode is not None:
        inode = found["data_in_inode"] = examinations.in_inode(profile, options.in_inode)
    found["blocks"] = examinations.blocks_of(profile, options.blocks, inode) or None
    return found
