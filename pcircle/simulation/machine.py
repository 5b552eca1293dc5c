"""The machine of a simulated job, and the parameters of its protocol."""

from __future__ import annotations

import msgspec

ASK, REFUSE, ANSWER, PUSH, WAIT, RETURNS, QUIESCE, DRAIN, GATHER, STOP = range(10)
LAST_LOOSE = RETURNS
"""The last kind that travels between arbitrary ranks.

Later kinds travel along the tree of ranks.
"""


class Machine(msgspec.Struct, frozen=True):
    """The latencies and message sizes of a machine. Times are in seconds.

    A message takes `near_s` within a node and `far_s` between nodes, multiplied by one plus an
    exponential variate of mean `jitter`. A rank needs `message_s` to process a message. If it is
    working, up to `look_s` pass before it notices the message. An item has `item_bytes` in a
    message, a result `result_bytes`.
    """

    ranks_per_node: int = 64
    near_s: float = 1e-6
    far_s: float = 4e-5
    jitter: float = 0.2
    message_s: float = 2e-5
    look_s: float = 0.0
    item_bytes: int = 120
    result_bytes: int = 120


ETHERNET = Machine(far_s=4e-5)
INFINIBAND = Machine(far_s=3e-6)


class Policy(msgspec.Struct, frozen=True):
    """The parameters of work sharing: the settings of `pcircle.circle`, and alternatives to them.

    An idle rank sends requests to `tries` victims, "random" or "nearest" ("auto": nearest if nodes
    have several ranks). Then it waits at its neighbours in the `graph`, "cube" or "tree". After
    each of `pauses_s` it sends another request. At the `start` ranks wait at "all" neighbours, or
    only at their "parent" in the tree.

    A rank with waiters at first serves the "largest" or "smallest" subtree, later the "newest" or
    "oldest" waiter. A push gives the share `pushed` of the available items, and an answer the share
    `answered`, or a random share if that is 0. A push has up to `enough` items for each rank of the
    job, in up to `share_messages` messages of `share_least` to `share_limit` items. An answer from
    a queue of more than `queue_high` items has at most a quarter of `queue_high`.

    With `onward`, a rank that has waiters but nothing to give waits itself, although it works. With
    `mutual`, a rank that gives work no longer waits at the receiver. A complete part of a bundle
    waits `combine_s` for the other parts. `ahead` enables handing out the next item early, once
    `ahead_from` or more are queued. `arity` is the arity of the tree of rounds.
    """

    tries: int = 4
    victims: str = "auto"
    graph: str = "cube"
    pauses_s: tuple[float, ...] = (0.25,)
    start: str = "parent"
    first: str = "largest"
    order: str = "newest"
    pushed: float = 0.5
    answered: float = 0.0
    share_limit: int = 1024
    share_least: int = 64
    share_messages: int = 128
    enough: int = 16
    queue_high: int = 256
    onward: bool = False
    mutual: bool = True
    combine_s: float = 0.25
    ahead: int = 1
    ahead_from: int = 16
    arity: int = 8
