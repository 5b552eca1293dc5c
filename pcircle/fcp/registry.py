"""What becomes of inodes of several names, as their home remembers it, in bounded memory.

A tree of backups may have millions of inodes that each wait for a name which
comes at the very end. An inode at rest (its copy is made, and no name waits) is
needed only when its next name comes. So when there are many, those at rest are
laid off to a temporary database on disk, and fetched back one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pcircle.errors import StoppedEarly
from pcircle.fcp.items import One, Stamp
from pcircle.guards import require

if TYPE_CHECKING:
    import sqlite3

MOST_AT_HAND = 50_000  # some 25 MB

Key: TypeAlias = "tuple[int, int]"
"""File system, as the walk numbers it, and inode."""


class Inode(msgspec.Struct):
    """What its home knows of an inode: how many names have come, and what has become of it.

    `made` is the copy's mark, and `copied` what it is a copy of; `first` the name that it was
    copied under; `epoch` and `seal` are the copy's; `waiting` are the tickets
    that are held, and for which name. `seen` names have come, of `names` at the most.
    """

    seen: int = 0
    names: int = 0
    made: int | None = None
    copied: Stamp | None = None
    epoch: int = 0
    seal: bytes = b""
    first: One | None = None
    waiting: list[tuple[int, One]] = []

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing will happen until the next name comes."""
        return self.made is not None and not self.waiting


class Registry:
    """The inodes of a home, by their keys. StoppedEarly if the temporary directory is full.

    An inode that was asked for is at hand until another one is added.
    """

    def __init__(self, most: int = MOST_AT_HAND) -> None:
        self._most = most
        self._at_hand: dict[Key, Inode] = {}
        self._database: sqlite3.Connection | None = None
        self._laid_off = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Inode).decode

    def __len__(self) -> int:
        return len(self._at_hand) + self._laid_off

    def get(self, key: Key) -> Inode | None:
        """What is known of an inode."""
        inode = self._at_hand.get(key)
        if inode is None and self._laid_off:
            return self._fetch(key)
        return inode

    def add(self, key: Key, inode: Inode) -> None:
        """An inode that was not known."""
        if len(self._at_hand) >= self._most:
            self._lay_off()
        self._at_hand[key] = inode

    def forget(self, key: Key) -> None:
        """An inode that is at hand, and of which no more names will come."""
        del self._at_hand[key]

    def close(self) -> None:
        """Give the space back."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _lay_off(self) -> None:
        database = self._opened()
        if database is not None:
            at_rest = [key for key, inode in self._at_hand.items() if inode.is_at_rest]
            rows = ((_text(key), self._encode(self._at_hand.pop(key))) for key in at_rest)
            with _told():
                database.execute("BEGIN")
                database.executemany("INSERT INTO inodes VALUES (?, ?)", rows)
                database.execute("COMMIT")
            self._laid_off += len(at_rest)
        # Those that are not at rest must stay; to look for others each time would be too much.
        self._most = max(self._most, 2 * len(self._at_hand))

    def _fetch(self, key: Key) -> Inode | None:
        database, text = require(self._database), (_text(key),)
        with _told():
            row = database.execute("SELECT inode FROM inodes WHERE key = ?", text).fetchone()
            if row is None:
                return None
            database.execute("DELETE FROM inodes WHERE key = ?", text)
        self._laid_off -= 1
        inode = self._at_hand[key] = self._decode(row[0])
        return inode

    def _opened(self) -> sqlite3.Connection | None:
        """The database; None where Python was built without."""
        if self._database is None:
            try:
                import sqlite3  # few copies need it
            except ImportError:
                return None
            with _told():
                # A nameless one is a temporary file, and need not survive anything.
                self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._database.executescript(
                    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
                    "PRAGMA cache_size = -8000;"
                    "CREATE TABLE inodes (key TEXT PRIMARY KEY, inode BLOB) WITHOUT ROWID;"
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


def _text(key: Key) -> str:
    return f"{key[0]}/{key[1]}"
