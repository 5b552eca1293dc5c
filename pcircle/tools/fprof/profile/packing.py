"""Profiles as bytes, for messages and files: MessagePack with integers of any size.

Sparse files may have nearly 8 EiB each, so the sum of three does not fit into the 64 bits of a
MessagePack integer. Larger integers are extension type 1: the number, big endian. They are so rare
that they are searched for only if plain encoding fails.
"""

from __future__ import annotations

import msgspec

from pcircle.tools.fprof.profile.model import Profile

_LARGE = 1  # the extension type
_LARGEST_PLAIN = (1 << 64) - 1
_MAX_BYTES = 16


def pack(profile: Profile) -> bytes:
    """Return a profile as bytes."""
    try:
        return msgspec.msgpack.encode(profile)
    except OverflowError:
        plain = msgspec.to_builtins(profile, builtin_types=(bytes,))
        return msgspec.msgpack.encode(_with_extensions(plain))


def unpack(packed: bytes) -> Profile:
    """Decode a profile. Raise msgspec.DecodeError or ValueError if it is invalid."""
    try:
        return msgspec.msgpack.decode(packed, type=Profile)
    except msgspec.ValidationError as error:
        if "got `ext`" not in str(error):
            raise
    loose = msgspec.msgpack.decode(packed, ext_hook=_large)
    return msgspec.convert(loose, Profile, builtin_types=(bytes,))


def _with_extensions(value: object) -> object:
    if isinstance(value, int) and value > _LARGEST_PLAIN:
        return msgspec.msgpack.Ext(_LARGE, value.to_bytes(_MAX_BYTES, "big"))
    if isinstance(value, dict):
        return {key: _with_extensions(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_extensions(inner) for inner in value]
    return value


def _large(code: int, data: memoryview) -> int:
    if code != _LARGE or len(data) > _MAX_BYTES:
        raise ValueError("an extension that can't be")
    return int.from_bytes(data, "big")
