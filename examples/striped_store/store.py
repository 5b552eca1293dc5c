"""One rank's part of a striped store: directory entries, metadata and data objects, as files.

The parts are those of the parallel file system of Carns et al. (2009): a name has an entry, an
object has metadata on one rank, and a file has a data object on each rank. A prepared change is
recorded in `intents`, and its new objects are in `prepared`; a commit renames them. Each step can
be repeated, so a rank that died in the middle of a change completes it when it is started again.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from examples.striped_store.changes import (
    ROOT,
    Attributes,
    Change,
    LastMove,
    Lookup,
    Make,
    Remove,
    Rename,
    Stat,
    Who,
    Write,
    decode_change,
    decode_query,
    encode,
    entries,
    entry_key,
    home,
    is_directory,
    locks,
    may,
)
from pcircle.collective import Op

MAX_NAME_BYTES = 255
FOLDERS = ("data", "metadata", "entry", "intents", "prepared")
_ID = re.compile(r"[df][0-9]+\.([0-9a-f]{16}|root)")
_decode_attributes = msgspec.msgpack.Decoder(Attributes).decode


def error(number: int) -> OSError:
    """Return the exception of an error number."""
    return OSError(number, os.strerror(number))


class StripedStore:
    """The part of one rank, in a directory of its own, with room for `capacity` data objects.

    A rank that is not below `ranks` is a client only, and has no part.
    """

    def __init__(self, place: Path, rank: int, ranks: int, capacity: int | None = None) -> None:
        self._place = place / f"rank-{rank}"
        self._rank = rank
        self._capacity = capacity
        self._locks: dict[Op, list[tuple[bytes, bool]]] = {}
        if rank >= ranks:
            return
        self._refuse_others(place, ranks)
        for folder in FOLDERS:
            (self._place / folder).mkdir(parents=True, exist_ok=True)
        root = self._path("metadata", ROOT)
        if rank == home(ROOT) and not root.exists():
            self._path("entry", ROOT).mkdir(exist_ok=True)
            _write(root, encode(Attributes(0o755, os.getuid(), os.getgid(), 0)))
        for op in self.in_doubt():
            self._lock(op, decode_change(self._intent(op).read_bytes()))

    # ---- the store of a collective operation ------------------------------------

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Check a change; write its intent and its new objects."""
        change = decode_change(what)
        self._refuse_locked(locks(change, self._rank))
        self._check(change)
        try:
            _write(self._intent(op), what)
            for folder, content in self._new(change):
                self._make_room(folder)
                _write(self._prepared(folder, op), content)
            _sync(self._place / "prepared")
            _sync(self._place / "intents")
        except OSError:
            self.undo(op)
            raise
        self._lock(op, change)
        return b""

    def look(self, what: bytes) -> bytes:
        """Answer a query."""
        query = decode_query(what)
        if isinstance(query, Lookup):
            return self._look_up(query)
        if isinstance(query, LastMove):
            return self._last_move().encode()
        self._refuse_locked([(query.id.encode(), False)])
        if isinstance(query, Stat):
            return self._status(query.id)
        with open(self._data(query.id), "rb") as file:
            return os.pread(file.fileno(), query.size, query.offset)

    def commit(self, op: Op) -> None:
        """Apply a prepared change, unless that is done."""
        try:
            change = decode_change(self._intent(op).read_bytes())
        except FileNotFoundError:
            return
        match change:
            case Make():
                self._show(op, change.id, change.parent, change.name)
            case Remove():
                if self._rank == home(change.parent):
                    _unlink(self._entry(change.parent, change.name))
                self._drop(change.id)
            case Rename():
                if self._rank == home(change.new_parent):
                    _rename(
                        self._prepared("entry", op),
                        self._entry(change.new_parent, change.new_name),
                    )
                if self._rank == home(change.parent):
                    _unlink(self._entry(change.parent, change.name))
                if change.replaced:
                    self._drop(change.replaced)
                _rename(self._prepared("moves", op), self._place / "moves")
            case Write():
                _write_at(self._data(change.id), change.data, change.offset)
        self._end(op)

    def undo(self, op: Op) -> None:
        """Remove what was prepared."""
        for folder in (*FOLDERS, "moves"):
            self._prepared(folder, op).unlink(missing_ok=True)
        self._end(op)

    def in_doubt(self) -> Iterator[Op]:
        """Yield the operations whose intents are left."""
        for path in sorted((self._place / "intents").glob("*")):
            requester, _, number = path.name.partition("-")
            yield int(requester), int(number)

    # ---- checks ----------------------------------------------------------------

    def _refuse_locked(self, wanted: Iterable[tuple[bytes, bool]]) -> None:
        held = [lock for taken in self._locks.values() for lock in taken]
        for resource, alone in wanted:
            for other, held_alone in held:
                if resource == other and (alone or held_alone):
                    raise error(errno.EAGAIN)

    def _check(self, change: Change) -> None:
        """Raise the error of a change that is not possible."""
        for parent, name in entries(change):
            _check_name(name)
            if self._rank == home(parent):
                self._check_access(parent, change.who, 3)  # type: ignore[union-attr]
        match change:
            case Make():
                if self._path("metadata", change.id).exists():
                    raise error(errno.EAGAIN)  # the client draws another identifier
                parent, name = change.parent, change.name
                if self._rank == home(parent) and self._entry(parent, name).exists():
                    raise error(errno.EEXIST)
            case Remove():
                if self._rank == home(change.parent):
                    self._expect_entry(change.parent, change.name, change.id)
                self._check_empty(change.id)
            case Rename():
                if self._rank == home(change.parent):
                    self._expect_entry(change.parent, change.name, change.id)
                if self._rank == home(change.new_parent):
                    self._expect_entry(change.new_parent, change.new_name, change.replaced)
                if change.replaced:
                    self._check_empty(change.replaced)
                if self._rank == 0 and change.moves not in (None, self._last_move()):
                    raise error(errno.EAGAIN)
            case Write():
                if not self._data(change.id).exists():
                    raise error(errno.ESTALE)

    def _expect_entry(self, parent: str, name: bytes, id: str) -> None:
        """Raise an error if an entry does not lead to the object that the client found."""
        try:
            found = self._entry(parent, name).read_text()
        except FileNotFoundError:
            found = ""
        if found != id:
            raise error(errno.EAGAIN)

    def _check_empty(self, id: str) -> None:
        if is_directory(id) and self._rank == home(id):
            with os.scandir(self._path("entry", id)) as found:
                if any(True for _ in found):
                    raise error(errno.ENOTEMPTY)

    def _check_access(self, id: str, who: Who, wanted: int) -> None:
        try:
            attributes = _decode_attributes(self._path("metadata", id).read_bytes())
        except FileNotFoundError:
            raise error(errno.ENOENT) from None
        if not may(attributes, who, wanted):
            raise error(errno.EACCES)

    # ---- queries ---------------------------------------------------------------

    def _look_up(self, query: Lookup) -> bytes:
        self._refuse_locked([(entry_key(query.parent, query.name), False)])
        self._check_access(query.parent, query.who, 1 if query.name else 4)
        if query.name:
            _check_name(query.name)
            try:
                return self._entry(query.parent, query.name).read_bytes()
            except FileNotFoundError:
                raise error(errno.ENOENT) from None
        return encode(sorted(os.listdir(os.fsencode(self._path("entry", query.parent)))))

    def _status(self, id: str) -> bytes:
        """Return the size of the data object, and on its home the attributes of the object."""
        size = 0 if is_directory(id) else self._data(id).stat().st_size
        attributes = None
        if self._rank == home(id):
            attributes = _decode_attributes(self._path("metadata", id).read_bytes())
        return encode((size, attributes))

    def _last_move(self) -> str:
        try:
            return (self._place / "moves").read_text()
        except FileNotFoundError:
            return ""

    # ---- steps -----------------------------------------------------------------

    def _new(self, change: Change) -> Iterator[tuple[str, bytes]]:
        """Yield the files that a change creates here."""
        if isinstance(change, Make):
            if not is_directory(change.id):
                yield "data", b""
            if self._rank == home(change.id):
                yield "metadata", encode(change.attributes)
            if self._rank == home(change.parent):
                yield "entry", change.id.encode()
        elif isinstance(change, Rename):
            if self._rank == home(change.new_parent):
                yield "entry", change.id.encode()
            if self._rank == 0 and change.moves is not None:
                yield "moves", change.id.encode() + os.urandom(8).hex().encode()

    def _show(self, op: Op, id: str, parent: str, name: bytes) -> None:
        """Show a new object, its entry last."""
        _rename(self._prepared("data", op), self._path("data", id))
        if self._rank == home(id):
            if is_directory(id):
                self._path("entry", id).mkdir(exist_ok=True)
            _rename(self._prepared("metadata", op), self._path("metadata", id))
        if self._rank == home(parent):
            _rename(self._prepared("entry", op), self._entry(parent, name))

    def _drop(self, id: str) -> None:
        """Remove this rank's part of an object."""
        if is_directory(id):
            with suppress(FileNotFoundError):
                self._path("entry", id).rmdir()
        else:
            _unlink(self._path("data", id))
        _unlink(self._path("metadata", id))

    def _lock(self, op: Op, change: Change) -> None:
        self._locks[op] = list(locks(change, self._rank))

    def _end(self, op: Op) -> None:
        self._intent(op).unlink(missing_ok=True)
        self._locks.pop(op, None)

    def _make_room(self, folder: str) -> None:
        if folder != "data" or self._capacity is None:
            return
        if len(os.listdir(self._place / "data")) >= self._capacity:
            raise error(errno.ENOSPC)

    # ---- files -----------------------------------------------------------------

    def _refuse_others(self, place: Path, ranks: int) -> None:
        """SystemExit for a store of another number of ranks: its objects have other places."""
        place.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(place / f".ranks-{self._rank}", "x") as file:
            file.write(str(ranks))
        if (place / f".ranks-{self._rank}").read_text() not in ("", str(ranks)):
            raise SystemExit(f"{place} is a store of another number of ranks")

    def _path(self, folder: str, id: str) -> Path:
        if not _ID.fullmatch(id):
            raise error(errno.EINVAL)
        return self._place / folder / id

    def _data(self, id: str) -> Path:
        path = self._path("data", id)
        if not path.exists():
            raise error(errno.ESTALE)
        return path

    def _entry(self, parent: str, name: bytes) -> Path:
        return self._path("entry", parent) / os.fsdecode(name)

    def _prepared(self, folder: str, op: Op) -> Path:
        return self._place / "prepared" / f"{op[0]}-{op[1]}.{folder}"

    def _intent(self, op: Op) -> Path:
        return self._place / "intents" / f"{op[0]}-{op[1]}"


def _check_name(name: bytes) -> None:
    if len(name) > MAX_NAME_BYTES:
        raise error(errno.ENAMETOOLONG)
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise error(errno.EINVAL)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_at(path: Path, data: bytes, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename(source: Path, target: Path) -> None:
    with suppress(FileNotFoundError):  # that was done
        source.rename(target)
        _sync(target.parent)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):  # that was done
        path.unlink()
        _sync(path.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
