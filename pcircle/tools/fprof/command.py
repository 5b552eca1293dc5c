"""The program of fprof, which interprets the options, runs the walk and returns the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pcircle.cli.options import common, refuse_useless_null
from pcircle.cli.program import called
from pcircle.cli.tree_program import WalkProgram
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError, require_type
from pcircle.core.units import invalid, number, parse_size, positive
from pcircle.fs.safe_open import any_link
from pcircle.jobs.failures import LogFile, open_log
from pcircle.runtime import Observer
from pcircle.tools.fprof.console import ProfileConsole
from pcircle.tools.fprof.options import ProfileOptions, check_outputs
from pcircle.tools.fprof.plan import ProfilePlan, resolve
from pcircle.tools.fprof.reports.report import DIMENSIONS, ReportOptions
from pcircle.tools.fprof.task import ProfileTask
from pcircle.walk.attributes import ANY

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.jobs.tree_task import TreePlan
    from pcircle.walk.roots import Root

# Modules that only some runs need are imported late, to keep the start of all other runs short.

_MAX_TOP = 10_000
_MAX_DIRECTORY = 1 << 40  # entries
_MAX_PIECES = 1_000_000
_PIECES = "1024"  # value of --compress without an argument
_DEPTH_DIGITS = 9
KEPT_TOP = 100
"""The length of top lists in a saved profile."""


class ProfileProgram(WalkProgram[ProfileTask]):
    """The program of fprof."""

    name = "fprof"
    reads_only, plan_type = True, ProfilePlan
    options: ProfileOptions

    def __init__(self, options: ProfileOptions) -> None:
        super().__init__(options, options.paths)
        self._volumes: tuple[int, ...] = ()
        self._parts: bytes | None = None  # path prefix of the parts of an index
        self._listed: dict[str, LogFile] = {}  # by kind, on rank 0

    def withdraw(self) -> None:
        if self._parts is not None:
            os.unlink(self._parts)

    def check(self) -> None:
        check_outputs(self.options)

    def roots(self) -> tuple[Root, ...]:
        roots, self._volumes = resolve(self.paths)
        return roots

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options, report_options = self.options, self.options.report_options
        return {
            "volumes": self._volumes,
            "facets": tuple(sorted(report_options.facets())),
            "top": max(KEPT_TOP if report_options.everything else 1, report_options.top),
            "edges": report_options.edges,
            "pieces": report_options.pieces,
            "ranks": ranks,
            "lists": tuple(kind for kind, _ in options.lists),
            "list_end": b"\0" if options.null else b"\n",
        }

    def begin(self, roots: tuple[Root, ...]) -> None:
        if self.options.entries:
            from pcircle.tools.fprof.entries import place_for

            self._parts = place_for(str(self.options.save), roots, self.directory())
        if self.options.lists:
            self._begin_lists(b"\0" if self.options.null else b"\n")
        super().begin(roots)

    def opened(self) -> dict[str, Any]:
        return {"index": self._parts}

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        """Return the plan for a new job after a rank was lost.

        Remove the parts of the index that the ranks of the earlier job wrote.
        """
        if self._parts is not None:
            from pcircle.walk.segments import remove  # required only if ranks were lost

            remove(self._parts, msgspec.msgpack.decode(plan, type=ProfilePlan).ranks)
        return super().prepare_again(plan, ranks)

    def _begin_lists(self, end: bytes) -> None:
        """Open the lists of files, and raise UsageError if that fails."""
        from pcircle.tools.fprof.entries import heading

        for kind, name in self.options.lists:
            log = self._listed[kind] = LogFile(open_log(name, "--list-out"))
            try:
                log.append(heading(kind, end))
            except OSError as error:
                shown = show(os.fsencode(name))
                raise UsageError(f"--list-out: cannot write '{shown}': {error.strerror}") from None

    def new_task(self, plan: TreePlan, rank: int, lists: Lists | None) -> ProfileTask:
        return ProfileTask(require_type(ProfilePlan, plan), rank, lists)

    def observer(self, plan: bytes) -> Observer[Any]:
        decided = msgspec.msgpack.decode(plan, type=ProfilePlan)
        return ProfileConsole(decided, self.options, self.log, self._listed)


def profile_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return its exit code; raise UsageError if it is invalid."""
    if not all(args.operands):
        raise UsageError("empty file name")
    if args.diff is not None:
        from pcircle.tools.fprof.saved_profiles import diff

        with any_link(args.insecure_links):
            return diff(args)
    if args.merge and not args.operands:
        raise UsageError("missing operand FILE")
    refuse_useless_null(args)
    if args.entries and (args.save is None or args.merge):
        raise UsageError("--entries requires --save, and cannot be combined with --merge")
    lists: Mapping[str, str] = {}
    if args.list_out is not None:
        from pcircle.tools.fprof.entries import lists_of as file_lists

        lists = file_lists(args.list_out)
    options = ProfileOptions(
        **common(args),
        paths=tuple(map(os.fsencode, args.operands or ["."])),
        report_options=_report_options(args, lists),
        lists=tuple(lists.items()),
        csv=args.csv,
        save=args.save,
        entries=args.entries,
        html=args.html,
        plot=args.plot,
    )
    if args.merge:
        from pcircle.tools.fprof.saved_profiles import report_saved

        with any_link(options.insecure_links):
            return report_saved(options)
    if options.files_from is not None and (options.filters or options.wanted != ANY):
        raise UsageError("--files-from cannot be combined with filters")
    if options.files_from is not None and options.entries:
        raise UsageError("--files-from cannot be combined with --entries")
    return _run(options)


