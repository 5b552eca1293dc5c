"""The digests that a signature can be made of.

`xxh128` is as fast as memory and finds accidents; the others find tampering
as well. All release the interpreter's lock on large buffers. Modules are
imported when an algorithm is asked for, since most runs ask for none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

DEFAULT = "xxh128"
_HASHLIB = ("sha256", "sha512", "blake2b")


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
    """The names that `algorithm` may know; `blake3` only where its package is installed."""
    return (DEFAULT, *_HASHLIB, "blake3")


def algorithm(name: str) -> Algorithm:
    """The algorithm of a name. ValueError if there is none, or it is not installed."""
    if name == DEFAULT:
        import xxhash

        return Algorithm(name, 16, xxhash.xxh3_128, xxhash.xxh3_128_digest)
    if name in _HASHLIB:
        import hashlib

        return _of_class(name, getattr(hashlib, name))
    if name == "blake3":
        try:
            return _of_class(name, importlib.import_module(name).blake3)
        except ImportError:
            raise ValueError("the package blake3 is not installed") from None
    raise ValueError(f"'{name}' is none of {', '.join(names())}")


def _of_class(name: str, new: Callable[..., Hasher]) -> Algorithm:
    return Algorithm(name, len(new().digest()), new, lambda data: new(data).digest())
