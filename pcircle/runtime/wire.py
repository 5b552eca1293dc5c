"""How messages become bytes: MessagePack by msgspec, checked against the task's own types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import msgspec

from pcircle.circle.messages import (
    Abort,
    Ask,
    Down,
    Heard,
    Message,
    Notice,
    Parcel,
    Post,
    Refuse,
    Results,
    Token,
    Up,
    Work,
)


class Codec:
    """Encodes and decodes messages and parcels whose items and results have the given types.

    A notice travels with what the job's log has of it.
    """

    def __init__(self, item_type: Any, result_type: Any, notice_type: Any) -> None:
        union = Union[  # noqa: UP007 - its members are known only at run time
            Ask,
            Refuse,
            Work[item_type],
            Post[item_type],
            Results[result_type],
            Notice[tuple[notice_type, bytes]],
            Heard,
            Token,
            Down,
            Up[result_type],
            Abort,
        ]
        encoder = msgspec.msgpack.Encoder()
        self.encode = encoder.encode
        self.decode: Any = msgspec.msgpack.Decoder(union).decode
        self._parcels: Any = msgspec.msgpack.Decoder(tuple[Parcel[item_type], ...]).decode

    def message(self, payload: bytes) -> Message:
        """Decode a message. msgspec.DecodeError if it is none."""
        message: Message = self.decode(payload)
        return message

    def pack(self, parcels: Sequence[Parcel[Any]]) -> bytes:
        """Encode parcels for a spilled segment."""
        return self.encode(tuple(parcels))

    def unpack(self, data: bytes) -> tuple[Parcel[Any], ...]:
        """Decode a spilled segment."""
        parcels: tuple[Parcel[Any], ...] = self._parcels(data)
        return parcels
