"""What a copy is to do, decided once on rank 0 and then the same on every rank."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Callable, Sequence

import msgspec

from pcircle.checkpoint.plan import JournalPlan
from pcircle.copying.settings import Settings
from pcircle.fs.directories import Directories, bases, capacity_of
from pcircle.tool.actions import Wanted
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.walker import Scope

DIRECTORY, FILE, LINK, SPECIAL = "directory", "file", "link", "special"


class Root(msgspec.Struct, frozen=True, array_like=True):
    """One SRC and where its copy goes.

    Both sides are a directory, opened as the user named it, and a name in it;
    an empty target name means that the directory itself is the copy. `shown`
    are the two paths as the user will recognise them, `file_system` numbers
    the source's. A side that is `known`, by device and inode, must be that directory when it is
    opened.
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


class Plan(Settings, frozen=True, kw_only=True):
    """The roots and the resolved options of a copy, and the settings of how each entry is copied.

    `tool` is the command that makes it.
    `chunk_bytes` is the size of the chunks of large files, None to adapt it. `directory` is the
    working directory. `dry` means to touch nothing, `say_each` to name every entry. With `listed`
    nothing is copied but what the list of that digest names. `rules` choose
    what is copied of what is below the roots; `one_file_system`: of a mount point copy the
    directory alone. `bytes_per_s` and `operations_per_s` hold over all ranks; None: no limit.
    `journal` None means that no checkpoint is kept.
    `verify`: read every copy again. `sign` is the algorithm of the signature that is wanted.
    `threads` is how many worker threads each rank has, None: adaptive. `wanted` is what entries
    must be, with times counted from `now_ns`. `acts` is what is reported of each action. With
    `strict` the ways to the roots lead through no link. `retries`: what an earlier copy failed to
    do is done.
    """

    roots: tuple[Root, ...]
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
    acts: Wanted = Wanted()
    strict: bool = False
    retries: bool = False

    def shown(self, root: int, path: bytes) -> bytes:
        """The path of an entry of the source, as the user knows it."""
        base = self.roots[root]
        if base.kind != DIRECTORY or not path:
            return base.source_shown
        return os.path.join(base.source_shown, path)

    def more_options(self) -> dict[str, bytes]:
        """Options that another run must have as well, beside those of all copies, encoded."""
        return {}


def scope_of(plan: Plan) -> Scope:
    """What is walked of the sources."""
    return Scope(plan.rules, plan.one_file_system, plan.follow, plan.wanted, plan.now_ns)


def is_in_copy(roots: Sequence[Root]) -> bool:
    """Whether a mark is left in the copy of the only root, rather than in what holds the copies."""
    return len(roots) == 1 and roots[0].kind == DIRECTORY


DEFAULT_LARGE_BYTES = 32 << 20
"""Files above this are copied in chunks unless a chunk size is given."""


def open_sides(
    plan: Plan, opened: Callable[[int, os.stat_result], None] | None = None, is_first: bool = True
) -> tuple[Directories, Directories]:
    """The directories of the sources and those of the targets; `opened` is told the latter.

    `is_first` as of `capacity_of`.
    """
    roots, here = plan.roots, plan.directory
    known = [root.source_known for root in roots], [root.target_known for root in roots]
    sources = bases([(r.source_holder, r.source_name) for r in roots], here, known[0])
    targets = bases([(r.target_holder, r.target_name) for r in roots], here, known[1])
    each = capacity_of(is_first=is_first)
    return (
        Directories(sources, each, plan.identify, follow=plan.follow, linkless=plan.strict),
        Directories(
            targets, each, plan.identify, opened=opened, written=True, linkless=plan.strict
        ),
    )
