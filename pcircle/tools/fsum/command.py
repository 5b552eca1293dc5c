"""The program of fsum: interprets the options, and computes or checks signatures."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.program import WalkProgram
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError, require_type
from pcircle.fs.safe_open import any_link, named
from pcircle.jobs.tree_task import resolve
from pcircle.ops.digest import digests
from pcircle.runtime import Observer
from pcircle.tools.fsum.console import SumConsole, tell_differences
from pcircle.tools.fsum.options import WHOLE_CHUNKS, SumOptions
from pcircle.tools.fsum.plan import LARGE_BYTES, OwnFile, SumPlan
from pcircle.tools.fsum.visitor import SumTask
from pcircle.transport.launch import launched

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.jobs.tree_task import TreePlan
    from pcircle.ops.digest.checksums import ChecksumLine
    from pcircle.ops.digest.manifest import Manifest
    from pcircle.tools.fsum.whole import WholeTask
    from pcircle.walk.roots import Root

# Modules that few runs need are imported where they are used, so that other runs start faster.


class SumProgram(WalkProgram["SumTask | WholeTask"]):
    """The program of fsum."""

    name = "fsum"
    reads_only: ClassVar[bool] = True
    plan_type: ClassVar[type[SumPlan]] = SumPlan
    options: SumOptions

    def __init__(self, options: SumOptions) -> None:
        super().__init__(options, options.paths)
        self._expected: Sequence[ChecksumLine] = ()  # on rank 0 only
        self._algorithm = ""
        self._checksum = options.checksums or ""
        self._is_list = False
        self._bad_lines = 0  # invalid lines of the list
        self._first_bad: tuple[str, ...] = ()
        self._own: tuple[OwnFile, ...] = ()
        self._output: bytes | None = None
        self._parts: bytes | None = None  # the temporary manifest, and the path prefix of its parts

    def check(self) -> None:
        """Check the output files, and read the manifest or list to compare with.

        The manifest supplies the PATH if none is given. Raise UsageError if either fails.
        """
        options = self.options
        if not options.whole and options.against is None:
            try:
                digests.get_algorithm(options.algorithm or digests.DEFAULT)
            except ValueError as error:
                raise UsageError(f"--algorithm: {error}") from None
        super().check()
        old, self._algorithm, self._is_list = self._compared()
        # Lists are relative to the working directory.
        default = b"." if old is None else old.root.name
        self.paths: tuple[bytes, ...] = options.paths or (default,)

    def roots(self) -> tuple[Root, ...]:
        return resolve(self.paths, "sign")

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options = self.options
        against = None
        if options.against is not None and not self._is_list:
            against = self._place_of_old(options.against, here := self.directory())
            from pcircle.tools.fsum.manifests import own_files

            self._own = own_files(roots[0], here, [OwnFile(*os.path.split(against))])
        if self._is_list and roots[0].name:
            raise UsageError(f"'{show(roots[0].shown)}' is not a directory")
        return {
            "algorithm": self._algorithm,
            "checksum": self._checksum,
            "large_bytes": min(LARGE_BYTES, options.chunk_bytes or LARGE_BYTES),
            "chunk_bytes": options.chunk_bytes,
            "ranks": ranks,
            "listing": options.files_from is not None,
            "against": against,
            "mode": options.mode,
            "whole": options.whole or self._is_list,
            "listed": self._is_list,
        }

    @property
    def lists_whole(self) -> bool:
        return self.options.recursive

    def begin(self, roots: tuple[Root, ...]) -> None:
        if self.options.written is not None:
            self._begin_output(self.options.written, roots[0])
        if self.options.whole and not self.options.quiet:
            self._explain_manifests(roots)
        super().begin(roots)

    def _explain_manifests(self, roots: tuple[Root, ...]) -> None:
        """Warn about PATHs that are manifests: the digest of such a file is rarely intended."""
        from pcircle.ops.digest.manifest import is_manifest

        for root in roots:
            if root.name and is_manifest(os.path.join(self.directory(), root.shown)):
                name = show(root.shown)
                use = f"for the digests in it, use --export '{name}'"
                self.complain(f"'{name}' is a manifest, and this is the digest of the file; {use}")

    def _begin_output(self, output: bytes, root: Root) -> None:
        """Prepare the parts of the manifest; raise UsageError if it cannot be written."""
        from pcircle.tools.fsum.manifests import (
            destination_of,
            own_files,
            place_for,
            refuse_data,
            refuse_existing,
        )

        here = self.directory()
        self._output = destination_of(output, here)
        refuse_data(self._output, root, here)
        if self.options.output is not None and not self.options.force:
            refuse_existing(self._output, output)
        self._parts = parts = place_for(self._output)
        own = [OwnFile(*os.path.split(self._output)), OwnFile(*os.path.split(parts), parts=True)]
        self._own += own_files(root, here, own)

    def opened(self) -> dict[str, Any]:
        return {"parts": self._parts, "own": self._own}

    def withdraw(self) -> None:
        if self._parts is not None:
            os.unlink(self._parts)

    def prepare_again(self, plan: bytes, ranks: int) -> bytes:
        """Return the plan for a new job after a rank was lost.

        Remove the parts of the manifest that the ranks of the earlier job wrote.
        """
        if self._parts is not None:
            from pcircle.walk.segments import remove  # required only if ranks were lost

            remove(self._parts, msgspec.msgpack.decode(plan, type=SumPlan).ranks)
        return super().prepare_again(plan, ranks)

    def _place_of_old(self, against: bytes, here: bytes) -> bytes:
        """Return a path by which ranks can open the old manifest without following links."""
        path = os.path.join(here, against)
        if self.options.insecure_links:
            with named(path) as place:
                return path if place.descriptor else place.path
        return path

    def _compared(self) -> tuple[Manifest | None, str, bool]:
        """Return the manifest to compare with, the algorithm, and whether a list is checked."""
        options = self.options
        if options.against is None:
            return None, options.algorithm or "xxh128", False
        from pcircle.ops.digest.manifest import Manifest
        from pcircle.tools.fsum.manifests import read_against

        found = read_against(options.against, options.algorithm, options.mode, null=options.null)
        if isinstance(found, Manifest):
            if options.algorithm not in (None, found.algorithm.name):
                shown = show(options.against)
                raise UsageError(f"--algorithm: '{shown}' was made with {found.algorithm.name}")
            if options.mode == "update":
                self._checksum = found.checksum
            return found, found.algorithm.name, False
        if options.filters or options.files_from is not None or options.one_file_system:
            raise UsageError(
                "--check of a checksum list cannot be combined with filters, --files-from or -x"
            )
        if options.chunk_bytes is not None:
            raise UsageError(WHOLE_CHUNKS)
        self._expected, self._bad_lines = found.lines, found.malformed_count
        shown = show(options.against)
        self._first_bad = tuple(f"'{shown}': {reason}" for reason in found.first_errors)
        return None, found.algorithm, True

    def new_task(self, plan: TreePlan, rank: int, lists: Lists | None) -> SumTask | WholeTask:
        decided = require_type(SumPlan, plan)
        if decided.whole:
            from pcircle.tools.fsum.whole import WholeTask

            return WholeTask(decided, rank, lists, expected=self._expected)
        digests.ensure_usable(decided.algorithm, rank)
        return SumTask(decided, rank, lists)

    def observer(self, plan: bytes) -> Observer[Any]:
        options = self.options
        return SumConsole(
            msgspec.msgpack.decode(plan, type=SumPlan),
            options,
            self.log,
            output=self._output,
            force=options.force or options.output is None,
            bad_lines=self._bad_lines,
            first_bad=self._first_bad,
        )


def sum_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    if not all(args.operands):
        raise UsageError("empty file name")
    if args.diff is not None:
        return _diff(args)
    if args.export is not None:
        return _export(args)
    return _run(SumOptions.of(args, paths=tuple(map(os.fsencode, args.operands))))


def _diff(args: argparse.Namespace) -> int:
    """Compare two manifests on rank 0, and return the exit code."""
    SumOptions.refuse_others(args, "diff", "two manifests")
    if launched().rank:
        return 0
    from pcircle.tools.fsum.console import differences
    from pcircle.tools.fsum.manifests import read_manifest

    with any_link(args.insecure_links):
        old, new = (read_manifest(os.fsencode(name)) for name in args.diff)
    if old.algorithm.name != new.algorithm.name:
        raise UsageError("--diff: the manifests use different algorithms")
    with any_link(args.insecure_links):
        return tell_differences(differences(old, new), args.json)


def _export(args: argparse.Namespace) -> int:
    """Print a checksum list from a manifest on rank 0, and return the exit code."""
    SumOptions.refuse_others(args, "export", "a manifest", operands=1)
    SumOptions.refuse_combinations(args)
    if launched().rank:
        return 0
    from pcircle.tools.fsum.console import tell_checksums
    from pcircle.tools.fsum.manifests import read_manifest

    with any_link(args.insecure_links):
        manifest = read_manifest(os.fsencode(args.export))
        if not manifest.checksum:
            shown = show(os.fsencode(args.export))
            hint = "write it with -o and --checksums sha256, for example"
            raise UsageError(f"--export: '{shown}' records no checksums of whole files; {hint}")
        root = os.fsencode(args.operands[0]) if args.operands else manifest.root.name
        return tell_checksums(manifest, root)


def _run(options: SumOptions) -> int:
    try:
        if options.checksums is not None:
            from pcircle.ops.digest.checksums import new_hasher

            new_hasher(options.checksums)
    except ValueError as error:
        raise UsageError(f"--checksums: {error}") from None
    try:
        if options.whole:
            from pcircle.ops.digest.checksums import new_hasher

            new_hasher(options.algorithm or "xxh128")
        elif options.against is None:
            digests.check_name(options.algorithm or digests.DEFAULT)
        if not options.whole:
            digests.import_early(options.algorithm or digests.DEFAULT)
    except ValueError as error:
        raise UsageError(f"--algorithm: {error}") from None
    return SumProgram(options).run()
