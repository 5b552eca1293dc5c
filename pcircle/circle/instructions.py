"""What the engine asks of whoever drives it.

The engine does nothing itself: it is given events and hands out these. The
driver (the runtime's loop, or the simulator) carries them out in order and
comes back with the events that follow from them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from pcircle.circle.messages import Account, Message, Parcel, Sums


class Send(msgspec.Struct, frozen=True):
    """Send a message to another rank. Comes back as `receive` over there."""

    dest: int
    message: Message


class Start(msgspec.Struct, frozen=True):
    """Process an item. Comes back as any number of `spawned`, then `finished`."""

    ticket: int
    item: Any


class Complete(msgspec.Struct, frozen=True):
    """All that an item spawned is done: run its completion. Comes back as `completed`."""

    ticket: int
    item: Any
    own: Any
    merged: Any


class Spill(msgspec.Struct, frozen=True):
    """Keep a segment of the queue elsewhere."""

    segment: int
    parcels: tuple[Parcel[Any], ...]


class Fetch(msgspec.Struct, frozen=True):
    """Read a segment back and forget it there. Comes back as `fetched`."""

    segment: int


class Discard(msgspec.Struct, frozen=True):
    """Forget segments: nobody will ask for them."""

    segments: tuple[int, ...]


class Abandon(msgspec.Struct, frozen=True):
    """The job stops early: undo what an item had begun and can't complete."""

    item: Any
    own: Any


class Notify(msgspec.Struct, frozen=True):
    """On rank 0: notices of a rank have come."""

    source: int
    values: tuple[Any, ...]


class Show(msgspec.Struct, frozen=True):
    """On rank 0: a progress round has ended."""

    sums: Sums


class Seal(msgspec.Struct, frozen=True):
    """Count what is done from now on to a later epoch, and bring to disk what was done.

    Comes back as `synced`.
    """

    epoch: int


class Commit(msgspec.Struct, frozen=True):
    """What all ranks did in this epoch and before is on disk."""

    epoch: int


class Conclude(msgspec.Struct, frozen=True):
    """On rank 0: all accounts are in. Comes back as `conclude` with the job's exit code."""

    account: Account[Any]
    result: Any


class Stop(msgspec.Struct, frozen=True):
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
