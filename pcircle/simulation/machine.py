"""What a simulated job runs on, and the choices of its protocol."""

from __future__ import annotations

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """Times in seconds.

    A message takes `near_s` on its node, `far_s` between nodes, times one plus
    an exponential of mean `jitter`. A rank needs `message_s` for each message
    it handles. Before that, up to `look_s` pass until it looks, if it works.
    An item is `item_bytes` long on its way, a result `result_bytes`.
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
    """How work is shared: what can be chosen about `pcircle.circle`, and what could be.

    A dry rank asks `tries` others, "random" or "nearest" ones ("auto": the
    nearest where nodes have several ranks), and then waits at its neighbours of
    the `graph`, "cube" or "tree". After each of `pauses_s` it asks once more.
    At the `start` ranks wait at "all" their neighbours or at their "parent" in
    the tree alone, and who has waiters serves that with the "largest" or
    "smallest" subtree first, later the "newest" or "oldest". A push has the
    share `pushed` of what can be given, an answer the share `answered`, or with
    0 a random one. A push has up to `enough` items for each rank of the job, in up to
    `share_messages` of `share_least` to `share_limit` items. An answer of a queue
    of more than `queue_high` has at most half of that. With `onward`, a rank
    that has waiters and nothing to give them waits itself, although it works.
    With `mutual`, who gives does not wait at the taker any more. A complete part
    of a bundle waits `combine_s` for the others. `ahead` says whether the next
    item is handed out early, which it is of `ahead_from` or more; `arity` is that
    of the tree of rounds.
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
