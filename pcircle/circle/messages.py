"""The words that ranks exchange.

Every message of the engine is one of these frozen structs; how they become
bytes is the runtime's business (one msgspec decoder over their union, made
for a task's own item and result types). They fall in three classes, and the
classes matter more than the messages:

*basic*
    `Work`, `Returns`, `Post` and `Results`: they make a passive rank active. Termination
    counts them, and nothing else, as sent when the engine orders them and as
    received when the engine consumes them.
*loose*
    `Ask`, `Refuse`, `Wait`, `Notice`, `Heard`, `Token` and the basic ones: they travel between
    any two ranks. Before the job ends they are drained, so that no message is
    left in a network when its ranks are gone.
*tree*
    `Down`, `Up`, `Abort`: they travel along edges of the tree of ranks. An edge
    keeps order, so the last one to travel (`Down` of the STOP round) finds it
    empty.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

I = TypeVar("I")  # noqa: E741 - an item: a unit of work that can be stolen
R = TypeVar("R")  # a result: what an item's processing comes to, mergeable
N = TypeVar("N")  # a notice: what rank 0 should know at once

# Kinds of tree rounds, in the order in which a job's life uses them.
PROGRESS = 0
QUIESCE = 1
DRAIN = 2
GATHER = 3
STOP = 4
EPOCH = 5
COMMIT = 6
URGE = 7


class JoinRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an item's result goes: a join, on the rank that spawned the item."""

    rank: int
    number: int


class Parcel(msgspec.Struct, Generic[I], frozen=True, array_like=True):
    """An item on its way through queues and between ranks.

    `parent` is None for items of unstructured work, whose results merge into
    the account of whichever rank processed them.
    """

    item: I
    parent: JoinRef | None


class Sums(msgspec.Struct, frozen=True, array_like=True):
    """What a progress round adds up: integer counters, a weight, and coverage.

    `weight` is the finished share of the job, 0 to 1. `ranks` is how many
    ranks the sums cover, `stale` for how many of them the value is an old one.
    """

    counts: tuple[int, ...] = ()
    weight: float = 0.0
    ranks: int = 0
    stale: int = 0

    def __add__(self, other: Sums) -> Sums:
        longer, shorter = self.counts, other.counts
        if len(longer) < len(shorter):
            longer, shorter = shorter, longer
        counts = tuple(map(sum, zip(longer, shorter, strict=False))) + longer[len(shorter) :]
        return Sums(
            counts, self.weight + other.weight, self.ranks + other.ranks, self.stale + other.stale
        )


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """Messages sent and received by a set of ranks, as a quiescence wave sums them."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.sent + other.sent, self.received + other.received)


class Account(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """What a subtree of ranks hands up when the job ends.

    `reports` are the ranks' encoded reports, one each, or one of all where there are many ranks
    (`Settings.rank_rows`); `value` is the merged results of unstructured work, `code` the worst
    exit code, `reasons` why, `silent` the ranks that did not answer in time, `open_joins` what is
    left undone. Of reasons and silent ranks the first ones are kept, of more their number.
    """

    reports: tuple[bytes, ...] = ()
    value: R | None = None
    code: int = 0
    reasons: tuple[str, ...] = ()
    silent: tuple[int, ...] = ()
    open_joins: int = 0
    more_reasons: int = 0
    more_silent: int = 0


class Ask(msgspec.Struct, frozen=True, tag="a", array_like=True):
    """A thief asks a victim for work.

    With `onward` the one asked is to pass the request on to another node if it has nothing;
    passed on, it has a `thief`, to whom the answer goes.
    """

    onward: bool = False
    thief: int | None = None


class Refuse(msgspec.Struct, frozen=True, tag="n", array_like=True):
    """A victim has nothing to give."""


class Wait(msgspec.Struct, frozen=True, tag="l", array_like=True):
    """A rank waits for work and will not ask: it is to be given some when there is any."""


class Moved(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """A group of items that have moved on: all that was left of a slot of another rank's bundle.

    It is the group at this `place` of the `Work`. `Returns` for it go to that `rank`, with its
    number of the `bundle` and the `slot`. `came` is what has come of the slot's other items, one
    result at most.
    """

    place: int
    rank: int
    bundle: int
    slot: int
    came: tuple[R, ...] = ()


class Work(msgspec.Struct, Generic[I, R], frozen=True, tag="w", array_like=True):
    """A victim's share of its queue, grouped by the joins that the items belong to. Basic.

    `Returns` for it has the victim's number of the `bundle`; 0 if the items have no joins. It is
    the answer to an `Ask`, or has been pushed to somebody who waits. Of a large share it is a part,
    and `rest` items are to come. Some groups may have `moved`.
    """

    bundle: int
    is_answer: bool
    groups: tuple[tuple[I, ...], ...]
    rest: int = 0
    moved: tuple[Moved[R], ...] = ()


class Returns(msgspec.Struct, Generic[R], frozen=True, tag="b", array_like=True):
    """What came of a bundle, or of a part: places of groups in it, and their results. Basic."""

    bundle: int
    results: tuple[tuple[int, R], ...]


class Post(msgspec.Struct, Generic[I], frozen=True, tag="p", array_like=True):
    """Items that only the rank they are sent to can process. Basic."""

    parcels: tuple[Parcel[I], ...]


class Results(msgspec.Struct, Generic[R], frozen=True, tag="r", array_like=True):
    """The result of an item that was posted. Basic."""

    join: int
    value: R


class Notice(msgspec.Struct, Generic[N], frozen=True, tag="m", array_like=True):
    """What rank 0 should know soon, such as failures of entries: a pack of it, in order.

    A rank sends the next one when it got `Heard` for the last, see `pcircle.circle.notices`.
    """

    values: tuple[N, ...]


class Heard(msgspec.Struct, frozen=True, tag="h", array_like=True):
    """Rank 0 has dealt with a `Notice` of this rank, or `refused` to record it."""

    refused: bool = False


class Token(msgspec.Struct, frozen=True, tag="t", array_like=True):
    """Safra's token: the sum of the message counts of the ranks it has visited."""

    probe: int
    count: int
    black: bool


class Down(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """A round opens. `code` and `reasons` are the decision that a STOP round carries."""

    kind: int
    number: int
    code: int = 0


class Up(msgspec.Struct, Generic[R], frozen=True, tag="u", array_like=True):
    """A subtree's answer in a round: exactly one of the three values is used, by `kind`."""

    kind: int
    number: int
    sums: Sums | None = None
    counted: Counted | None = None
    account: Account[R] | None = None


class Abort(msgspec.Struct, frozen=True, tag="x", array_like=True):
    """Stop early, with this exit code, for this reason. Flooded along the tree."""

    code: int
    reason: str


Message: TypeAlias = (
    Ask
    | Refuse
    | Wait
    | Work[Any, Any]
    | Returns[Any]
    | Post[Any]
    | Results[Any]
    | Notice[Any]
    | Heard
    | Token
    | Down
    | Up[Any]
    | Abort
)

TREE = (Down, Up, Abort)
BASIC = (Work, Returns, Post, Results)
