"""Operations of the striped store: the ranks that take part, and the locks that they take there.

An object is identified by its kind, its home and a random number: ``f3.9c1e…`` is a file whose
metadata is on rank 3. A file has a data object on each rank: its stripes are placed round robin,
the first one on its home. A directory's entries are on its home, next to its metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from pcircle.collective import Request

ROOT = "d0.root"
MOVES = b"moves"  # the lock, on rank 0, of directories that get another parent

Who: TypeAlias = tuple[int, ...]  # user, group, further groups


class Attributes(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of an object."""

    mode: int
    uid: int
    gid: int
    stripe_bytes: int


class Make(msgspec.Struct, frozen=True, array_like=True, tag="make"):
    """Create a file or directory."""

    parent: str
    name: bytes
    id: str
    attributes: Attributes
    who: Who


class Remove(msgspec.Struct, frozen=True, array_like=True, tag="remove"):
    """Remove a file or an empty directory."""

    parent: str
    name: bytes
    id: str
    who: Who


class Rename(msgspec.Struct, frozen=True, array_like=True, tag="rename"):
    """Rename an object; `replaced` is the object that has the new name, if any.

    `moves` identifies the last directory that got another parent, if this one gets another parent.
    """

    parent: str
    name: bytes
    id: str
    new_parent: str
    new_name: bytes
    replaced: str
    who: Who
    moves: str | None = None


class Write(msgspec.Struct, frozen=True, array_like=True, tag="write"):
    """Write into the data object of one rank."""

    id: str
    rank: int
    offset: int
    data: bytes


class Lookup(msgspec.Struct, frozen=True, array_like=True, tag="lookup"):
    """Find an entry; with an empty name, list all entries."""

    parent: str
    name: bytes
    who: Who


class Stat(msgspec.Struct, frozen=True, array_like=True, tag="stat"):
    """Read the attributes of an object, and the sizes of its data objects."""

    id: str


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Read from the data object of one rank."""

    id: str
    rank: int
    offset: int
    size: int


class LastMove(msgspec.Struct, frozen=True, array_like=True, tag="last move"):
    """Read the identifier of the last directory that got another parent."""


Change: TypeAlias = Make | Remove | Rename | Write
Query: TypeAlias = Lookup | Stat | Read | LastMove
encode = msgspec.msgpack.Encoder().encode
decode_change = msgspec.msgpack.Decoder(Change).decode
decode_query = msgspec.msgpack.Decoder(Query).decode


def is_directory(id: str) -> bool:
    """Return whether an identifier is that of a directory."""
    return id.startswith("d")


def home(id: str) -> int:
    """Return the rank that has the metadata of an object."""
    return int(id[1:].partition(".")[0])


def entry_key(parent: str, name: bytes) -> bytes:
    """Return the key of an entry."""
    return parent.encode() + b"/" + name


def holders(id: str, ranks: int) -> set[int]:
    """Return the ranks that have a part of an object."""
    return {home(id)} if is_directory(id) else set(range(ranks))


def request(operation: Change | Query, ranks: int) -> Request:
    """Return the request that performs an operation on all ranks that take part."""
    match operation:
        case Make() | Remove():
            key, owner = entry_key(operation.parent, operation.name), home(operation.parent)
            members = {owner} | holders(operation.id, ranks)
        case Rename():
            key, owner = entry_key(operation.parent, operation.name), home(operation.parent)
            members = {owner, home(operation.new_parent)}
            if operation.replaced:
                members |= holders(operation.replaced, ranks)
            if operation.moves is not None:
                members.add(0)
        case Lookup():
            key, owner = entry_key(operation.parent, operation.name), home(operation.parent)
            members = {owner}
        case Stat():
            key, owner = operation.id.encode(), home(operation.id)
            members = holders(operation.id, ranks)
        case Write() | Read():
            key, owner = b"%b@%d" % (operation.id.encode(), operation.rank), operation.rank
            members = {owner}
        case _:
            key, owner, members = MOVES, 0, {0}
    asks = isinstance(operation, Query)
    if asks:
        key = b"?" + key  # a query waits for no change: it is refused while one is under way
    return Request(key, owner, tuple(sorted(members)), encode(operation), asks=asks)


def locks(change: Change, rank: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the locks that a change takes on a rank, and whether it takes them alone."""
    for parent, name in entries(change):
        if rank == home(parent):
            yield entry_key(parent, name), True
            yield parent.encode(), False
    if isinstance(change, Rename):
        if change.replaced:
            yield change.replaced.encode(), True
        if rank == 0 and change.moves is not None:
            yield MOVES, True
    else:
        yield change.id.encode(), True


def entries(change: Change) -> Iterator[tuple[str, bytes]]:
    """Yield the entries that a change creates or removes."""
    if not isinstance(change, Write):
        yield change.parent, change.name
    if isinstance(change, Rename):
        yield change.new_parent, change.new_name


class Piece(NamedTuple):
    """A piece of a file's range, within one stripe."""

    rank: int
    offset: int  # in the data object
    start: int  # in the range
    size: int


def pieces(id: str, offset: int, size: int, stripe_bytes: int, ranks: int) -> Iterator[Piece]:
    """Divide a range of a file into its stripes; those of one rank are contiguous there."""
    start = 0
    while start < size:
        stripe, within = divmod(offset + start, stripe_bytes)
        length = min(size - start, stripe_bytes - within)
        row, column = divmod(stripe, ranks)
        rank = (home(id) + column) % ranks
        yield Piece(rank, row * stripe_bytes + within, start, length)
        start += length


def end_of(id: str, rank: int, size: int, stripe_bytes: int, ranks: int) -> int:
    """Return where a file ends by the size of one of its data objects."""
    if not size:
        return 0
    row, within = divmod(size - 1, stripe_bytes)
    column = (rank - home(id)) % ranks
    return (row * ranks + column) * stripe_bytes + within + 1


def may(attributes: Attributes, who: Who, wanted: int) -> bool:
    """Return whether a user has the permissions `wanted` (4 read, 2 write, 1 execute or search)."""
    if who[0] == 0:
        return True
    shift = 6 if who[0] == attributes.uid else 3 if attributes.gid in who[1:] else 0
    return attributes.mode >> shift & wanted == wanted
