"""Hash functions for signatures.

`xxh128` runs at memory speed and detects accidental corruption; the cryptographic algorithms also
detect tampering. All of them release the interpreter lock while they hash large buffers. The
modules are imported on first use because most runs need none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from pcircle.core.errors import StoppedEarly

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DEFAULT = "xxh128"
_HASHLIB = ("sha256", "sha512", "blake2b")
# The input is long enough to run every code path for large buffers.
_BLAKE3_TRIAL = """
from blake3 import blake3
hasher = blake3(bytes(1 << 20))
hasher.update(bytes(100))
hasher.digest()
"""


class Hasher(Protocol):
    """A digest in progress."""

    def update(self, data: ReadableBuffer, /) -> object:
        """Add `data` to the input."""

    def digest(self) -> bytes:
        """Return the digest of the input so far."""


class Algorithm(msgspec.Struct, frozen=True):
    """A hash function: its name, digest size in bytes, constructor and one-call form."""

    name: str
    size: int
    new: Callable[[], Hasher]
    digest: Callable[[ReadableBuffer], bytes]


def algorithm_names() -> tuple[str, ...]:
    """Return the known algorithm names; `blake3` is usable only if its package is installed."""
    return (DEFAULT, *_HASHLIB, "blake3")


def check_name(name: str) -> None:
    """Raise ValueError if no algorithm has this name, installed or not."""
    if name not in algorithm_names():
        raise ValueError(f"unknown algorithm '{name}'; choose from {', '.join(algorithm_names())}")


def import_early(name: str) -> None:
    """Import an algorithm before ranks are forked, unless it needs a trial run.

    The import then happens once instead of once in every rank.
    """
    if name == DEFAULT or name in _HASHLIB:
        get_algorithm(name)


def ensure_usable(name: str, rank: int) -> None:
    """Raise StoppedEarly if this rank cannot use the algorithm, for example on another CPU type."""
    try:
        get_algorithm(name)
    except ValueError as error:
        raise StoppedEarly(f"rank {rank}: {error}") from None


def get_algorithm(name: str) -> Algorithm:
    """Return the algorithm with this name.

    Raise ValueError if the name is unknown or the algorithm is not usable on this machine.
    """
    check_name(name)
    if name == DEFAULT:
        import xxhash

        return Algorithm(name, 16, xxhash.xxh3_128, xxhash.xxh3_128_digest)
    if name in _HASHLIB:
        import hashlib

        return _from_class(name, getattr(hashlib, name))
    from pcircle.core import optional_packages as optional

    try:
        return _from_class(name, optional.load(name, _BLAKE3_TRIAL).blake3)
    except ImportError as error:
        raise ValueError(str(error)) from None


def _from_class(name: str, new: Callable[..., Hasher]) -> Algorithm:
    """Describe a hasher class; the digest size is that of an empty input."""
    return Algorithm(name, len(new().digest()), new, lambda data: new(data).digest())
