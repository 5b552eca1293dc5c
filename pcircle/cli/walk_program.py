"""Programs of tools that walk: from the options to the plan, and from the plan to the tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli.filters import now_ns, refuse_ageless
from pcircle.cli.inputs import lists_of, refuse_loose, rules_of, strictly
from pcircle.cli.program import ToolProgram, run_tool
from pcircle.fs.directories import working_directory
from pcircle.fs.safe_open import any_link
from pcircle.jobs.failures import line_of
from pcircle.jobs.tree_task import TreePlan, resolve
from pcircle.walk.tasks import WalkTask

if TYPE_CHECKING:
    from pcircle.cli.options import CommonOptions
    from pcircle.fs.lists import Lists
    from pcircle.walk.roots import Root

T = TypeVar("T", bound=WalkTask[Any, Any])


class WalkProgram(ToolProgram, Generic[T]):
    """The program of a tool that walks; `T` is its task."""

    plan_type: ClassVar[type[TreePlan]] = TreePlan

    def __init__(self, options: CommonOptions, paths: Sequence[bytes]) -> None:
        super().__init__()
        self.options = options
        self.paths = tuple(paths)
        self._more: dict[str, Any] = {}  # further fields of the plan
        self._lists: Lists | None = None  # on rank 0

    def check(self) -> None:
        """Check, before all else, that results can be written. UsageError."""
        if self.options.json is not None:
            jsonout.check(self.options.json)

    def roots(self) -> tuple[Root, ...]:
        """Return the roots of the walk. UsageError."""
        return resolve(self.paths)

    def directory(self) -> bytes:
        """Return the directory to which relative roots refer."""
        return working_directory()

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        """Return more fields of the plan, decided on rank 0. UsageError."""
        return {}

    def listing(self, roots: tuple[Root, ...]) -> Lists | None:
        """Return the paths of a list, if there is one. UsageError."""
        if self.options.files_from is None:
            return None
        whole, strict = self.lists_whole, self.lists_strictly
        return lists_of(
            self.options,
            roots,
            self.complain,
            whole=whole,
            strict=strict,
            complete=self.lists_completely,
        )

    @property
    def lists_whole(self) -> bool | None:
        """Return whether listed directories include their contents."""
        return False

    @property
    def lists_strictly(self) -> bool:
        """Return whether a listed path with a trailing slash must be a directory."""
        return False

    @property
    def lists_completely(self) -> bool:
        """Return whether a list of paths or patterns that may be truncated is refused."""
        return False

    def begin(self, roots: tuple[Root, ...]) -> None:
        """Open the output files after all checks: a refused run keeps old files. UsageError."""
        self.begin_log(self.options.error_log)

    def opened(self) -> dict[str, Any]:
        """Return more fields of the plan, known after `begin`."""
        return {}

    @abstractmethod
    def new_task(self, plan: TreePlan, rank: int, lists: Lists | None) -> T:
        """Return the task of a rank; `lists` are on rank 0."""

    def run(self) -> int:
        """Run the tool on the requested ranks and return the exit code."""
        with any_link(self.options.insecure_links):
            return run_tool(self, self.options)

    def prepare(self, nodes: Sequence[int]) -> bytes:
        options = self.options
        self.check()
        if options.strict_operands:
            refuse_loose(self.paths)
        roots = self.roots()
        if options.strict_operands:
            roots = strictly(roots)
        refuse_ageless(options.wanted, self.paths)
        fields: dict[str, Any] = {
            "roots": roots,
            "directory": self.directory(),
            "one_node": len(set(nodes)) == 1,
            "rules": rules_of(options.filters, null=options.null, complete=self.lists_completely),
            "wanted": options.wanted,
            "now_ns": now_ns(),
            "one_file_system": options.one_file_system,
            "threads": options.threads,
            "polite": options.polite,
        }
        plan = self.plan_type(**(fields | self._more | self.decided(roots, len(nodes))))
        self._lists = self.listing(roots)
        self.begin(roots)
        return msgspec.msgpack.encode(msgspec.structs.replace(plan, **self.opened()))

    def task(self, plan: bytes, rank: int, size: int) -> T:
        decided = msgspec.msgpack.decode(plan, type=self.plan_type)
        task = self.new_task(decided, rank, self._lists if rank == 0 else None)
        task.line_of = None if self.options.error_log is None else line_of
        self.close = task.close
        return task
