"""The description of a job's checkpoint that every rank receives."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec


class JournalPlan(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint that a copy writes: path, secret, number of this run and commit interval.

    `stale` has the tokens in the temporary names of previous runs, the first of which started at
    `since_ns`. With `resumed` their completed work is skipped. `mark` identifies the target; see
    `pcircle.ops.checkpoint.store`. `now_ns` is the start time of the run that is resumed, or
    of this one.
    """

    path: bytes
    secret: bytes
    run: int
    interval_s: float
    since_ns: int
    stale: tuple[bytes, ...] = ()
    resumed: bool = False
    mark: bytes = b""
    now_ns: int = 0
