"""The calls of a client: names are resolved, ranges are divided into stripes, errors are OSError.

`Calls` has no network and no clock: each call is a generator that yields the requests to send, or
seconds to wait, and receives the answers. `Client` runs them on a `Service`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from examples.striped_store.changes import (
    ROOT,
    Attributes,
    Change,
    LastMove,
    Lookup,
    Make,
    Piece,
    Query,
    Read,
    Remove,
    Rename,
    Stat,
    Who,
    Write,
    end_of,
    is_directory,
    may,
    pieces,
    request,
)
from examples.striped_store.store import error
from pcircle.collective import Answer, Request, Service

T = TypeVar("T")
Call: TypeAlias = Generator[list[Request] | float, list[Answer], T]

STRIPE_BYTES = 64 << 10
ATTEMPTS = 12  # a refused call waits between them: 1 ms, 2 ms, 4 ms and so on
_decode_status = msgspec.msgpack.Decoder(tuple[int, Attributes | None]).decode


class Status(NamedTuple):
    """The status of an object; the mode includes the type."""

    id: str
    mode: int
    uid: int
    gid: int
    size: int
    stripe_bytes: int


class File(NamedTuple):
    """An open file."""

    id: str
    stripe_bytes: int
    writable: bool


class Calls:
    """The calls of one user of a store on `ranks` ranks."""

    def __init__(
        self,
        ranks: int,
        who: Who,
        *,
        umask: int = 0o022,
        stripe_bytes: int = STRIPE_BYTES,
        random: Random | None = None,
    ) -> None:
        self._ranks = ranks
        self._who = who
        self._umask = umask
        self._stripe_bytes = stripe_bytes
        self._random = random or Random(os.urandom(8))
        self._next_home = self._random.randrange(ranks)

    # ---- calls by path ---------------------------------------------------------

    def mkdir(self, path: str | bytes, mode: int = 0o777) -> Call[str]:
        """Create a directory; return its identifier."""
        return self._retried(lambda: self._make(path, "d", mode))

    def create(self, path: str | bytes, mode: int = 0o666) -> Call[File]:
        """Create a file, which must not exist, and open it."""

        def once() -> Call[File]:
            id = yield from self._make(path, "f", mode)
            return File(id, self._stripe_bytes, writable=True)

        return self._retried(once)

    def open(self, path: str | bytes, *, write: bool = False) -> Call[File]:
        """Open a file."""

        def once() -> Call[File]:
            found = yield from self._status((yield from self._find(path)))
            if write and stat.S_ISDIR(found.mode):
                raise error(errno.EISDIR)
            attributes = Attributes(found.mode, found.uid, found.gid, found.stripe_bytes)
            if not may(attributes, self._who, 6 if write else 4):
                raise error(errno.EACCES)
            return File(found.id, found.stripe_bytes, write)

        return self._retried(once)

    def stat(self, path: str | bytes) -> Call[Status]:
        """Return the status of a name."""

        def once() -> Call[Status]:
            return (yield from self._status((yield from self._find(path))))

        return self._retried(once)

    def listdir(self, path: str | bytes) -> Call[list[bytes]]:
        """Return the names in a directory, sorted."""

        def once() -> Call[list[bytes]]:
            id = yield from self._find(path)
            if not is_directory(id):
                raise error(errno.ENOTDIR)
            (value,) = yield from self._perform(Lookup(id, b"", self._who))
            return msgspec.msgpack.decode(value, type=list[bytes])

        return self._retried(once)

    def unlink(self, path: str | bytes) -> Call[None]:
        """Remove a file."""
        return self._retried(lambda: self._remove(path, directory=False))

    def rmdir(self, path: str | bytes) -> Call[None]:
        """Remove an empty directory."""
        return self._retried(lambda: self._remove(path, directory=True))

    def rename(self, path: str | bytes, new_path: str | bytes) -> Call[None]:
        """Rename a file or directory, and replace a file or an empty directory of the new name."""
        return self._retried(lambda: self._rename(path, new_path))

    # ---- calls on open files ---------------------------------------------------

    def write(self, file: File, data: bytes, offset: int) -> Call[int]:
        """Write at an offset; all or nothing on each rank, not on all together."""
        if not file.writable:
            raise error(errno.EBADF)
        parts: dict[int, tuple[int, bytearray]] = {}
        for piece in self._pieces(file, offset, len(data)):
            _, part = parts.setdefault(piece.rank, (piece.offset, bytearray()))
            part += data[piece.start : piece.start + piece.size]

        for rank, (start, part) in parts.items():
            change = Write(file.id, rank, start, bytes(part))
            yield from self._retried(lambda change=change: self._perform(change))  # type: ignore[misc]
        return len(data)

    def read(self, file: File, size: int, offset: int) -> Call[bytes]:
        """Read up to `size` bytes at an offset; holes are zeros."""
        return self._retried(lambda: self._read(file, size, offset))

    # ---- parts of calls --------------------------------------------------------

    def _retried(self, once: Callable[[], Call[T]]) -> Call[T]:
        """Repeat a call that is refused because another one is in progress."""
        for attempt in range(ATTEMPTS):
            try:
                return (yield from once())
            except BlockingIOError:
                yield 0.001 * 2**attempt * (0.5 + self._random.random())
        raise error(errno.ETIMEDOUT)

    def _perform(self, *operations: Change | Query) -> Call[list[bytes]]:
        """Send requests; return the values of all members, by request and rank."""
        answers = yield [request(operation, self._ranks) for operation in operations]
        values = []
        for answer in answers:
            if not answer.decided:
                raise _error(answer)
            said = sorted(answer.said, key=lambda response: response.rank)
            values += [response.value for response in said]
        return values

    def _find(self, path: str | bytes) -> Call[str]:
        *_, last = yield from self._chain(_names(path))
        return last

    def _chain(self, names: Sequence[bytes]) -> Call[list[str]]:
        """Return the objects on a path, from the root on."""
        chain = [ROOT]
        for name in names:
            if not is_directory(chain[-1]):
                raise error(errno.ENOTDIR)
            (value,) = yield from self._perform(Lookup(chain[-1], name, self._who))
            chain.append(value.decode())
        return chain

    def _parent(self, path: str | bytes) -> Call[tuple[list[str], bytes]]:
        """Return the objects on the way to a name, its directory last, and the name."""
        names = _names(path)
        if not names:
            raise error(errno.EBUSY)  # the root
        chain = yield from self._chain(names[:-1])
        if not is_directory(chain[-1]):
            raise error(errno.ENOTDIR)
        return chain, names[-1]

    def _entry(self, parent: str, name: bytes) -> Call[str]:
        (value,) = yield from self._perform(Lookup(parent, name, self._who))
        return value.decode()

    def _make(self, path: str | bytes, kind: str, mode: int) -> Call[str]:
        if not _names(path):
            raise error(errno.EEXIST)
        chain, name = yield from self._parent(path)
        self._next_home = (self._next_home + 1) % self._ranks
        id = f"{kind}{self._next_home}.{self._random.getrandbits(64):016x}"
        uid, gid = self._who[:2]
        attributes = Attributes(mode & ~self._umask, uid, gid, self._stripe_bytes)
        yield from self._perform(Make(chain[-1], name, id, attributes, self._who))
        return id

    def _remove(self, path: str | bytes, *, directory: bool) -> Call[None]:
        chain, name = yield from self._parent(path)
        id = yield from self._entry(chain[-1], name)
        if is_directory(id) != directory:
            raise error(errno.ENOTDIR if directory else errno.EISDIR)
        yield from self._perform(Remove(chain[-1], name, id, self._who))

    def _rename(self, path: str | bytes, new_path: str | bytes) -> Call[None]:
        (moves,) = yield from self._perform(LastMove())
        chain, name = yield from self._parent(path)
        new_chain, new_name = yield from self._parent(new_path)
        id = yield from self._entry(chain[-1], name)
        if id in new_chain:
            raise error(errno.EINVAL)
        replaced = ""
        with suppress(FileNotFoundError):
            replaced = yield from self._entry(new_chain[-1], new_name)
        if replaced == id:
            return
        if replaced in chain:
            raise error(errno.ENOTEMPTY)
        if replaced and is_directory(replaced) != is_directory(id):
            raise error(errno.ENOTDIR if is_directory(id) else errno.EISDIR)
        moved = is_directory(id) and chain[-1] != new_chain[-1]
        change = Rename(
            chain[-1],
            name,
            id,
            new_chain[-1],
            new_name,
            replaced,
            self._who,
            moves.decode() if moved else None,
        )
        yield from self._perform(change)

    def _status(self, id: str) -> Call[Status]:
        values = yield from self._perform(Stat(id))
        found = [_decode_status(value) for value in values]
        (attributes,) = [attributes for _, attributes in found if attributes is not None]
        if is_directory(id):
            size, kind = 0, stat.S_IFDIR
        else:
            kind = stat.S_IFREG
            stripe_bytes = attributes.stripe_bytes
            size = max(
                end_of(id, rank, part, stripe_bytes, self._ranks)
                for rank, (part, _) in enumerate(found)
            )
        mode = kind | attributes.mode
        return Status(id, mode, attributes.uid, attributes.gid, size, attributes.stripe_bytes)

    def _pieces(self, file: File, offset: int, size: int) -> list[Piece]:
        if offset < 0:
            raise error(errno.EINVAL)
        return list(pieces(file.id, offset, size, file.stripe_bytes, self._ranks))

    def _read(self, file: File, size: int, offset: int) -> Call[bytes]:
        if is_directory(file.id):
            raise error(errno.EISDIR)
        end = (yield from self._status(file.id)).size
        size = max(0, min(size, end - offset))
        wanted = self._pieces(file, offset, size)
        reads = [Read(file.id, piece.rank, piece.offset, piece.size) for piece in wanted]
        values = (yield from self._perform(*reads)) if reads else []
        data = bytearray(size)
        for piece, value in zip(wanted, values, strict=True):
            data[piece.start : piece.start + len(value)] = value
        return bytes(data)


def _names(path: str | bytes) -> list[bytes]:
    return [name for name in os.fsencode(path).split(b"/") if name]


def _error(answer: Answer) -> OSError:
    """Return the error of an operation that was not performed; it may be in doubt."""
    if answer.decided is not None:
        numbers = [response.errno for response in answer.said if response.errno]
        if numbers:
            return error(errno.EAGAIN if errno.EAGAIN in numbers else numbers[0])
    why = "; ".join(response.refusal for response in answer.said if response.refusal)
    doubt = "in doubt: " if answer.decided is None else ""
    return OSError(errno.EIO, doubt + why)


class Client:
    """The calls on a running service, in either shape."""

    def __init__(self, service: Service, calls: Calls, *, collective: bool = True) -> None:
        self.calls = calls
        self._service = service
        self._collective = collective

    def run(self, call: Call[T]) -> T:
        """Run one call to its end; raises OSError."""
        answers: list[Answer] | None = None
        while True:
            try:
                step: Any = call.send(answers) if answers is not None else next(call)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            if isinstance(step, float):
                self._wait(step)
                answers = []
            else:
                answers = self._service.do_all(step, collective=self._collective)

    def _wait(self, duration_s: float) -> None:
        """Serve other ranks for a while."""
        ends_s = time.monotonic() + duration_s
        while (left_s := ends_s - time.monotonic()) > 0:
            self._service.step(left_s)
