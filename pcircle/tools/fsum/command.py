"""The program of fsum, its console, the comparison of two manifests, and the report.

The program interprets the options, and computes or checks signatures. The console prints failures
as they occur, progress, and signatures. Two manifests are compared from the top, and subtrees with
equal digests are skipped.

Modules that few runs need are imported where they are used, so that other runs start faster.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle import __version__
from pcircle.cli import console as base
from pcircle.cli import json_output as jsonout
from pcircle.cli.options import CommonOptions
from pcircle.cli.output import MessageStream
from pcircle.cli.program import WalkProgram
from pcircle.cli.report import ReadReport, RootSignature, ToolReport, only_signature
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import (
    Defect,
    EntriesFailed,
    IntegrityError,
    StoppedEarly,
    UsageError,
    require,
    require_type,
    worst,
)
from pcircle.core.units import format_count, format_duration, format_rates, format_size, plural
from pcircle.core.writing import CALLER, standard_error
from pcircle.fs.directories import join_path
from pcircle.fs.safe_open import any_link, named
from pcircle.jobs.failures import Failure, LogFile
from pcircle.jobs.tree_task import resolve
from pcircle.ops.digest import digests, format_signature, get_algorithm, iter_entries
from pcircle.ops.digest.manifest import Manifest, pair_entries
from pcircle.runtime import Observer, Outcome
from pcircle.tools.fsum.options import WHOLE_CHUNKS, SumOptions
from pcircle.tools.fsum.plan import (
    LARGE_BYTES,
    Difference,
    Digest,
    OwnFile,
    SumCounters,
    SumPlan,
    SumResult,
)
from pcircle.tools.fsum.visitor import SumTask
from pcircle.transport.launch import launched

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.fs.sorting import Sorter
    from pcircle.jobs.tree_task import TreePlan
    from pcircle.ops.digest.checksums import ChecksumLine
    from pcircle.tools.fsum.whole import WholeTask
    from pcircle.walk.roots import Root


SCHEMA = 1
_BETWEEN = b"\0\0"  # sorts first, and occurs in no path because names are not empty
_UNCHECKED = {"rot": "modified since", "quick": "of unchanged size and time"}


class SumConsole(base.Console[SumResult]):
    """Prints failures and progress, and the signatures or differences at the end."""

    tool = "fsum"
    has_result = True

    def __init__(
        self,
        plan: SumPlan,
        options: CommonOptions,
        log: LogFile | None,
        *,
        output: bytes | None,
        force: bool,
        bad_lines: int,
        first_bad: Sequence[str],
    ) -> None:
        super().__init__(options, log)
        self._plan = plan
        self._json = options.json is not None or CALLER.get() is not None
        self._output = output
        self._force = force
        self._bad_lines = bad_lines  # invalid lines of a checksum list
        self._first_bad = first_bad
        self._digests: Sorter | None = None  # digests of whole files
        if plan.whole:
            from pcircle.fs.sorting import Sorter  # most runs compute no digests of whole files

            self._digests = Sorter()
        self._signs = not plan.whole and (plan.against is None or plan.mode == "update")
        self._differences = Differences()
        self._failed_roots: set[int] = set()

    def counted(self, counts: tuple[int, ...]) -> SumCounters:
        return SumCounters.of(counts)

    def remark(self, notice: object) -> Iterable[str]:
        try:
            if isinstance(notice, Failure):
                self._failed_roots.add(notice.root)
            elif isinstance(notice, Difference):
                self._differences.add([notice])
            elif isinstance(notice, Digest) and self._digests is not None:
                key = notice.path.replace(b"/", b"\0")
                self._digests.add(key + b"\0\0" + notice.digest)
        except OSError as error:
            raise _unsorted(error) from error
        return ()

    # ---- end of the job --------------------------------------------------------

    def conclude(self, outcome: Outcome[SumResult]) -> int:
        code, reasons = self.end(outcome)
        total = SumCounters.total(outcome.counts)
        texts: dict[int, str] = {}
        if not code:
            wrong = None if self._plan.whole else _account(total, outcome)
            if wrong is not None:
                code = Defect.exit_code
                reasons.append(wrong)
            else:
                texts = self._texts(outcome.result)
        if self._plan.detailed:
            code = self._end_manifests(code, total, outcome, reasons)
        elif self._differences:
            code = worst((code, IntegrityError.exit_code))
        for reason in self._first_bad:
            self.note(f"fsum: {reason}")
        if self._bad_lines:
            self.note(f"fsum: {bad_lines(self._bad_lines)}")
        if total.failed or self.log_failed or self._bad_lines:
            code = worst((code, EntriesFailed.exit_code))
        self.tell_failures()
        self.tell_reasons(code, reasons)
        return self._tell(self._report(code, total, tuple(reasons), texts, outcome))

    def _end_manifests(
        self, code: int, total: SumCounters, outcome: Outcome[SumResult], reasons: list[str]
    ) -> int:
        """Write the manifest, or compare the root with the old manifest; return the exit code."""
        from pcircle.tools.fsum.manifests import against_root, publish, root_of

        plan = self._plan
        root = None if code or outcome.result is None else root_of(plan, outcome.result)
        if plan.parts is not None and self._output is not None:
            complete = root is not None and not total.failed
            try:
                published = root if complete else None
                publish(
                    plan, plan.parts, self._output, published, total.completed, force=self._force
                )
            except OSError as error:
                reasons.append(f"cannot write the manifest: {error.strerror}")
                return worst((code, StoppedEarly.exit_code))
            if not complete and not code:
                self.note("fsum: no manifest was written: some entries could not be read")
        elif plan.against is not None and root is not None and not total.failed:
            reported = bool(self._differences)
            self._differences.add(against_root(plan, plan.against, root, reported=reported))
            # No directory has counted a root that is a file.
            total.compared += root.kind == b"f"
        return worst((code, IntegrityError.exit_code)) if self._differences else code

    def _texts(self, result: SumResult | None) -> dict[int, str]:
        """Return the signatures of the roots that were read completely, by root number."""
        if result is None or not self._signs:
            return {}
        chosen = get_algorithm(self._plan.algorithm)
        beside = self._plan.trailer_bytes
        entries = iter_entries(b"".join(result.roots.runs), chosen.size + beside)
        found = {}
        for name, entry in entries:
            if int(name) not in self._failed_roots:
                end = len(entry) - beside
                found[int(name)] = format_signature(chosen, entry[end - chosen.size : end])
        return found

    def _report(
        self,
        code: int,
        total: SumCounters,
        reasons: tuple[str, ...],
        texts: dict[int, str],
        outcome: Outcome[SumResult],
    ) -> SumReport:
        signatures = tuple(
            RootSignature(show(root.shown), texts.get(number))
            for number, root in enumerate(self._plan.roots)
        )
        return SumReport(
            schema=SCHEMA,
            tool="fsum",
            version=__version__,
            exit_code=code,
            algorithm=self._plan.algorithm,
            signatures=signatures,
            reasons=tuple(dict.fromkeys(reasons)),
            **self.fields(SumReport, total, outcome),
            differences=tuple(self._differences.reported()) if self._json else (),
            bad_lines=self._bad_lines,
            checked=total.compared - total.unchecked,
        )

    def _tell(self, report: SumReport) -> int:
        """Write the requested results. Return the exit code, taking failed writes into account."""
        self.results.document(report)
        self.results.text(self._lines(report))
        self._differences.close()
        if self._digests is not None:
            self._digests.close()
        for signed in report.signatures if self._signs else ():
            if signed.signature is None and report.exit_code in (0, EntriesFailed.exit_code):
                reason = "some entries could not be read"
                self.note(f"fsum: no signature of '{signed.path}': {reason}")
        checked = self._plan.listed or (self._plan.against is not None and not self._signs)
        if checked and not self.quiet:
            self.note(f"fsum: {verdict(self._differences.kinds, report, self._plan)}")
        if tables := self.rank_tables(report, report.entries):
            self.note(tables.rstrip("\n"))
        if self.verbose:
            self.note(f"fsum: {summary(report, 'signed' if self._signs else 'read')}")
        return worst((report.exit_code, self.results.code))

    def _lines(self, report: SumReport) -> Iterator[bytes]:
        """Yield the lines of the output: differences, digests of whole files, and signatures."""
        yield from _difference_lines(
            report.differences if self._json else self._differences.reported()
        )
        if self._digests is not None:
            from pcircle.ops.digest.checksums import format_line

            for record in self._digests.sorted():
                path, _, digest = record.rpartition(b"\0\0")
                yield format_line(digest, path.replace(b"\0", b"/")) + b"\n"
        for signed in report.signatures if self._signs else ():
            if signed.signature is not None:
                yield f"{signed.signature}  {signed.path}\n".encode()


def tell_differences(differences: Iterable[Difference], json: str | None) -> int:
    """Print the differences between two manifests, and return the exit code.

    Raise StoppedEarly if temporary files cannot be written.
    """
    found = Differences()
    try:
        found.add(differences)
    except OSError as error:
        raise _unsorted(error) from error
    code = IntegrityError.exit_code if found else 0
    results = Results("fsum", json, MessageStream(standard_error()).line)
    records: Iterable[ReportedDifference] = found.reported()
    if json is not None:
        jsonout.check(json)
        records = tuple(records)
        results.document(ManifestComparison(SCHEMA, "fsum", __version__, code, records))
    results.text(_difference_lines(records))
    found.close()
    return worst((code, results.code))


def tell_checksums(manifest: Manifest, root: bytes) -> int:
    """Print the checksums in a manifest, with paths below `root`, and return the exit code."""
    results = Results("fsum", None, MessageStream(standard_error()).line)
    results.text(_checksum_lines(manifest, root))
    return results.code


def _checksum_lines(manifest: Manifest, root: bytes) -> Iterator[bytes]:
    """Yield the lines of a checksum list in the order of `--format=coreutils`."""
    from pcircle.ops.digest.checksums import format_line

    if manifest.root.kind == b"f":
        yield format_line(manifest.root.checksum.hex().encode(), root) + b"\n"
    below = [(b"", manifest.entries(b""))] if manifest.root.kind == b"d" else []
    while below:
        directory, entries = below[-1]
        for entry in entries:
            path = join_path(directory, entry.name)
            if entry.kind == b"d":
                below.append((path, manifest.entries(path)))
                break
            if entry.kind == b"f":
                shown = os.path.join(root, path)
                yield format_line(entry.checksum.hex().encode(), shown) + b"\n"
        else:
            below.pop()


def _unsorted(error: OSError) -> StoppedEarly:
    """Return the error to raise when a temporary file for sorting cannot be written."""
    return StoppedEarly(f"cannot write temporary files: {error.strerror}")


def _difference_lines(differences: Iterable[ReportedDifference]) -> Iterator[bytes]:
    return (f"{difference.what}  {difference.path}\n".encode() for difference in differences)


def _account(total: SumCounters, outcome: Outcome[SumResult]) -> str | None:
    """Return a message if the counts of a successful job disagree, or None if they agree."""
    signed = 0 if outcome.result is None else outcome.result.roots.signed
    text = base.unsettled(total)
    if not text and not total.failed and total.completed != signed:
        text = f"{total.completed} entries were read, but {signed} signed"
    return base.miscounted(text, total) if text else None


# ---- comparison of manifests ---------------------------------------------------------------------


def differences(old: Manifest, new: Manifest) -> Iterator[Difference]:
    """Yield the differences between the entries of two manifests, directory by directory."""
    a, b = old.root, new.root
    if (a.kind, a.digest) == (b.kind, b.digest):
        return
    if a.kind != b"d" or b.kind != b"d":
        yield Difference("changed", b".")
        return
    paths = [b""]
    while paths:
        path = paths.pop()
        deeper = []
        sections = (manifest.entries(path) for manifest in (old, new))
        for was, now in pair_entries(*sections):
            entry = require(now or was)
            inner = join_path(path, entry.name)
            shown = inner + (b"/" if entry.kind == b"d" else b"")
            if was is None:
                yield Difference("new", shown)
            elif now is None:
                yield Difference("missing", shown)
            elif (was.kind, was.digest) != (now.kind, now.digest):
                if was.kind == now.kind == b"d":
                    deeper.append(inner)
                else:
                    yield Difference("changed", shown)
        paths += reversed(deeper)


# ---- result --------------------------------------------------------------------------------------


class ReportedDifference(msgspec.Struct, frozen=True):
    """An entry that differs from the manifest, with its path relative to the root."""

    what: str
    path: str


class ManifestComparison(ToolReport, frozen=True):
    """The differences between two manifests."""

    differences: tuple[ReportedDifference, ...]


class SumReport(ReadReport, frozen=True):
    """The report of a signature or check.

    `bad_lines` counts the invalid lines of a checksum list. Each selected file in a manifest or
    list is counted as `checked`, `unchecked` or `missing`, unless reading it fails.
    """

    algorithm: str
    signatures: tuple[RootSignature, ...]
    differences: tuple[ReportedDifference, ...] = ()
    bad_lines: int = 0
    checked: int = 0
    unchecked: int = 0
    missing: int = 0

    @property
    def signature(self) -> str:
        """Return the signature of the only path.

        Raises EntriesFailed if entries could not be read, and ValueError if there are several
        paths.
        """
        return only_signature(self.signatures)


class Differences:
    """Collects differences, and yields them in the order of the tree.

    A comparison with the wrong tree finds a difference in every entry, so large numbers of
    differences are sorted in temporary files. Methods raise OSError if such a file cannot be
    written or read.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._sorter: Sorter | None = None

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def add(self, found: Iterable[Difference]) -> None:
        """Add differences."""
        if self._sorter is None:
            from pcircle.fs.sorting import Sorter  # most runs find no differences

            self._sorter = Sorter()
        for difference in found:
            self.kinds[difference.what] += 1
            self._sorter.add(
                difference.path.replace(b"/", b"\0") + _BETWEEN + difference.what.encode()
            )

    def reported(self) -> Iterator[ReportedDifference]:
        """Yield all differences, each directory before its contents."""
        for record in () if self._sorter is None else self._sorter.sorted():
            path, _, what = record.rpartition(_BETWEEN)
            yield ReportedDifference(what.decode(), show(path.replace(b"\0", b"/")))

    def close(self) -> None:
        """Delete the temporary files."""
        if self._sorter is not None:
            self._sorter.close()


