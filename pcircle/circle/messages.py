"""The messages between ranks.

Each message of the engine is a frozen struct. The runtime decodes them with one msgspec decoder for
the union of all messages, created for the item and result types of a task. Messages belong to three
classes:

*basic*
    `WorkTransfer`, `BundleResults`, `PinnedWork` and `ItemResult` can make a passive rank active.
    Termination detection counts only these messages: as sent when the engine issues them, as
    received when it processes them.
*loose*
    `StealRequest`, `StealRefusal`, `LifelineRequest`, `NoticeBatch`, `NoticeReply`, `SafraToken`
    and the basic messages travel between any two ranks. They are drained before the job ends, so
    that none remains in the network afterwards.
*tree*
    `TreeBroadcast`, `TreeReduction` and `Abort` travel along the edges of the tree of ranks.
    Messages along an edge stay in order, so the edge is empty after the last one, the
    `TreeBroadcast` of the STOP round.
"""

# Annotations are not deferred, because msgspec would compile each of them in every rank.
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

I = TypeVar("I")  # noqa: E741 - an item: a unit of work that can be stolen
R = TypeVar("R")  # a result of processing an item, mergeable
N = TypeVar("N")  # a notice: a value that rank 0 needs before the job ends

# Kinds of tree rounds.
PROGRESS = 0
QUIESCE = 1
DRAIN = 2
GATHER = 3
STOP = 4
EPOCH = 5
COMMIT = 6
URGE = 7


class JoinRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The destination of an item's result: the spawning rank's join or the thief's proxy."""

    rank: int
    number: int


class Parcel(msgspec.Struct, Generic[I], frozen=True, array_like=True):
    """An item, queued or in transit, with the join that awaits its result.

    `parent` is None for items of unstructured work, whose results merge into the account of the
    rank that processes them.
    """

    item: I
    parent: JoinRef | None


class ProgressSums(msgspec.Struct, frozen=True, array_like=True):
    """The values that a progress round adds up.

    `weight` is the finished share of the job, from 0 to 1. `ranks` is the number of ranks that the
    sums cover. For `stale` of these ranks, the values are from an earlier round.
    """

    counts: tuple[int, ...] = ()
    weight: float = 0.0
    ranks: int = 0
    stale: int = 0

    def __add__(self, other: "ProgressSums") -> "ProgressSums":
        longer, shorter = self.counts, other.counts
        if len(longer) < len(shorter):
            longer, shorter = shorter, longer
        counts = tuple(map(sum, zip(longer, shorter, strict=False))) + longer[len(shorter) :]
        return ProgressSums(
            counts, self.weight + other.weight, self.ranks + other.ranks, self.stale + other.stale
        )


