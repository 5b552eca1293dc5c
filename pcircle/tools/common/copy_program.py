"""The program of a copy: turns options into a plan and tasks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from pcircle.cli.inputs import read_paths, refuse_elsewhere, refuse_nonstrict, rules_of
from pcircle.cli.program import ToolProgram, local_ranks, run_tool
from pcircle.cli.results import open_output
from pcircle.core.encoding import show
from pcircle.core.errors import RankLost, StoppedEarly, UsageError
from pcircle.core.units import CHUNK_UNIT_BYTES
from pcircle.fs.directories import working_directory
from pcircle.fs.safe_open import any_link
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import LogFile
from pcircle.ops.checkpoint.resume import CheckpointSession
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from pcircle.ops.copy.tree.destination import demand, resolve, striping_of
from pcircle.ops.copy.tree.items import DEFAULT_LARGE_BYTES, DIRECTORY, CopyPlan, CopyRoot
from pcircle.ops.copy.tree.resume import (
    has_checkpoint,
    is_worth_it,
    keep,
    left_behind,
    none_found,
    reached,
)
from pcircle.ops.copy.tree.task import CopyTask, JournaledCopy
from pcircle.runtime import Observer, Task
from pcircle.tools.common.copy_console import CopyConsole, Signatures, described
from pcircle.tools.common.copy_options import CopyOptions
from pcircle.walk.attributes import AttributeFilter
from pcircle.walk.globs import Rule

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists
    from pcircle.jobs.plan_output import PlanFile
    from pcircle.ops.copy.tree.dry_run import DryTask
    from pcircle.runtime.restart import OutputLog
    from pcircle.tools.common.copy_error_log import RetryEntry


_UMASK_LOCK = threading.Lock()
"""Held while the umask is read, because a program may start several copies on threads."""

O = TypeVar("O", bound=CopyOptions)  # noqa: E741 - options


class CopyProgram(ToolProgram):
    """The program of a copy. Other tools that copy extend it."""

    plan_type: ClassVar[type[CopyPlan]] = CopyPlan
    task_type: ClassVar[type[CopyTask]] = CopyTask
    journaled_type: ClassVar[type[JournaledCopy]] = JournaledCopy
    console_type: ClassVar[type[CopyConsole]] = CopyConsole
    outlives_ranks: ClassVar[bool] = True
    """True if the job can continue without ranks that were lost."""
    said: ClassVar[str] = "copied"
    """The word before each path with -v; empty if something else lists the changes."""
    lists_completely: ClassVar[bool] = False
    """True if lists of paths or patterns that may be truncated are refused."""

    def __init__(self, options: CopyOptions, umask: int) -> None:
        super().__init__()
        self.name: str = options.tool
        self._options = options
        self._umask = umask
        self._actions: LogFile | None = None
        self._list: LogFile | None = None
        self.planned: PlanFile | None = None  # set only by tools with plans
        self._checkpoint_options = options.checkpoint
        self._checkpoint_session: CheckpointSession | None = None
        self._lists: Lists | None = None  # on rank 0
        self._stdin_lists: Lists | None = None  # from standard input
        self.limit = options.time_limit()
        self.console: CopyConsole | None = None  # on rank 0
        self.output_log: OutputLog | None = None  # only on rank 0 of a job that can restart
        self._former: CopyConsole | None = None
        self.began_s: float | None = None  # start of the first run if the job was restarted
        self._size = 1
        self._exact = False  # the target is the copy itself, not its parent directory

    def restart_options(self) -> dict[str, object] | None:
        """Return the options to change so that the job continues without the lost ranks.

        Return None if the job does not continue. The other ranks restart from the checkpoint. The
        state of the lost ranks is not needed, because a checkpoint can be resumed even if all ranks
        are killed, at any moment (`pcircle.ops.checkpoint`).
        """
        loss = None if self.console is None else self.console.loss
        if loss is None:
            return None
        checkpoint = msgspec.structs.replace(
            self._options.checkpoint, resume=loss.resumes, restart=False
        )
        # The interpretation of DST must not change if the copy has created DST.
        return {
            "jobs": self._size - len(loss.ranks),
            "checkpoint": checkpoint,
            "into": not self._exact,
            "exact": self._exact,
        }

    def follow(self, former: CopyProgram) -> None:
        """Take over the logs and the time limit of a program that has lost ranks.

        Raise StoppedEarly if its output cannot be read.
        """
        # The time limit and the elapsed time are measured from the first start.
        self.limit, self.began_s = former.limit, former.began_s
        self.log: LogFile | None = former.log
        self._actions = former._actions
        self._list = former._list
        self.output_log, self._former = former.output_log, former.console
        self._stdin_lists = former._stdin_lists
        try:
            if self.output_log is not None:
                self.output_log.begin_again()
        except OSError as error:
            raise StoppedEarly(f"cannot read temporary files: {error.strerror}") from error

    def ended(self, code: int) -> int:
        """Return the exit code of a job that does not continue."""
        final_code = None if self.console is None else self.console.final_code
        if code == RankLost.exit_code and self.outlives_ranks and final_code is not None:
            return final_code  # all results were reported before the ranks were lost
        return code

    def _can_restart(self) -> bool:
        """Return whether the job can continue after the loss of local ranks."""
        options = self._options
        if not self.outlives_ranks or options.dry:
            return False
        if self._checkpoint_session is None and options.existing != OverwriteOptions():
            return False  # entries copied before the loss would count as existing entries
        return self._former is not None or local_ranks(options) > 1

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options = self._options
        _refuse_unusable(options)
        options.refuse_without_birth_times(options.sources)
        rules = rules_of(options.filters, null=options.null, complete=self.lists_completely)
        here = working_directory()
        self._checkpoint_options = reached(options.checkpoint)
        log = options.retry_from
        entries: Iterator[RetryEntry] = iter(())
        if log is not None:
            from pcircle.tools.common.copy_error_log import read_log, select

            entries = read_log(log)
        failed = list(islice(entries, 1))
        try:
            roots = self._prefer_interrupted(self._roots(failed, here), here)
        except UsageError as error:
            raise _explained(error, options.unjoined) from None
        if log is not None:
            self._lists = select(chain(failed, entries), roots, here)
        elif options.files_from is not None:
            note = None if options.quiet else self.complain
            self._lists = self._stdin_lists or _listed(
                options, options.files_from, roots, note, complete=self.lists_completely
            )
            if options.files_from == "-":  # standard input can be read only once
                self._stdin_lists = self._lists
        else:
            self._lists = self.listing(roots)
        plan = self._with_checkpoint(self._decide(nodes, roots, rules, here))
        self._open_logs()  # last, because a refused run must not truncate old logs
        return msgspec.msgpack.encode(plan)

    def _decide(
        self,
        nodes: Sequence[int],
        roots: tuple[CopyRoot, ...],
        rules: tuple[Rule, ...],
        here: bytes,
    ) -> CopyPlan:
        """Return the plan without its checkpoint. Raise UsageError if the copy is impossible."""
        options = self._options
        attributes = demand(options.stripe, options.keep)
        fields: dict[str, Any] = options.planned(self.plan_type) | {
            "roots": roots,
            "keep": attributes,
            "large_bytes": _large_bytes(options),
            "token": os.urandom(4).hex().encode(),
            "umask": self._umask,
            "directory": here,
            "one_node": len(set(nodes)) == 1,
            "say_each": options.dry and options.verbose > 0,
            "listed": None if self._lists is None else self._lists.digest,
            "rules": rules,
            "follow": options.links == "all",
            "striping": striping_of(options.stripe, attributes, roots),
            "attribute_filter": _attribute_filter(options),
            "now_ns": time.time_ns(),
            "acts": self._acts(roots),
            "strict": options.strict_operands,
            "retries": options.retry_from is not None,
        }
        return self.plan_type(**fields | self.decided(roots))

    def listing(self, roots: tuple[CopyRoot, ...]) -> Lists | None:
        """Return a list of the paths to copy, or None to copy all paths.

        Raise UsageError if there is no valid list.
        """
        return None

    def decided(self, roots: tuple[CopyRoot, ...]) -> dict[str, Any]:
        """Return additional fields of the plan, as decided on rank 0.

        Raise UsageError to refuse the copy.
        """
        return {}

    def _open_logs(self) -> None:
        options = self._options
        if self._former is not None:
            return  # the first run has opened the logs
        self.begin_log(options.error_log)
        if options.json_lines is not None:
            self._actions = LogFile(open_output(options.json_lines, "--json-lines"))
        if options.list_out is not None:
            self._list = LogFile(open_output(options.list_out, "--list-out"))

    def _acts(self, roots: tuple[CopyRoot, ...]) -> ActionOutput:
        """Return which records of actions are requested.

        Raise UsageError if a list is requested but not possible.
        """
        options = self._options
        end = b""
        if options.list_out is not None:
            if len(roots) != 1 or roots[0].kind != DIRECTORY:
                raise UsageError("--list-out requires exactly one SRC, which must be a directory")
            end = b"\0" if options.null else b"\n"
        word = self.said if options.verbose and not options.dry else ""
        return ActionOutput(options.json_lines is not None, end, word)

    def _with_checkpoint(self, plan: CopyPlan) -> CopyPlan:
        """Return the plan, with a checkpoint if the copy uses one."""
        if plan.strict:
            _refuse_elsewhere(plan.roots)
        if not self._checkpoint_options.never and is_worth_it(plan):
            self._checkpoint_session = keep(
                plan, self._checkpoint_options, self._options.same_on_resume(plan)
            )
            if self._checkpoint_session is not None:
                plan = _resumed(plan, self._checkpoint_session)
        if not self._options.quiet:
            self._report_checkpoints(plan.roots)
        return plan

    def _report_checkpoints(self, roots: Sequence[CopyRoot]) -> None:
        """Report that --resume found no checkpoint, or that checkpoints of other copies exist."""
        session = self._checkpoint_session
        if session is None or (session.plan.run == 1 and not session.plan.stale):
            if self._checkpoint_options.resume:
                shown = self._options.target
                exact = self._options.into or self._options.exact
                self.complain(none_found(roots, roots[0].target_shown if exact else shown))
            for remark in () if session is None else left_behind(session):
                self.complain(described(remark))

    def withdraw(self) -> None:
        if self._checkpoint_session is not None:
            self._checkpoint_session.abandon()

    def _roots(self, failed: Sequence[RetryEntry], here: bytes) -> tuple[CopyRoot, ...]:
        """Return a root for each SRC, including its destination.

        A retry of failed entries interprets DST like the first run, even though DST now exists.
        """
        options = self._options
        into, exact = options.into, options.exact
        roots = self._resolve(into=into, exact=exact)
        if failed and len(roots) == 1 and not (into or exact):
            from pcircle.tools.common.copy_error_log import sides

            wanted = (failed[0].source, failed[0].target)
            if sides(roots[0], here) != wanted:
                exact_roots = self._resolve(exact=True)
                if sides(exact_roots[0], here) == wanted:
                    return exact_roots
        return roots

    def _resolve(self, *, into: bool = False, exact: bool = False) -> tuple[CopyRoot, ...]:
        options = self._options
        follow, force = options.links != "none", options.existing.force
        operands = options.sources, options.target
        return resolve(*operands, into=into, exact=exact, follow=follow, force=force)

    def _prefer_interrupted(self, roots: tuple[CopyRoot, ...], here: bytes) -> tuple[CopyRoot, ...]:
        """Return these roots, or those of an interrupted copy that has created DST."""
        options = self._options
        checkpoint = self._checkpoint_options
        root, *more = roots
        if more or options.into or options.exact or checkpoint.never:
            return roots
        if root.target_shown == options.target:  # both interpretations agree
            return roots
        if has_checkpoint(roots, here, checkpoint):
            return roots
        try:
            exact_roots = self._resolve(exact=True)
        except UsageError:
            return roots
        return exact_roots if has_checkpoint(exact_roots, here, checkpoint) else roots

    def task(self, plan: bytes, rank: int, size: int) -> Task[Any, Any]:
        self._size = size
        decided = msgspec.msgpack.decode(plan, type=self.plan_type)
        lists = self._lists if rank == 0 else None
        if decided.sign is not None:
            from pcircle.ops.digest.digests import ensure_usable

            ensure_usable(decided.sign, rank)
        if decided.dry:
            dry = self.dry_type()(decided, rank, size, lists)
            self.close: Callable[[], None] = dry.close
            dry.line_of = self._line_of(decided)
            return dry
        if decided.journal is not None:
            path = decided.journal.path
            task = self._journaled(decided, rank, size, lists, path)
        else:
            task = self.task_type(decided, rank, size, lists)
        self.close, task.line_of = task.close, self._line_of(decided)
        return task

    def dry_type(self) -> type[DryTask]:
        """Return the task of a dry run."""
        from pcircle.ops.copy.tree.dry_run import DryTask

        return DryTask

    def _journaled(
        self, plan: CopyPlan, rank: int, size: int, lists: Lists | None, path: bytes
    ) -> CopyTask:
        """Return the task of a copy with a checkpoint at `path`.

        Raise StoppedEarly if this rank cannot access the checkpoint.
        """
        try:
            return self.journaled_type(plan, rank, size, self._checkpoint_session, lists)
        except OSError as error:
            text = f"rank {rank} cannot use the checkpoint '{show(path)}'"
            reason = f"{text}, which must be visible to all ranks: {error.strerror}"
            raise StoppedEarly(reason) from error

    def _line_of(self, plan: CopyPlan) -> Callable[[Any], bytes] | None:
        """Return the function that formats lines of the error log, or None if there is no log."""
        if self._options.error_log is None:
            return None
        from pcircle.tools.common.copy_error_log import CopyLineFormatter

        return CopyLineFormatter(plan.roots, plan.directory).of

    def observer(self, plan: bytes) -> Observer[Any]:
        options = self._options
        signatures = None
        roots = msgspec.msgpack.decode(plan, type=CopyPlan).roots
        self._exact = roots[0].target_shown == options.target and not options.into
        if options.sign is not None:
            signatures = Signatures(options.sign, tuple(root.target_shown for root in roots))
        self.console = self.console_type(
            options,
            self.log,
            roots=roots,
            session=self._checkpoint_session,
            signatures=signatures,
            actions=self._actions,
            listed=self._list,
            planned=self.planned,
        )
        self.console.can_restart = self._can_restart()
        if self.console.can_restart:
            if self.output_log is None:
                from pcircle.runtime.restart import OutputLog

                self.output_log = OutputLog()
            self.console.follow(self.output_log, self._former)
        self.began_s = self.console.began_s = self.began_s or self.console.began_s
        return self.console


def _refuse_elsewhere(roots: Sequence[CopyRoot]) -> None:
    """Raise UsageError if an operand was replaced by a symbolic link since it was checked."""
    for root in roots:
        for holder, name, shown in (
            (root.source_holder, root.source_name, root.source_shown),
            (root.target_holder, root.target_name, root.target_shown),
        ):
            refuse_elsewhere(os.path.join(holder, name), shown)


def _attribute_filter(options: CopyOptions) -> AttributeFilter:
    """Return the filter, for a retry without limits on times, which may have changed."""
    chosen = options.attribute_filter
    if options.retry_from is None:
        return chosen
    return msgspec.structs.replace(chosen, newer_than=None, older_than=None)


def run_copy(options: O, make_program: Callable[[O, int], CopyProgram] = CopyProgram) -> int:
    """Run a copy, and return the exit code.

    `make_program` creates the program from the options and the umask.
    """
    demand(options.stripe, options.keep)  # raises UsageError for an invalid combination
    _import_ahead(options)
    # Before directories and files get their final modes, their owner must be able to access them.
    with _UMASK_LOCK:
        umask = os.umask(0o077)
        os.umask(umask & ~0o700)
    try:
        with any_link(options.insecure_links):
            return _run(options, make_program, umask)
    finally:
        if umask & 0o700:
            os.umask(umask)


def _run(options: O, make_program: Callable[[O, int], CopyProgram], umask: int) -> int:
    """Run the copy, and restart it with fewer ranks whenever ranks are lost.

    Return the exit code.
    """
    program = make_program(options, umask)
    while True:
        code = run_tool(program, options)
        changed = program.restart_options()
        if changed is None:
            return program.ended(code)
        former, options = program, options.replace(**changed)
        program = make_program(options, umask)
        program.follow(former)


def _refuse_unusable(options: CopyOptions) -> None:
    """Raise UsageError for an unsafe operand, an unusable algorithm or an unwritable result file.

    Operands are restricted only with `--strict-operands`.
    """
    if options.strict_operands:
        refuse_nonstrict((*options.sources, options.target))
    if options.sign is not None:
        from pcircle.ops.digest.digests import get_algorithm  # few copies are signed

        try:
            get_algorithm(options.sign)
        except ValueError as error:
            raise UsageError(f"--signature: {error}") from None
    if options.json is not None:
        from pcircle.cli import json_output as jsonout

        jsonout.check(options.json)


def _import_ahead(options: CopyOptions) -> None:
    """Import modules that only this job needs before ranks are forked, so that all share them."""
    if options.verify:
        import pcircle.ops.copy.tree.verify
    if options.dry:
        import pcircle.ops.copy.tree.dry_run  # noqa: F401
    if options.sign is not None:
        from pcircle.ops.digest.digests import import_early

        import_early(options.sign)


def _resumed(plan: CopyPlan, session: CheckpointSession) -> CopyPlan:
    """Return the plan with the checkpoint of a session and the settings recorded there."""
    journal = session.plan
    return msgspec.structs.replace(
        plan,
        journal=journal,
        large_bytes=session.large_bytes,
        since_ns=journal.since_ns if journal.stale else None,
        now_ns=journal.now_ns,
    )


def _listed(
    options: CopyOptions,
    name: str,
    roots: tuple[CopyRoot, ...],
    note: Callable[[str], None] | None,
    *,
    complete: bool,
) -> Lists:
    """Return the paths of `--files-from`. Raise UsageError if they cannot be read."""
    if len(roots) != 1 or roots[0].kind != DIRECTORY:
        raise UsageError("--files-from requires exactly one SRC, which must be a directory")
    paths = read_paths(
        name, null=options.null, whole=options.recursive, note=note, complete=complete
    )
    from pcircle.fs.lists import sort  # few runs have a list

    return sort([(0, paths)])


def _explained(error: UsageError, unjoined: Sequence[tuple[str, str]]) -> UsageError:
    """Return the error, or a clearer one if a source was intended as the value of an option."""
    for option, word in unjoined:
        if f"source '{word}': " in str(error):
            return UsageError(f"{option} takes its value with '=': {option}={word}")
    return error


def _large_bytes(options: CopyOptions) -> int:
    """Return the size above which files are copied in chunks."""
    most = min(DEFAULT_LARGE_BYTES, options.chunk_bytes or DEFAULT_LARGE_BYTES)
    if options.bytes_per_s is None:
        return most
    # A file above this size is divided among the ranks, because each has only a share of the rate.
    return min(most, max(CHUNK_UNIT_BYTES, int(options.bytes_per_s)))
