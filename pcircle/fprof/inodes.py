"""Which files of several names were seen already: each inode's home remembers that.

The home is a rank, found by hashing, so a file counts once however its names are spread over the
ranks. What a home remembers is bounded: an inode is forgotten when all its names have come, and
past some hundred thousand they are laid off to a temporary database on disk. (Copying remembers far
more of an inode, in a registry of its own.)
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pcircle.errors import StoppedEarly
from pcircle.guards import require

if TYPE_CHECKING:
    import sqlite3

MOST_AT_HAND = 100_000  # some 20 MB

_PACKED = struct.Struct("=QQIQQIIq")


class Claim(NamedTuple):
    """One name of a file of several, as its home wants to know it. `volume`: the file system."""

    volume: int
    inode: int
    links: int
    size_bytes: int
    allocated_bytes: int
    uid: int
    gid: int
    modified_s: int

    def pack(self) -> bytes:
        """As bytes of fixed length."""
        return _PACKED.pack(*self)


def unpack(packed: bytes) -> Iterator[Claim]:
    """The claims of packed ones, joined."""
    return map(Claim._make, _PACKED.iter_unpack(packed))


def home_of(claim: Claim, size: int) -> int:
    """The rank that decides."""
    # Inodes of neighbours differ by one, or by a multiple of a power of two: spread by a prime.
    return ((claim.inode * 0x9E3779B97F4A7C15 + claim.volume) >> 17) % 0x1FFFFFFFFFFFFFFF % size


class Inodes:
    """The inodes of a home, for all of its threads. StoppedEarly if there is no temporary space."""

    def __init__(self, most: int = MOST_AT_HAND) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._missing: dict[tuple[int, int], int] = {}  # names that have not come yet
        self._database: sqlite3.Connection | None = None
        self._laid_off = 0

    def is_first(self, claim: Claim) -> bool:
        """Whether this is the first name of its file; others of it are then to come."""
        with self._lock:
            return self._is_first((claim.volume, claim.inode), claim.links)

    def _is_first(self, key: tuple[int, int], links: int) -> bool:
        missing = self._missing.get(key)
        if missing is None and self._laid_off:
            missing = self._fetch(key)
        if missing is None:
            if len(self._missing) >= self._most:
                self._lay_off()
            self._missing[key] = links - 1
            return True
        if missing > 1:
            self._missing[key] = missing - 1
        else:
            self._missing.pop(key, None)
        return False

    def close(self) -> None:
        """Give the space back."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _lay_off(self) -> None:
        database = self._opened()
        if database is None:
            self._most *= 2
            return
        rows = ((_text(key), missing) for key, missing in self._missing.items())
        with _told():
            database.execute("BEGIN")
            database.executemany("INSERT INTO inodes VALUES (?, ?)", rows)
            database.execute("COMMIT")
        self._laid_off += len(self._missing)
        self._missing.clear()

    def _fetch(self, key: tuple[int, int]) -> int | None:
        database, text = require(self._database), (_text(key),)
        with _told():
            found = database.execute("SELECT missing FROM inodes WHERE key = ?", text)
            row = found.fetchone()
            if row is None:
                return None
            database.execute("DELETE FROM inodes WHERE key = ?", text)
        self._laid_off -= 1
        missing: int = row[0]
        return missing

    def _opened(self) -> sqlite3.Connection | None:
        """The database; None where Python was built without."""
        if self._database is None:
            try:
                import sqlite3  # few trees need it
            except ImportError:
                return None
            with _told():
                # A nameless one is a temporary file, and need not survive anything.
                self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._database.executescript(
                    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
                    "PRAGMA cache_size = -8000;"
                    "CREATE TABLE inodes (key TEXT PRIMARY KEY, missing INTEGER) WITHOUT ROWID;"
                )
        return self._database


@contextmanager
def _told() -> Iterator[None]:
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        reason = f"hard links can't be kept in the temporary directory: {error}"
        raise StoppedEarly(reason) from error


def _text(key: tuple[int, int]) -> str:
    return f"{key[0]}/{key[1]}"
