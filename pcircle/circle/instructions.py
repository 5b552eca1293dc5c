"""The interface between the engine and its driver: settings, instructions and activity.

The engine performs no I/O: it receives events and returns instructions. The driver (the runtime's
loop, or the simulator) executes them in order and reports the events that follow from them.

A user can choose the policies of work sharing as `KEY=VALUE,...` (`with_policies`). Rank 0 reads
the environment variable and sends the text to all ranks with the plan, so that all ranks use the
same policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeAlias

import msgspec

from pcircle.circle.messages import FinalAccount, I, Message, Parcel, ProgressSums, R
from pcircle.core.errors import UsageError
from pcircle.core.units import is_whole

_CHOICES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "steal": {
        "random": {"victims": "random"},
        "near": {"victims": "nearest"},
        "lifelines": {"tries": 0},
    },
    "split": {"random": {"split": "random"}, "half": {"split": "equal"}},
    "end": {"waves": {"termination": "counters"}, "ring": {"termination": "ring"}},
}
_ARITY = "arity"
_MAX_ARITY = 1024


class EngineSettings(msgspec.Struct, frozen=True):
    """The options of an engine.

    `workers` is the number of items that this rank runs at once. `ahead` is the number of items
    that it starts in advance, so that a worker need not wait for the next one. `victims` is
    "random", "nearest", or "auto", which means "nearest" if there are several nodes and not all of
    them run a single rank. A rank without work makes `tries` attempts to steal and then relies on
    its lifelines. The first result of a bundle waits for the others for at most `combine_s`.
    `structured` selects fork-join work, in which items have joins. A message carries at most
    `share_limit` parcels, fewer in a small job (see `pcircle.circle.stealing.parcels_per_message`).
    If `progress_period_s` is None, there are no progress rounds; if `epoch_period_s` is None, there
    are no epochs. `final_deadline_s` limits how long an aborted job takes to end. In a job with
    more than `rank_rows` ranks the final account contains sums and distributions instead of a
    report for each rank.
    """

    workers: int = 1
    ahead: int = 1
    structured: bool = True
    victims: str = "auto"
    split: str = "random"
    termination: str = "counters"
    arity: int = 8
    queue_high: int = 256
    share_limit: int = 1024
    tries: int = 4
    combine_s: float = 0.25
    progress_period_s: float | None = None
    epoch_period_s: float | None = None
    final_deadline_s: float = 10.0
    rank_rows: int = 1000


class Activity(msgspec.Struct):
    """Counters of a rank's activity, to show how evenly a job is balanced."""

    items: int = 0
    spawned: int = 0
    asked: int = 0
    got: int = 0
    refused: int = 0
    given: int = 0
    parcels_got: int = 0
    messages: int = 0
    spilled: int = 0


class Send(msgspec.Struct, frozen=True):
    """Send a message to another rank, where it is passed to `receive`."""

    dest: int
    message: Message


class StartItem(msgspec.Struct, Generic[I], frozen=True):
    """Process an item. Answered by `spawned`, `posted` and `held` events, then by `finished`."""

    ticket: int
    item: I


class CompleteItem(msgspec.Struct, Generic[I], frozen=True):
    """Run the completion of an item whose children are complete; answered by `finished`."""

    ticket: int
    item: I
    own: object
    merged: Any


class SpillSegment(msgspec.Struct, Generic[I], frozen=True):
    """Store a segment of the queue."""

    segment: int
    parcels: tuple[Parcel[I], ...]


class FetchSegment(msgspec.Struct, frozen=True):
    """Read a segment back and delete it from storage. Answered by `fetched`."""

    segment: int


class DiscardSegments(msgspec.Struct, frozen=True):
    """Delete segments that are no longer needed."""

    segments: tuple[int, ...]


class AbandonItem(msgspec.Struct, Generic[I], frozen=True):
    """Undo the work that an item has begun and cannot complete, because the job is stopping."""

    item: I
    own: object


class DeliverNotices(msgspec.Struct, frozen=True):
    """On rank 0, process the notices of a rank."""

    source: int
    values: tuple[Any, ...]


class ShowProgress(msgspec.Struct, frozen=True):
    """On rank 0, display the result of a progress round."""

    sums: ProgressSums


class SealEpoch(msgspec.Struct, frozen=True):
    """Assign work that is done from now on to a later epoch, and flush earlier work to disk.

    Answered by `synced`.
    """

    epoch: int


class CommitEpoch(msgspec.Struct, frozen=True):
    """Record that the work of all ranks up to this epoch is on disk."""

    epoch: int


class Conclude(msgspec.Struct, Generic[R], frozen=True):
    """On rank 0, derive the job's exit code from all accounts. Answered by `conclude`."""

    account: FinalAccount[R]
    result: R | None


class StopRank(msgspec.Struct, frozen=True):
    """End this rank. `agreed` is false if the decision of rank 0 did not arrive."""

    code: int
    agreed: bool


Instruction: TypeAlias = (
    Send
    | StartItem[I]
    | CompleteItem[I]
    | SpillSegment[I]
    | FetchSegment
    | DiscardSegments
    | AbandonItem[I]
    | DeliverNotices
    | ShowProgress
    | SealEpoch
    | CommitEpoch
    | Conclude[R]
    | StopRank
)


def with_policies(settings: EngineSettings, text: str, name: str = "policies") -> EngineSettings:
    """Return the settings with the policies of `KEY=VALUE,...`, unchanged if the text is empty.

    Raises UsageError with a message that begins with `name`, the origin of the text.
    """
    changes: dict[str, object] = {}
    seen: set[str] = set()
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{name}: invalid part '{part}': must be KEY=VALUE")
        if key in seen:
            raise UsageError(f"{name}: '{key}' is set twice")
        seen.add(key)
        if key == _ARITY:
            if not (is_whole(value) and 1 <= int(value) <= _MAX_ARITY):
                limits = f"must be a number from 1 to {_MAX_ARITY}"
                raise UsageError(f"{name}: invalid {_ARITY} '{value}': {limits}")
            changes[_ARITY] = int(value)
        elif key not in _CHOICES:
            raise UsageError(f"{name}: unknown key '{key}'{_hint(key, [*_CHOICES, _ARITY])}")
        elif value not in _CHOICES[key]:
            raise UsageError(f"{name}: invalid {key} '{value}'{_hint(value, _CHOICES[key])}")
        else:
            changes |= _CHOICES[key][value]
    return msgspec.structs.replace(settings, **changes)


def _hint(word: str, known: Iterable[str]) -> str:
    words = list(known)
    from difflib import get_close_matches  # imported late: few texts are wrong

    near = get_close_matches(word, words, 1)
    suggestion = f"; did you mean '{near[0]}'?" if near else ""
    return f": must be one of {', '.join(words)}{suggestion}"
