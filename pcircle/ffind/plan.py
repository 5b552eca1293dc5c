"""What is to be found, decided once on rank 0, and what is counted."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

from pcircle.ffind.language.nodes import Node, Settings
from pcircle.tool.changing import ChangeCounters, ChangePlan


class Sections(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The sections of an index between two places, to be searched for what is below a PATH."""

    start: int
    begin: int
    end: int
    weight: float


class Start(msgspec.Struct, frozen=True, array_like=True):
    """A PATH in an index: the directory `path` below a root, or a `name` in it."""

    root: int
    path: bytes
    name: bytes = b""


class Kept(msgspec.Struct, frozen=True):
    """The index that is searched in place of the file system, by its path and digest."""

    path: bytes
    digest: bytes
    starts: tuple[Start, ...]
    portions: tuple[Sections, ...]


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Fields to sort by, each with a `-` in front if downwards; of a `top` only so many."""

    fields: tuple[str, ...]
    top: int | None = None


class FindPlan(ChangePlan, frozen=True, kw_only=True):
    """The expression, with all that it says of files and users looked up.

    `exclude` as of `Parsed`. `midnight_ns` is that of today, `wide` as of `Surroundings`, `quoted`
    as of `Actions`. With `alone` one thread of rank 0 does everything, in its order. What is
    found may be removed if it `removes`, and given to commands if it `runs` some. `around_plan` are
    device and inode of the directories that the file of a plan lies in, which are no part of it.
    With `kept` no tree is walked.
    """

    expression: Node
    exclude: Node | None = None
    settings: Settings = Settings()
    midnight_ns: int = 0
    wide: bool = False
    quoted: bool = False
    order: Order | None = None
    alone: bool = False
    removes: bool = False
    runs: bool = False
    around_plan: tuple[tuple[int, int], ...] = ()
    kept: Kept | None = None


class Counters(ChangeCounters):
    """Entries that were `matched` by -count or -exists, the `blocks` of -du, and `vanished` ones.

    `complaints` are troubles with directories that are counted otherwise, `commands_failed` ranks
    on which a command of ``-exec … +`` failed. `kept` are those that were not looked at, as the
    search had ended.
    """

    matched: int
    blocks: int
    vanished: int
    commands_failed: int
    complaints: int

    @property
    def settled(self) -> int:
        """See `Measured`."""
        return self.completed + self.failed + self.kept + self.vanished

    @property
    def troubles(self) -> int:
        """See `Measured`."""
        return self.failed + self.complaints + self.commands_failed
