"""The options of a checkpoint, and the description of it that every rank receives."""

# This module evaluates annotations when it is imported, because msgspec would otherwise compile
# each of them on every rank.
import msgspec


class CheckpointOptions(msgspec.Struct, frozen=True):
    """The user's options for checkpoints.

    `interval_s` is the time between commits, and `directory` the requested parent of the
    checkpoint. `never` disables checkpoints. If a checkpoint is `required` and cannot be created,
    the job is refused.
    """

    interval_s: float = 60.0
    directory: bytes | None = None
    resume: bool = False
    restart: bool = False
    never: bool = False

    @property
    def required(self) -> bool:
        return self.directory is not None


class JournalPlan(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of a copy: its path and secret, the number of this run, the commit interval.

    `stale` contains the tokens in the temporary names of previous runs, and `since_ns` is the time
    when the first run started. If `resumed` is true, their completed work is skipped. `mark`
    identifies the target; see `pcircle.ops.checkpoint.store`. `now_ns` is the start time of the run
    that is resumed, or of this one.
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
