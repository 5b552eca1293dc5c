"""The states of hard-linked inodes at their home rank, some of them on disk.

The names of an inode may be anywhere in a tree, and any rank may find them. Therefore one rank
handles all of them: the inode's *home*, which is found by hashing. In a tree of backups, millions
of inodes may be waiting for a name that is found at the very end. An inode at rest is needed only
when its next name arrives. So if there are many inodes, those at rest are moved to a temporary
database on disk and fetched one by one.

The tool defines the state of an inode, because copying requires far more state than counting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import msgspec

from pcircle.core.errors import StoppedEarly

if TYPE_CHECKING:
    import sqlite3

_MIX = 0x9E3779B97F4A7C15
_PRIME = 0x1FFFFFFFFFFFFFFF

T = TypeVar("T")

Key: TypeAlias = "tuple[int, int]"
"""The number that the walk assigns to the file system, and the inode."""


def home_of(key: Key, size: int) -> int:
    """Return the home of an inode among `size` ranks."""
    file_system, inode = key
    # Neighbouring entries have inodes that differ by one or by a multiple of a power of two. A
    # prime modulus spreads these over all ranks.
    return ((inode * _MIX + file_system) >> 17) % _PRIME % size


class Registry(Generic[T]):
    """The states of inodes at their home, by key; about `max_count` of them are in memory.

    The states are of type `kind`. `is_at_rest` returns whether a state does not change until its
    inode is requested. A requested inode stays in memory until another one is added. Methods raise
    StoppedEarly if the temporary directory is full.
    """

    def __init__(self, kind: type[T], max_count: int, is_at_rest: Callable[[T], bool]) -> None:
        self._max_count = max_count
        self._is_at_rest = is_at_rest
        self._at_hand: dict[Key, T] = {}
        self._database: sqlite3.Connection | None = None
        self._evicted = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._kind = kind

    def __len__(self) -> int:
        return len(self._at_hand) + self._evicted

    def get(self, key: Key) -> T | None:
        """Return the state of an inode, or None if it is unknown."""
        known = self._at_hand.get(key)
        if known is None and self._evicted and self._database is not None:
            return self._fetch(self._database, key)
        return known

    def add(self, key: Key, value: T) -> None:
        """Add a new inode."""
        if len(self._at_hand) >= self._max_count:
            self._evict()
        self._at_hand[key] = value

    def replace(self, key: Key, value: T) -> None:
        """Replace the state of a requested inode."""
        self._at_hand[key] = value

    def forget(self, key: Key) -> None:
        """Remove a requested inode, because no more of its names will arrive."""
        del self._at_hand[key]

    def close(self) -> None:
        """Release the temporary space."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _evict(self) -> None:
        database = self._opened()
        if database is not None:
            at_rest = [key for key, value in self._at_hand.items() if self._is_at_rest(value)]
            rows = ((_text(key), self._encode(self._at_hand.pop(key))) for key in at_rest)
            with _translated_errors():
                database.execute("BEGIN")
                database.executemany("INSERT INTO inodes VALUES (?, ?)", rows)
                database.execute("COMMIT")
            self._evicted += len(at_rest)
        # States that are not at rest must stay in memory. A higher limit avoids searching them for
        # each new inode.
        self._max_count = max(self._max_count, 2 * len(self._at_hand))

    def _fetch(self, database: sqlite3.Connection, key: Key) -> T | None:
        text = (_text(key),)
        with _translated_errors():
            row = database.execute("SELECT value FROM inodes WHERE key = ?", text).fetchone()
            if row is None:
                return None
            database.execute("DELETE FROM inodes WHERE key = ?", text)
        self._evicted -= 1
        value = self._at_hand[key] = msgspec.msgpack.decode(row[0], type=self._kind)
        return value

    def _opened(self) -> sqlite3.Connection | None:
        """Return the database; None if Python was built without it."""
        if self._database is None:
            try:
                import sqlite3  # few trees need a database
            except ImportError:
                return None
            with _translated_errors():
                # An unnamed database is a temporary file. It need not survive a crash.
                self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._database.executescript(
                    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
                    "PRAGMA cache_size = -8000;"
                    "CREATE TABLE inodes (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;"
                )
        return self._database


class FirstNames:
    """Decides which name of an inode arrived first at its home. Safe to use from any thread.

    An inode is removed when all its names have arrived. Methods raise StoppedEarly if the temporary
    directory is full.
    """

    def __init__(self, max_count: int) -> None:
        self._lock = threading.Lock()
        # The number of names that have not arrived yet.
        self._missing: Registry[int] = Registry(int, max_count, lambda missing: True)

    def is_first(self, key: Key, links: int) -> bool:
        """Return whether this is the first name of an inode with `links` names."""
        known = self._missing
        with self._lock:
            missing = known.get(key)
            if missing is None:
                known.add(key, links - 1)
            elif missing > 1:
                known.replace(key, missing - 1)
            else:
                known.forget(key)
        return missing is None

    def is_known(self, key: Key) -> bool:
        """Return whether some names of an inode have arrived, but not all of them."""
        with self._lock:
            return self._missing.get(key) is not None

    def take_back(self, key: Key) -> None:
        """Forget the first name, which was removed; the next name becomes the first."""
        with self._lock:
            if self._missing.get(key) is not None:
                self._missing.forget(key)

    def close(self) -> None:
        """Release the temporary space."""
        self._missing.close()


@contextmanager
def _translated_errors() -> Iterator[None]:
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        reason = f"cannot record hard links in the temporary directory: {error}"
        raise StoppedEarly(reason) from error


def _text(key: Key) -> str:
    return f"{key[0]}/{key[1]}"
