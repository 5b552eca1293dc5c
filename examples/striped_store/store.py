"""One rank's part of a striped store: directory entries, metadata and data objects, as files.

A name has an entry at its owner, a metadata object at the rank after that, and a data object at
each rank, as in the parallel file system of Carns et al. (2009). What is prepared lies in
`intents`, one file an operation, with the objects under hidden names; to show it is to rename them.
Every step can be done again, so that a rank which died in the middle of it finishes when it is
started again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from pcircle.collective import Op, Refused, Request

_MAX_NAME_BYTES = 255
_KINDS = ("data", "metadata", "entry")  # as they are shown: who sees the entry finds all the rest


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A name is to be created or removed."""

    verb: str
    name: str
    ranks: int

    @property
    def owner(self) -> int:
        """The rank with the entry."""
        return crc32(self.name.encode()) % self.ranks

    def kinds(self, rank: int) -> Iterator[str]:
        """What a rank has of the name."""
        for kind in _KINDS:
            at = {"entry": self.owner, "metadata": (self.owner + 1) % self.ranks}.get(kind, rank)
            if rank == at:
                yield kind

    def request(self) -> Request:
        """It, as all ranks do it together."""
        members, what = tuple(range(self.ranks)), msgspec.msgpack.encode(self)
        key = self.name.encode()
        return Request(key, self.owner, members, what, asks=self.verb == "stat")


def refuse_name(name: str) -> None:
    """Refused if a name can't be that of a file of its own."""
    bad = not name or name.startswith(".") or "/" in name or "\0" in name
    if bad or not name.isprintable() or len(name.encode()) > _MAX_NAME_BYTES:
        raise Refused("no name: empty, too long, hidden, with a slash or not printable")


class StripedStore:
    """What one rank holds, in a directory of its own; at most so many data objects."""

    def __init__(self, place: Path, rank: int, ranks: int, capacity: int | None = None) -> None:
        self._place = place / f"rank-{rank}"
        self._rank = rank
        self._capacity = capacity
        self._refuse_others(place, ranks)
        for folder in (*_KINDS, "intents"):
            (self._place / folder).mkdir(parents=True, exist_ok=True)

    # ---- the store of a collective operation ------------------------------------

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Write the intent, and of a new name the objects. The owner knows what there is."""
        change = _decoded(what)
        refuse_name(change.name)
        if self._rank == change.owner:
            there = self._path("entry", change.name).exists()
            if there == (change.verb == "create"):
                raise Refused("exists" if there else "no such name")
        intent = self._intent(op)
        try:
            _write(intent, what)
            if change.verb == "create":
                for kind in change.kinds(self._rank):
                    self._make_room(kind)
                    _write(self._hidden(kind, op), b"")
                    _sync(self._place / kind)
            _sync(intent.parent)
        except OSError:
            self.undo(op)
            raise
        return b""

    def look(self, what: bytes) -> bytes:
        """The size of this rank's data object."""
        change = _decoded(what)
        refuse_name(change.name)
        if self._rank == change.owner and not self._path("entry", change.name).exists():
            raise Refused("no such name")
        try:
            return b"%d" % self._path("data", change.name).stat().st_size
        except FileNotFoundError:
            raise Refused("no such name") from None

    def commit(self, op: Op) -> None:
        """Show what was prepared; the entry last, and of what is removed first."""
        intent = self._intent(op)
        try:
            change = _decoded(intent.read_bytes())
        except FileNotFoundError:
            return  # that was done
        kinds = list(change.kinds(self._rank))
        for kind in kinds if change.verb == "create" else reversed(kinds):
            with suppress(FileNotFoundError):  # that was done
                if change.verb == "create":
                    self._hidden(kind, op).rename(self._path(kind, change.name))
                else:
                    self._path(kind, change.name).unlink()
            _sync(self._place / kind)
        intent.unlink()

    def undo(self, op: Op) -> None:
        """Remove what was prepared."""
        for kind in _KINDS:
            self._hidden(kind, op).unlink(missing_ok=True)
        self._intent(op).unlink(missing_ok=True)

    def in_doubt(self) -> Iterator[Op]:
        """The intents that are left."""
        for path in sorted((self._place / "intents").glob("[!.]*")):
            requester, _, number = path.name.partition("-")
            yield int(requester), int(number)

    def _refuse_others(self, place: Path, ranks: int) -> None:
        """SystemExit for a store of another number of ranks: its names have other owners."""
        place.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(place / f".ranks-{self._rank}", "x") as file:
            file.write(str(ranks))
        if (place / f".ranks-{self._rank}").read_text() not in ("", str(ranks)):
            raise SystemExit(f"{place} is a store of another number of ranks")

    # ---- files ---------------------------------------------------------------

    def _path(self, kind: str, name: str) -> Path:
        return self._place / kind / name

    def _hidden(self, kind: str, op: Op) -> Path:
        return self._place / kind / f".{op[0]}-{op[1]}"

    def _intent(self, op: Op) -> Path:
        return self._place / "intents" / f"{op[0]}-{op[1]}"

    def _make_room(self, kind: str) -> None:
        if kind != "data" or self._capacity is None:
            return
        if len(list((self._place / "data").iterdir())) >= self._capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Checked(NamedTuple):
    """What a store holds: names, objects without an entry, entries without an object, intents."""

    names: int
    orphans: list[str]
    missing: list[str]
    intents: int


def check(place: Path, ranks: int) -> Checked:
    """Go through all parts of a store, as fsck does."""
    parts = [place / f"rank-{rank}" for rank in range(ranks)]
    entries = {path.name for part in parts for path in (part / "entry").glob("[!.]*")}
    orphans, missing = [], []
    for rank, part in enumerate(parts):
        for kind in ("metadata", "data"):
            for path in (part / kind).iterdir():
                if path.name not in entries:
                    orphans.append(f"rank {rank}: {kind} of {path.name}")
        for name in entries:
            for kind in Change("stat", name, ranks).kinds(rank):
                if not (part / kind / name).exists():
                    missing.append(f"rank {rank}: {kind} of {name}")
    intents = sum(len(list((part / "intents").iterdir())) for part in parts)
    return Checked(len(entries), sorted(orphans), sorted(missing), intents)


def _decoded(what: bytes) -> Change:
    return msgspec.msgpack.decode(what, type=Change)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
