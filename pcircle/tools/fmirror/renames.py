"""`--moved`: before the copy, renames files that only have a different path in the source.

There are three jobs. The first compares both sides like a dry run, and refuses to start in the same
cases as a mirror. The second walks the extraneous entries without removing them, and reports the
size and time of each file. The third renames a file of the target if its contents equal those of
the source file with which it is paired. The mirror that follows finds these files at their new
paths. Files that were not renamed are copied and removed as usual. If removals are withheld,
nothing is renamed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, ClassVar

import msgspec

from pcircle.cli.program import ToolProgram, run_tool
from pcircle.cli.results import Results
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.fs.directories import working_directory
from pcircle.jobs.action_log import ActionLines, ActionOutput
from pcircle.jobs.failures import decode
from pcircle.runtime import Observer, Outcome, Task
from pcircle.tools.fmirror.options import NO_OUTPUT, QUIET, MirrorOptions
from pcircle.tools.fmirror.removal import DeletionConsole, DeletionProgram
from pcircle.tools.fmirror.report import MirrorConsole
from pcircle.tools.fmirror.work.extraneous import ExtraneousPaths
from pcircle.tools.fmirror.work.rename_pairs import (
    RenameCandidates,
    RenamedPaths,
    RenamePair,
    RenameResult,
    ordered,
)
from pcircle.tools.fmirror.work.renames import MovePlan, MoveTask, item_of

if TYPE_CHECKING:
    from pcircle.walk.roots import Root

_PAIRS_TOGETHER = 64
_LINE = msgspec.json.Decoder(tuple[int, str, str])


class ExtraneousFilesConsole(DeletionConsole):
    """Collects the files that would be removed, with their sizes and times."""

    _program: ExtraneousFilesProgram

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            for line in value.planned.splitlines() if isinstance(value, ActionLines) else ():
                _, path, mark = _LINE.decode(line)
                if mark.startswith("f,"):
                    _, size, mtime_ns = map(int, mark[2:].split(","))
                    if size:
                        self._program.candidates.add(1, decode(path), size, mtime_ns)


class ExtraneousFilesProgram(DeletionProgram):
    """The second job: finds the files that would be removed."""

    console_type: ClassVar[type[ExtraneousFilesConsole]] = ExtraneousFilesConsole

    def __init__(
        self,
        options: MirrorOptions,
        target: bytes,
        console: MirrorConsole | None,
        found: ExtraneousPaths,
    ) -> None:
        rules = () if console is None else console.rules
        options = options.replace(**NO_OUTPUT, **QUIET, max_delete=None, itemize=False)
        super().__init__(options, target, found, 0, dry=True, keeps=False, rules=rules)
        self.candidates: RenameCandidates = (
            RenameCandidates() if console is None else console.candidates
        )
        self.again = True

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "candidates": None}

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        return super().decided(roots, ranks) | {"acts": ActionOutput(plan=True)}

    def complain(self, text: str) -> None:
        """Print nothing, because the mirror will report the same refusal."""


class _MoveObserver(Observer[tuple[int, int]]):
    """Collects the results of the renames on rank 0."""

    def __init__(self, options: MirrorOptions, lines: IO[bytes], paths: IO[bytes]) -> None:
        self._results = Results("fmirror", options.json, lambda text: None)
        self._said = options.itemize and not options.silent
        self._new, self._old = bytearray(), bytearray()
        self._lines, self._paths = lines, paths
        self.result: tuple[int, int] = 0, 0

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, RenamedPaths):
                self._new += value.new
                self._old += value.old
            elif isinstance(value, ActionLines):
                self._lines.write(value.text)
                self._paths.write(value.paths)
                if self._said:
                    self._results.text([value.said])

    def renamed(self) -> RenamedPaths:
        """Return the paths that a dry run would rename. This method can be called only once."""
        return RenamedPaths(ordered(self._new), ordered(self._old))

    def conclude(self, outcome: Outcome[tuple[int, int]]) -> int:
        self.result = outcome.result or (0, 0)
        return outcome.code


class MoveProgram(ToolProgram):
    """The third job: renames the files of the pairs."""

    name = "fmirror"
    again = True

    def __init__(self, options: MirrorOptions, pairs: Iterable[RenamePair]) -> None:
        super().__init__()
        self._options = options
        self._pairs = pairs
        self._streams = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.listener: _MoveObserver = _MoveObserver(options, *self._streams)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pairs": (), "_streams": (), "listener": None}

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options, ranks = self._options, len(nodes)
        end = b"" if options.list_out is None else b"\0" if options.null else b"\n"
        rates = options.bytes_per_s, options.operations_per_s
        shares = (None if rate is None else rate / ranks for rate in rates)
        where = options.sources[0], options.target, working_directory()
        acts = ActionOutput(options.json_lines is not None, end)
        keep = options.keep
        plan = MovePlan(*where, keep.links, acts, options.dry, keep.flags, *shares)
        return msgspec.msgpack.encode(plan)

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        decided = msgspec.msgpack.decode(plan, type=MovePlan)
        task = MoveTask(decided, rank, _items(self._pairs))
        self.close: Callable[[], None] = task.close
        return task

    def observer(self, plan: bytes) -> Observer[Any]:
        return self.listener

    def moved(self) -> RenameResult:
        """Return the result of the renames, on rank 0."""
        return RenameResult(*self.listener.result, *self._streams, self.listener.renamed())


def _items(pairs: Iterable[RenamePair]) -> Iterator[bytes]:
    remaining = iter(pairs)
    while batch := tuple(islice(remaining, _PAIRS_TOGETHER)):
        yield item_of(batch)


def move(
    options: MirrorOptions,
    looked: Callable[[MirrorOptions], tuple[int, MirrorConsole | None]],
) -> tuple[int, RenameResult]:
    """Rename moved files, and return an exit code and the result.

    The run must end if the exit code is not 0. `looked` runs the first job with the given options.
    It returns the exit code of that job and, on rank 0, its console with the findings.
    """
    code, console = looked(options.comparison(**QUIET, looks="moves", moved=not options.dry))
    with nullcontext() if console is None else closing(console):
        if code == UsageError.exit_code:
            return 0, RenameResult()  # the mirror will report the same error
        if code not in (0, EntriesFailed.exit_code):
            return code, RenameResult()
        found = ExtraneousPaths()
        if console is not None and not console.withheld(ignore=options.ignore_errors):
            found = console.found
        survey = ExtraneousFilesProgram(options, options.target, console, found)
        code = run_tool(survey, options)
    if code not in (0, EntriesFailed.exit_code):
        return code, RenameResult()
    renaming = MoveProgram(options, survey.candidates.pairs())
    code = run_tool(renaming, options)
    return code, renaming.moved()
