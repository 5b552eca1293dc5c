"""The digests that a signature can be made of.

`xxh128` is as fast as memory and finds accidents; the others find tampering
as well. All release the interpreter's lock on large buffers. Modules are
imported when an algorithm is asked for, since most runs ask for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pcircle.errors import StoppedEarly

DEFAULT = "xxh128"
_HASHLIB = ("sha256", "sha512", "blake2b")
# Long enough for all of its code for large input.
_TRIAL_OF_BLAKE3 = """
from blake3 import blake3
hasher = blake3(bytes(1 << 20))
hasher.update(bytes(100))
hasher.digest()
"""


class Hasher(Protocol):
    """A digest under way."""

    def update(self, data: Any, /) -> Any:
        """Add bytes."""

    def digest(self) -> bytes:
        """The digest of what was added."""


class Algorithm(NamedTuple):
    """A digest: its name, how many bytes it has, how one begins and all at once."""

    name: str
    size: int
    new: Callable[[], Hasher]
    digest: Callable[[Any], bytes]


def names() -> tuple[str, ...]:
    """The names that `algorithm` may know; `blake3` only where its package can be used."""
    return (DEFAULT, *_HASHLIB, "blake3")


def check_name(name: str) -> None:
    """ValueError if there is no algorithm of this name, whatever is installed here."""
    if name not in names():
        raise ValueError(f"unknown algorithm '{name}'; choose from {', '.join(names())}")


def import_ahead(name: str) -> None:
    """Import an algorithm before ranks are forked, if that needs no trial: each would do so."""
    if name == DEFAULT or name in _HASHLIB:
        algorithm(name)


def ensure_usable(name: str, rank: int) -> None:
    """StoppedEarly where a rank can't use the algorithm, as on a node with another processor."""
    try:
        algorithm(name)
    except ValueError as error:
        raise StoppedEarly(f"rank {rank}: {error}") from None


def algorithm(name: str) -> Algorithm:
    """The algorithm of a name. ValueError if there is none, or it can't be used here."""
    check_name(name)
    if name == DEFAULT:
        import xxhash

        return Algorithm(name, 16, xxhash.xxh3_128, xxhash.xxh3_128_digest)
    if name in _HASHLIB:
        import hashlib

        return _of_class(name, getattr(hashlib, name))
    from pcircle import optional

    try:
        return _of_class(name, optional.load(name, _TRIAL_OF_BLAKE3).blake3)
    except ImportError as error:
        raise ValueError(str(error)) from None


def _of_class(name: str, new: Callable[..., Hasher]) -> Algorithm:
    return Algorithm(name, len(new().digest()), new, lambda data: new(data).digest())