class MessageCounts(msgspec.Struct, frozen=True, array_like=True):
    """The numbers of messages that a set of ranks has sent and received."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: "MessageCounts") -> "MessageCounts":
        return MessageCounts(self.sent + other.sent, self.received + other.received)


class FinalAccount(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """The final account of a subtree of ranks.

    `reports` are the ranks' encoded reports, one per rank, or one for all ranks of a large job
    (`EngineSettings.rank_rows`). `value` is the merged result of unstructured work, `code` the
    worst exit code, and `reasons` its causes. `silent` lists the ranks that did not answer in time,
    and `open_joins` is the number of joins that were open at an abort. `more_reasons` and
    `more_silent` count the elements that exceed the maximum lengths of `reasons` and `silent`.
    """

    reports: tuple[bytes, ...] = ()
    value: R | None = None
    code: int = 0
    reasons: tuple[str, ...] = ()
    silent: tuple[int, ...] = ()
    open_joins: int = 0
    more_reasons: int = 0
    more_silent: int = 0


class StealRequest(msgspec.Struct, frozen=True, tag="a", array_like=True):
    """A thief's request for work.

    With `onward`, a victim without work passes the request on to another node. A request that was
    passed on names the `thief` that receives the answer.
    """

    onward: bool = False
    thief: int | None = None


class StealRefusal(msgspec.Struct, frozen=True, tag="n", array_like=True):
    """The answer of a victim that has no work to give."""


class LifelineRequest(msgspec.Struct, frozen=True, tag="l", array_like=True):
    """The registration of a rank with a neighbour from which it awaits work."""


class MovedSlot(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """A slot of another rank that is transferred with its last remaining items.

    The items are the group at index `place` of the `WorkTransfer`. Their `BundleResults` are sent
    to `rank`, which has assigned the numbers `bundle` and `slot`. `came` holds the merged result of
    the slot's other items, if there is one.
    """

    place: int
    rank: int
    bundle: int
    slot: int
    came: tuple[R, ...] = ()


class WorkTransfer(msgspec.Struct, Generic[I, R], frozen=True, tag="w", array_like=True):
    """A share of a victim's queue, grouped by the joins that the items belong to.

    `bundle` is a number that the victim assigns and `BundleResults` repeats, or 0 if the items have
    no joins. The message answers a `StealRequest`, or is pushed to a waiting rank. If it is a part
    of a large share, `remaining` parcels follow. `moved` describes the groups that are transferred
    slots.
    """

    bundle: int
    is_answer: bool
    groups: tuple[tuple[I, ...], ...]
    remaining: int = 0
    moved: tuple[MovedSlot[R], ...] = ()


class BundleResults(msgspec.Struct, Generic[R], frozen=True, tag="b", array_like=True):
    """The results of some or all slots of a bundle, as pairs of slot and merged result."""

    bundle: int
    results: tuple[tuple[int, R], ...]


class PinnedWork(msgspec.Struct, Generic[I], frozen=True, tag="p", array_like=True):
    """Items that only the receiving rank can process."""

    parcels: tuple[Parcel[I], ...]


class ItemResult(msgspec.Struct, Generic[R], frozen=True, tag="r", array_like=True):
    """The result of an item that was posted."""

    join: int
    value: R


class NoticeBatch(msgspec.Struct, Generic[N], frozen=True, tag="m", array_like=True):
    """A batch of notices, such as failures of entries, in order.

    A rank sends the next batch after the `NoticeReply` for the previous one; see
    `pcircle.circle.notices`.
    """

    values: tuple[N, ...]


class NoticeReply(msgspec.Struct, frozen=True, tag="h", array_like=True):
    """Rank 0's reply to a `NoticeBatch` that it has processed, or could not record (`refused`)."""

    refused: bool = False


class SafraToken(msgspec.Struct, frozen=True, tag="t", array_like=True):
    """Safra's token: the sum of the message counts of the ranks that it has visited."""

    probe: int
    count: int
    black: bool


class TreeBroadcast(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """The start of a round. In a STOP round `code` is the exit code of the job."""

    kind: int
    number: int
    code: int = 0


class TreeReduction(msgspec.Struct, Generic[R], frozen=True, tag="u", array_like=True):
    """A subtree's answer in a round. Its kind determines which of the values are set."""

    kind: int
    number: int
    sums: ProgressSums | None = None
    counted: MessageCounts | None = None
    account: FinalAccount[R] | None = None


class Abort(msgspec.Struct, frozen=True, tag="x", array_like=True):
    """A request to stop early with this exit code, for this reason, broadcast along the tree."""

    code: int
    reason: str


Message: TypeAlias = (
    StealRequest
    | StealRefusal
    | LifelineRequest
    | WorkTransfer[Any, Any]
    | BundleResults[Any]
    | PinnedWork[Any]
    | ItemResult[Any]
    | NoticeBatch[Any]
    | NoticeReply
    | SafraToken
    | TreeBroadcast
    | TreeReduction[Any]
    | Abort
)

TREE = (TreeBroadcast, TreeReduction, Abort)
BASIC = (WorkTransfer, BundleResults, PinnedWork, ItemResult)