def verdict(kinds: Counter[str], report: SumReport, plan: SumPlan) -> str:
    """Return the result of a check in one line: the differences by kind, and unchecked files."""
    phrases = [f"{format_count(kinds[what])} {what}" for what in sorted(kinds)]
    parts = []
    if report.unchecked:
        parts.append(f"{format_count(report.unchecked)} {_UNCHECKED[plan.mode]}, not checked")
    if report.missing and not kinds["missing"]:
        parts.append(f"{format_count(report.missing)} missing")
    if parts:
        files = plural(report.checked + report.unchecked + report.missing, "file", "files")
        phrases.append(f"{format_count(report.checked)} of {files} checked ({'; '.join(parts)})")
    if phrases:
        return ", ".join(phrases)
    contents = "readable contents" if report.failed else "contents"
    if plan.listed:
        return f"{contents} match the list: {plural(report.entries, 'file', 'files')}"
    tree, entries = show(plan.roots[0].shown), plural(report.entries, "entry", "entries")
    return f"{contents} of '{tree}' match the manifest: {entries}"


def bad_lines(count: int) -> str:
    """Return the message about invalid lines of a checksum list."""
    return f"{format_count(count)} line{'s are' if count > 1 else ' is'} improperly formatted"


def summary(report: SumReport, done: str) -> str:
    """Return a one-line summary; `done` is "signed", or "read" if entries were only read."""
    failed = f"{plural(report.failed, 'entry', 'entries')} failed; " if report.failed else ""
    rates = format_rates(report.bytes_per_s, report.entries_per_s)
    return (
        f"{failed}{done} {plural(report.entries, 'entry', 'entries')}, "
        f"{format_size(report.bytes)} in {format_duration(report.elapsed_s)}: {rates}"
    ).removesuffix(": ")


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
    from pcircle.ops.digest.manifest import read_manifest

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
    from pcircle.ops.digest.manifest import read_manifest

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