def _report_options(args: argparse.Namespace, lists: Collection[str]) -> ReportOptions:
    """Return the requested contents of the report.

    A list of files (`--list-out`) also requests the examination that finds these files.
    """
    by = [word for text in args.by or () for word in text.split(",")]
    for word in by:
        if word not in DIMENSIONS:
            raise UsageError(
                f"--by: unknown '{show(os.fsencode(word))}'; choose from {', '.join(DIMENSIONS)}"
            )
    directory_edges: tuple[int, ...] = ()
    if args.dirbins is not None:
        found = (positive("--dirbins", word, _MAX_DIRECTORY) for word in args.dirbins.split(","))
        directory_edges = tuple(found)
        by.append("dirsize")
    kind, edges = _bins(args.bins)
    inode, pieces = args.data_in_inode, args.compress
    if pieces is None and "compress" in lists:
        pieces = _PIECES
    depth = None if args.depth is None else _depth(args.depth)
    # On a terminal the standard report ends with the largest directories.
    shown = depth is None and not args.quiet and _is_read(args)
    return ReportOptions(
        depth=depth,
        tree=shown,
        sparse=args.sparse or "sparse" in lists,
        stripe=args.stripe or "stripe" in lists,
        pieces=0 if pieces is None else positive("--compress", pieces, _MAX_PIECES),
        everything=any((args.save, args.html, args.plot)),
        blocks=() if args.blocks is None else _blocks(args.blocks),
        in_inode=None if inode is None else _in_inode(inode),
        bins=kind,
        edges=edges,
        by=tuple(dict.fromkeys(by)),
        directory_edges=directory_edges,
        top=0 if args.top is None else positive("--top", args.top, _MAX_TOP),
    )


def _is_read(args: argparse.Namespace) -> bool:
    """Return whether the report is printed on a terminal."""
    stream = sys.stderr if args.json == "-" else sys.stdout
    return stream is not None and not stream.closed and stream.isatty()


def _depth(text: str) -> int:
    if not text.isdecimal():
        raise invalid("--depth", text, "must be 0 or a positive integer")
    return int(text[:_DEPTH_DIGITS])  # no path is so deep that further digits matter


def _bins(text: str | None) -> tuple[str, tuple[int, ...]]:
    if text is None or text in ("log2", "pow4"):
        return text or "", ()
    edges = {int(number("--bins", word, parse_size)) for word in text.split(",")}
    return "", tuple(sorted(edges))


def _blocks(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(dict.fromkeys(map(_block, text.split(","))))


def _in_inode(text: str) -> int:
    from pcircle.tools.fprof.profile.inspecting import LARGEST_INODE_BYTES

    size = int(number("--data-in-inode", text, parse_size))
    if size > LARGEST_INODE_BYTES:
        most = f"must be at most {LARGEST_INODE_BYTES >> 10} KiB"
        raise invalid("--data-in-inode", text, most)
    return size


def _block(text: str) -> tuple[int, int]:
    """Parse a block size with an optional subblock size, such as 4M or 4M/8k."""
    from pcircle.tools.fprof.profile.inspecting import is_unit, subblock_of

    first, _, second = text.partition("/")
    block = int(number("--blocks", first, parse_size))
    subblock = int(number("--blocks", second, parse_size)) if second else subblock_of(block)
    for size in (block, subblock):
        if not is_unit(size):
            raise UsageError(f"--blocks: {size:,} bytes is not a power of two from 512 to 64 MiB")
    if subblock > block:
        raise UsageError("--blocks: subblock larger than its block")
    return block, subblock


def _run(options: ProfileOptions) -> int:
    # Every walk needs ctypes, which would otherwise be imported by each forked rank.
    import ctypes  # noqa: F401

    return ProfileProgram(options).run()


def profile(paths: Sequence[str | bytes], **choices: object) -> int:
    """Run fprof from Python, with its options as keywords, and return the exit code."""
    return called(_run, ProfileOptions, paths, choices)
