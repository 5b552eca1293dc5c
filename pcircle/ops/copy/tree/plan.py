"""The plan of a copy, decided on rank 0 and then the same on every rank."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Callable, Sequence

import msgspec

from pcircle.fs.directories import Directories, bases, capacity_of
from pcircle.jobs.action_log import ActionOutput
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.copy.entry.settings import CopySettings
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.walker import Scope

DIRECTORY, FILE, LINK, SPECIAL = "directory", "file", "link", "special"


class CopyRoot(msgspec.Struct, frozen=True, array_like=True):
    """One SRC and its destination.

    Each side is a directory, opened as the user named it, and a name in it; an empty target name
    means that the directory itself is the copy. `source_shown` and `target_shown` are the paths for
    messages, and `file_system` is the number of the source's file system. If `source_known` or
    `target_known` is set, the directory must have this device and inode when it is opened.
    """

    source_holder: bytes
    source_name: bytes
    target_holder: bytes
    target_name: bytes
    kind: str
    source_shown: bytes
    target_shown: bytes
    file_system: int = 0
    source_known: tuple[int, int] | None = None
    target_known: tuple[int, int] | None = None


class CopyPlan(CopySettings, frozen=True, kw_only=True):
    """The roots and the resolved options of a copy, and the settings for single entries.

    `tool` is the command. `chunk_bytes` is the size of chunks of large files, None for an adaptive
    size. `directory` is the working directory. `dry` means to change nothing, `say_each` to print
    every entry. With `listed` only the paths of the list with that digest are copied. `rules` and
    `wanted` select entries below the roots, with ages relative to `now_ns`; with `one_file_system`
    mount points are not entered. `bytes_per_s` and `operations_per_s` are limits over all ranks, or
    None. `journal` None means that there is no checkpoint. `verify` means to read every copy again.
    `sign` is the algorithm of the signature. `threads` is the number of worker threads of a rank,
    None for an adaptive number. `acts` is the requested output of actions. With `strict` roots must
    not be reached through links. `retries` means that failures of an earlier copy are retried.
    """

    roots: tuple[CopyRoot, ...]
    tool: str
    chunk_bytes: int | None
    directory: bytes
    dry: bool = False
    say_each: bool = False
    listed: bytes | None = None
    rules: tuple[Rule, ...] = ()
    one_file_system: bool = False
    bytes_per_s: float | None = None
    operations_per_s: float | None = None
    journal: JournalPlan | None = None
    verify: bool = False
    sign: str | None = None
    threads: int | None = None
    wanted: Attributes = ANY
    now_ns: int = 0
    acts: ActionOutput = ActionOutput()
    strict: bool = False
    retries: bool = False

    def shown(self, root: int, path: bytes) -> bytes:
        """Return the path of an entry of the source, beginning as the user typed it."""
        base = self.roots[root]
        if base.kind != DIRECTORY or not path:
            return base.source_shown
        return os.path.join(base.source_shown, path)

    def more_options(self) -> dict[str, bytes]:
        """Return further options that a resumed run must share, encoded."""
        return {}


def scope_of(plan: CopyPlan) -> Scope:
    """Return the part of the sources that the walk covers."""
    return Scope(plan.rules, plan.one_file_system, plan.follow, plan.wanted, plan.now_ns)


def is_in_copy(roots: Sequence[CopyRoot]) -> bool:
    """Return whether the mark of the target is in the copy of the only root, not in its parent."""
    return len(roots) == 1 and roots[0].kind == DIRECTORY


DEFAULT_LARGE_BYTES = 32 << 20
"""Larger files are copied in chunks, unless a chunk size is given."""


def open_sides(
    plan: CopyPlan,
    opened: Callable[[int, os.stat_result], None] | None = None,
    is_first: bool = True,
) -> tuple[Directories, Directories]:
    """Return the directories of the sources and of the targets; `opened` is called for the latter.

    `is_first` is passed to `capacity_of`.
    """
    roots, here = plan.roots, plan.directory
    known = [root.source_known for root in roots], [root.target_known for root in roots]
    sources = bases([(r.source_holder, r.source_name) for r in roots], here, known[0])
    targets = bases([(r.target_holder, r.target_name) for r in roots], here, known[1])
    capacity = capacity_of(is_first=is_first)
    return (
        Directories(sources, capacity, plan.identify, follow=plan.follow, linkless=plan.strict),
        Directories(
            targets, capacity, plan.identify, opened=opened, written=True, linkless=plan.strict
        ),
    )
