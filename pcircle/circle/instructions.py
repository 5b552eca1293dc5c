"""What the engine asks of whoever drives it.

The engine does nothing itself: it is given events and hands out these. The
driver (the runtime's loop, or the simulator) carries them out in order and
comes back with the events that follow from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from pcircle.circle.messages import Account, Message, Parcel, Sums


class Send(NamedTuple):
    """Send a message to another rank. Comes back as `receive` over there."""

    dest: int
    message: Message


class Start(NamedTuple):
    """Process an item. Comes back as any number of `spawned`, then `finished`."""

    ticket: int
    item: Any


class Complete(NamedTuple):
    """All that an item spawned is done: run its completion. Comes back as `completed`."""

    ticket: int
    item: Any
    own: Any
    merged: Any


class Spill(NamedTuple):
    """Keep a segment of the queue elsewhere."""

    segment: int
    parcels: tuple[Parcel[Any], ...]


class Fetch(NamedTuple):
    """Read a segment back and forget it there. Comes back as `fetched`."""

    segment: int


class Discard(NamedTuple):
    """Forget segments: nobody will ask for them."""

    segments: tuple[int, ...]


class Abandon(NamedTuple):
    """The job stops early: undo what an item had begun and can't complete."""

    item: Any
    own: Any


class Notify(NamedTuple):
    """On rank 0: notices of a rank have come."""

    source: int
    values: tuple[Any, ...]


class Show(NamedTuple):
    """On rank 0: a progress round has ended."""

    sums: Sums


class Seal(NamedTuple):
    """Count what is done from now on to a later epoch, and bring to disk what was done.

    Comes back as `synced`.
    """

    epoch: int


class Commit(NamedTuple):
    """What all ranks did in this epoch and before is on disk."""

    epoch: int


class Conclude(NamedTuple):
    """On rank 0: all accounts are in. Comes back as `conclude` with the job's exit code."""

    account: Account[Any]
    result: Any


class Stop(NamedTuple):
    """This rank is through. `agreed` is false if the others could not be heard."""

    code: int
    agreed: bool


Instruction: TypeAlias = (
    Send
    | Start
    | Complete
    | Spill
    | Fetch
    | Discard
    | Abandon
    | Notify
    | Show
    | Seal
    | Commit
    | Conclude
    | Stop
)
