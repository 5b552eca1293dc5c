"""Encoding of messages: MessagePack by msgspec, checked against the task's own types.

Values that MessagePack cannot represent, or whose type a task does not declare, are pickled, so
users of the library need not care about encoding. Unpickling is safe, because all ranks run the
same program of the same user. Data that outlives a job is never pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Union

import msgspec

from pcircle.circle import messages
from pcircle.circle.messages import I

_PICKLED = 1  # MessagePack extension code of pickled values


def _pickle(value: object) -> bytes:
    import pickle  # rarely needed: tools declare their types

    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def by_value(value: object) -> bytes:
    """Pickle a value and the classes that other processes cannot import. Raises ImportError."""
    data: bytes = import_module("cloudpickle").dumps(value)
    return data


class Codec:
    """Encodes and decodes messages and parcels with items and results of the given types.

    A notice is sent with its line for the job's log. `pickled` encodes values without a declared
    type (Any); the default is to pickle them.
    """

    decode: Any

    def __init__(
        self,
        item_type: object,
        result_type: object,
        notice_type: object,
        pickled: Callable[[object], bytes] | None = None,
    ) -> None:
        types = item_type, result_type, notice_type
        try:
            self.decode = _decoder(_union(*types)).decode
        except TypeError:  # msgspec does not support one of them
            types = tuple(map(_sent_as, types))
            self.decode = _decoder(_union(*types)).decode
        self._items, self._results, self._notices = (declared is not Any for declared in types)
        self._item_type = types[0]
        self._pickled = pickled or _pickle
        encoder = msgspec.msgpack.Encoder(enc_hook=self._whole)
        self._encode: Callable[[object], bytes] = encoder.encode
        is_typed = Any not in types
        self.encode: Callable[[messages.Message], bytes] = (
            self._encode if is_typed else self._encode_untyped
        )
        self.encode_notice: Callable[[tuple[object, bytes]], bytes] = (
            self._encode if self._notices else self._encode_notice
        )

    def message(self, payload: bytes) -> messages.Message:
        """Decode a message. Raises msgspec.DecodeError if it is invalid."""
        message: messages.Message = self.decode(payload)
        return message

    def pack(self, parcels: Sequence[messages.Parcel[I]]) -> bytes:
        """Encode parcels for a spilled segment."""
        return self._encode(self._wrapped(parcels))

    def unpack(self, data: bytes) -> tuple[messages.Parcel[Any], ...]:
        """Decode a spilled segment."""
        parcels: tuple[messages.Parcel[Any], ...] = self._unpack(data)
        return parcels

    @cached_property
    def _unpack(self) -> Any:
        item_type: Any = self._item_type
        return _decoder(tuple[messages.Parcel[item_type], ...]).decode

    # ---- values without a declared type ----------------------------------------

    def _whole(self, value: object) -> msgspec.msgpack.Ext:
        return msgspec.msgpack.Ext(_PICKLED, self._pickled(value))

    def _wrapped(self, parcels: Sequence[messages.Parcel[I]]) -> tuple[messages.Parcel[Any], ...]:
        if self._items:
            return tuple(parcels)
        return tuple(messages.Parcel(self._whole(parcel.item), parcel.parent) for parcel in parcels)

    def _encode_untyped(self, message: messages.Message) -> bytes:
        """Encode a message with pickled values: MessagePack would turn tuples into lists."""
        if not self._results:
            message = with_results(message, self._whole)
        if isinstance(message, messages.PinnedWork):
            return self._encode(messages.PinnedWork(self._wrapped(message.parcels)))
        if isinstance(message, messages.WorkTransfer) and not self._items:
            groups = tuple(tuple(map(self._whole, group)) for group in message.groups)
            return self._encode(msgspec.structs.replace(message, groups=groups))
        return self._encode(message)

    def _encode_notice(self, entry: tuple[object, bytes]) -> bytes:
        notice, line = entry
        return self._encode((self._whole(notice), line))


def with_results(message: messages.Message, change: Callable[[Any], object]) -> messages.Message:
    """Return a message with `change` applied to each of its results."""
    replace = msgspec.structs.replace
    if isinstance(message, messages.ItemResult):
        return messages.ItemResult(message.join, change(message.value))
    if isinstance(message, messages.BundleResults):
        results = tuple((slot, change(value)) for slot, value in message.results)
        return messages.BundleResults(message.bundle, results)
    if isinstance(message, messages.WorkTransfer):
        moved = tuple(replace(slot, came=tuple(map(change, slot.came))) for slot in message.moved)
        return replace(message, moved=moved) if moved else message
    if isinstance(message, messages.TreeReduction) and message.account is not None:
        account: messages.FinalAccount[Any] = message.account
        if account.value is not None:
            return replace(message, account=replace(account, value=change(account.value)))
    return message


def _union(item_type: Any, result_type: Any, notice_type: Any) -> object:
    """Return the type of all messages."""
    return Union[  # noqa: UP007 - its members are known only at run time
        messages.StealRequest,
        messages.StealRefusal,
        messages.LifelineRequest,
        messages.WorkTransfer[item_type, result_type],
        messages.BundleResults[result_type],
        messages.PinnedWork[item_type],
        messages.ItemResult[result_type],
        messages.NoticeBatch[tuple[notice_type, bytes]],
        messages.NoticeReply,
        messages.SafraToken,
        messages.TreeBroadcast,
        messages.TreeReduction[result_type],
        messages.Abort,
    ]


def _decoder(declared: object) -> Any:
    return msgspec.msgpack.Decoder(declared, ext_hook=_unpickled, dec_hook=_checked)


def _sent_as(declared: object) -> Any:
    """Return a declared type, or Any if msgspec does not support the type."""
    try:
        _decoder(declared)
    except TypeError:
        return Any
    return declared


def _unpickled(code: int, data: memoryview) -> Any:
    import pickle

    return pickle.loads(data)


def _checked(declared: type, value: object) -> object:
    """Accept a value whose type msgspec cannot check, because it was pickled."""
    return value
