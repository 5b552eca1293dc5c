"""The journal of a checkpoint: its records, and how they are collected, framed, written and read.

The ranks of a node append to a common file. Most records state that a unit of work is complete: a
directory with its subtree, names of one directory, or a range of a large file. The completed work
is the union of all journals. It does not matter which rank did the work, so stolen items need no
special treatment.

A journal may only describe work that is on disk. Every frame of records carries an epoch
(`pcircle.circle.rounds`), which applies to all its records, and a commit writes a mark. A frame
counts only if any journal of the same run contains a commit mark for the epoch of the frame or a
later one. Therefore records can be written as soon as they exist, in bounded memory, and become
valid together. A complete frame is not rewritten, so a crash loses only the work after the last
mark.

The format, in which all integers are little-endian:

    frame   := magic (4)  length (u32)  epoch (u64)  check (u64)  payload (length)
    magic   := "fcpR" for records, "fcpC" for a commit of the epoch
    check   := XXH3-64, seeded with the checkpoint's secret, of magic .. epoch and payload
    payload := of records: { length (u32)  record }*; of a commit: rank and its counts
    record, rank and counts := MessagePack

A directory is identified by 16 bytes of keyed BLAKE2b of root and path, a name in it by 8 bytes of
seeded XXH3-64. A user who chooses file names cannot predict either of them, and the records of deep
directories are as short as any others. `docs/journal-format.rst` has an example.

All ranks of a node append to the tail of one file. On a parallel file system each further file
would cost a creation, a reservation of space and a sync at each commit. The range of a frame is
allocated before the frame is written, so no rank waits for the write of another rank. If a rank
dies, the unwritten part of its range contains zeros, which cannot be mistaken for a frame.

A `Recorder` collects records while an item is being processed. At the end of the item, the records
are appended to the journal with the current epoch of the rank.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeAlias

import msgspec
import xxhash

from pcircle.core.errors import NoSpace
from pcircle.core.writing import write_at
from pcircle.fs.directories import HOLDER, closing_fd
from pcircle.fs.open_flags import OPEN_DIRECTORY
from pcircle.ops.checkpoint.file_system_sync import FileSystemSync, SharedSync
from pcircle.ops.checkpoint.hashes import blake2b
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.checkpoint.shared_board import SharedBoard


class TailState(msgspec.Struct):
    """The state of a journal's tail.

    `creator` is 1 plus the rank that created the file, or 0 if there is no file yet. `bytes` is the
    end of the allocated frames, and `ranks` the number of ranks that write to the file.
    """

    creator: int = 0
    bytes: int = 0
    reserved_bytes: int = 0
    ranks: int = 0


class JournalTail:
    """The tail of a journal, which the ranks of a node share in one run of a job.

    The job is identified by its `token`. If the token is empty or sharing fails, the tail belongs
    to this rank alone.
    """

    def __init__(self, token: bytes, run: int) -> None:
        self._token = token
        self._name = f"journal-{run}"
        self._state = TailState()  # used if the tail is not shared
        self._creator = 0
        self._board: SharedBoard | None = None
        self._syncs: SharedSync | None = None
        self._was_joined = not token
        self._is_closed = False

    @contextmanager
    def locked(self) -> Iterator[TailState]:
        """Lock the tail and yield its state; changes of the state are stored. Raises OSError."""
        if not self._was_joined:
            self._was_joined = True
            with suppress(OSError):
                self._board = SharedBoard(self._token, self._name, len(TailState.__struct_fields__))
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._board is None:
            yield self._state
            return
        with self._board.locked() as numbers:
            state = TailState(*numbers.read())
            try:
                yield state
            finally:
                numbers.write(msgspec.structs.astuple(state))
                self._creator = state.creator

    def sync(self, flush: Callable[[], None]) -> None:
        """Ensure that data written before this call is on disk; `flush` writes it if necessary."""
        if self._board is not None and self._syncs is None:
            # The name contains the creator, because a rank that arrives after the creator has left
            # may use another file.
            name = f"{self._name}-{self._creator}-syncs"
            with suppress(OSError):
                self._syncs = SharedSync(self._token, name, gather_s=0)
        if self._syncs is None:
            flush()
        else:
            self._syncs.sync(flush)

    def close(self) -> None:
        """Release the shared memory; the tail can no longer be used."""
        self._is_closed = True
        for shared in (self._board, self._syncs):
            if shared is not None:
                shared.close()
        self._board = self._syncs = None


RECORDS, COMMIT = b"fcpR", b"fcpC"
_HEAD = struct.Struct("<4sIQQ")
_LENGTH = struct.Struct("<I")
_MAX_BYTES = 16 << 20  # maximum payload of a frame; a larger length means damage
_RESERVED_BYTES = 256 << 10  # reserved per rank in a small job
_MIN_RESERVED_BYTES = 16 << 10  # reserved per rank in any job
_TOTAL_RESERVED_BYTES = 256 << 20  # limit for all ranks, unless the minimum requires more
_FRAMES_PER_RESERVATION = 4  # number of frames per reservation
_MARK_BYTES = 4 << 10  # space for a commit mark and the overhead of a frame
HASH_BYTES = 8
# Errors of file systems that cannot reserve space, if the C library does not emulate that.
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Counts: TypeAlias = "tuple[int, ...]"
"""The counters of a tool by position, used in memory, where all ranks run the same version."""
NamedCounts: TypeAlias = "dict[str, int]"
"""The counters of a tool by name, as stored on disk; missing counters are 0.

Readers ignore unknown names, because a version with more counters may have written them.
"""


class SubtreeRecord(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A directory and everything below it are complete; `counts` is its share of the counts.

    `made` is the inode of the copy, and `changed` its change time in ns. While neither has changed,
    no entry has been added or removed. If the copy is signed, `digest` is that of the directory,
    and `signed` is the number of entries below it.
    """

    key: bytes
    counts: NamedCounts
    made: int
    changed: int
    digest: bytes = b""
    signed: int = 0


class NamesRecord(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """Names of one directory, given as concatenated hashes, are complete.

    `entries` contains their packed signature entries if the copy is signed. `made` identifies the
    copy of the directory; the record does not apply to any other directory.
    """

    key: bytes
    hashes: bytes
    counts: NamedCounts
    made: int
    entries: bytes = b""


class StartedFileRecord(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """A large file was started as the file `temporary`, whose inode is `made`.

    `key` identifies the file, and `where` its temporary file. `source` is the version of the
    source; see `Stamp.version`.
    """

    key: bytes
    where: bytes
    temporary: bytes
    made: int
    source: tuple[int, int, int, int]


class RangeRecord(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """A range of a large file was copied; `blocks` contains its block digests for a signature."""

    key: bytes
    temporary: bytes
    offset: int
    length: int
    blocks: bytes = b""


class InodeRecord(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """The copy of an inode with several names was created under this name; `made` is its mark.

    `source` is the version of the source; see `Stamp.version`.
    """

    key: bytes
    root: int
    path: bytes
    name: bytes
    made: int
    source: tuple[int, int, int, int]
    seal: bytes = b""  # type and digest, if the copy is signed


class CreatedDirectoryRecord(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """The job created this directory. The record is valid even if its epoch is never committed."""

    key: bytes


Record: TypeAlias = (
    SubtreeRecord
    | NamesRecord
    | StartedFileRecord
    | RangeRecord
    | InodeRecord
    | CreatedDirectoryRecord
)


def add_named_counts(a: NamedCounts, b: NamedCounts) -> NamedCounts:
    """Return the sum of two sets of named counters."""
    return {name: a.get(name, 0) + b.get(name, 0) for name in a | b}


def add_counts(a: Counts, b: Counts) -> Counts:
    """Return the sum of two tuples of counters, either of which may be empty."""
    return tuple(map(sum, zip(a, b, strict=True))) if a and b else a or b


def reserved_bytes(ranks: int) -> int:
    """Return the space in bytes that each of `ranks` ranks reserves.

    All ranks together reserve at most 256 MiB, unless the minimum for each rank requires more.
    """
    return max(_MIN_RESERVED_BYTES, min(_RESERVED_BYTES, _TOTAL_RESERVED_BYTES // ranks))


def journal_name(run: int, rank: int) -> bytes:
    """Return the name of the journal that a rank creates."""
    return b"journal-%04d-%d" % (run, rank)


class RecordKeys:
    """Computes the keys of records from the 8-byte secret of a checkpoint."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._seed = int.from_bytes(secret, "little")

    def directory(self, root: int, path: bytes) -> bytes:
        """Return the key of a directory."""
        return self._key(b"d", b"%d/%b" % (root, path))

    def file(self, root: int, path: bytes, name: bytes) -> bytes:
        """Return the key of a file that is recorded individually."""
        return self._key(b"f", b"%d/%b/%b" % (root, path, name))

    def inode(self, file_system: int, inode: int) -> bytes:
        """Return the key of an inode."""
        return self._key(b"i", b"%d/%d" % (file_system, inode))

    def _key(self, kind: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=16, key=self._secret, person=kind).digest()

    def names(self, names: Sequence[bytes]) -> bytes:
        """Return the concatenated hashes of names."""
        hash_, seed = xxhash.xxh3_64_intdigest, self._seed
        hashes = [hash_(name, seed) for name in names]
        return struct.pack(f"<{len(hashes)}Q", *hashes)

    def are_of(self, names: Sequence[bytes], hashes: bytes) -> bool:
        """Return whether `hashes` are the concatenated hashes of the names, in any order."""
        integer = struct.Struct("<Q")
        return sorted(integer.iter_unpack(self.names(names))) == sorted(integer.iter_unpack(hashes))

    def check(self, head: bytes, payload: bytes) -> int:
        """Return the checksum of a frame; `head` precedes the checksum."""
        checksum = xxhash.xxh3_64(head, self._seed)
        checksum.update(payload)
        return checksum.intdigest()


def encode_frame(keys: RecordKeys, magic: bytes, epoch: int, payload: bytes) -> bytes:
    """Return the bytes of a frame."""
    head = _HEAD.pack(magic, len(payload), epoch, 0)[:-8]
    return head + keys.check(head, payload).to_bytes(8, "little") + payload


class Journal:
    """Writes the records of a rank, from any thread.

    Raises NoSpace if the journal cannot be written to, for any reason.

    If the job has a `token`, the ranks of a node share one file, which is named after the first
    rank that writes. `directory_fd` is the directory of the checkpoint.

    If a full disk interrupts the copy, the journal must still be written. Therefore
    `reserved_bytes` of space per rank are reserved in advance, and again before less space remains
    than one commit of all ranks needs. Pending records are written when they fill a quarter of a
    reservation, or earlier.
    """

    def __init__(
        self,
        directory_fd: int,
        run: int,
        rank: int,
        keys: RecordKeys,
        reserved_bytes: int = _RESERVED_BYTES,
        token: bytes = b"",
    ) -> None:
        self.committed: int = 0
        self.bytes: int = 0  # end of the last frame that this rank has written
        self._directory_fd = directory_fd
        self._run = run
        self._rank = rank
        self._keys = keys
        self._encode = msgspec.msgpack.Encoder().encode
        self._lock = threading.Lock()
        self._tail = JournalTail(token, run)
        self._fd: int | None = None
        self._is_used = self._tried_to_reserve = False
        self._used_of_share = 0  # bytes of this rank's share used since reservation failed
        self._reservation_bytes = reserved_bytes
        self._frame_bytes = reserved_bytes // _FRAMES_PER_RESERVATION
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_epoch = 0
        self._epoch = 1  # the rank's current epoch

    def reserve(self) -> None:
        """Create the file and reserve space on the first call, unless the disk is full."""
        if not self._tried_to_reserve:
            self._tried_to_reserve = True
            with self._lock, suppress(NoSpace):
                self._write(b"")

    def enter(self, epoch: int) -> None:
        """Assign records added from now on to this epoch or a later one."""
        # The lock is not taken, because another thread may hold it for a long time. Records that
        # the other thread is adding are included in `flush`.
        self._epoch = epoch

    def add(self, records: Sequence[Record], floor: int = 0, *, now: bool = False) -> int:
        """Append records that become valid together, with epoch `floor` or later; return the epoch.

        If `now` is true, they are written immediately, so that they survive the death of this
        process.
        """
        encoded = [self._encode(record) for record in records]
        with self._lock:
            # The epoch is read under the lock, so the flush before the commit of this epoch will
            # follow.
            epoch = max(self._epoch, floor)
            if epoch != self._pending_epoch:
                self._flush()  # a frame belongs to one epoch
                self._pending_epoch = epoch
            for data in encoded:
                self._pending.append(_LENGTH.pack(len(data)))
                self._pending.append(data)
                self._pending_bytes += len(data) + _LENGTH.size
            if now or self._pending_bytes >= self._frame_bytes:
                self._flush()
            return epoch

    def flush(self) -> None:
        """Write the pending records."""
        with self._lock:
            self._flush()

    def commit(self, epoch: int, counts: NamedCounts) -> None:
        """Mark an epoch as committed and sync the mark; `counts` are the counts of this rank.

        A rank that has recorded and counted nothing needs no journal, because the marks of the
        other ranks are sufficient.
        """
        with self._lock:
            if not (self._is_used or self._pending or counts):
                return
            self._flush()
            mark = self._encode((self._rank, counts))
            fd = self._write(encode_frame(self._keys, COMMIT, epoch, mark))
            self.committed = epoch
            fd = os.dup(fd)  # the original may be closed during the sync
        try:
            with closing_fd(fd):
                self._tail.sync(lambda: os.fdatasync(fd))
        except OSError as error:
            raise _write_error(error) from error

    def close(self) -> None:
        """Write the pending records if possible, and close the file.

        The file is reopened on demand, because even an abort during the final report of the ranks
        causes a commit. Raises NoSpace if closing fails (as on NFS over quota), because records may
        be lost then.
        """
        with self._lock:
            with suppress(NoSpace):  # these records are not committed anyway
                self._flush()
            fd, self._fd = self._fd, None
            if fd is not None:
                try:
                    os.close(fd)
                except OSError as error:
                    raise _write_error(error) from error

    def leave(self) -> None:
        """Close the journal permanently; committed records are already on disk."""
        with suppress(NoSpace):
            self.close()
        self._tail.close()

    def _flush(self) -> None:
        if self._pending:
            payload = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._write(encode_frame(self._keys, RECORDS, self._pending_epoch, payload))

    def _write(self, data: bytes) -> int:
        """Append a frame to the file, and return its descriptor."""
        try:
            with self._tail.locked() as tail:
                fd = self._open(tail)
                begin = tail.bytes
                until = begin + len(data)
                self._make_room(fd, tail, until)
                # The range is allocated before the write, so that no other rank uses it if this
                # rank dies.
                tail.bytes = until
            try:
                self.bytes = begin + write_at(fd, data, begin)
            except OSError:
                self._undo_write(fd, begin, until)
                raise
            return fd
        except OSError as error:
            raise _write_error(error) from error

    def _undo_write(self, fd: int, begin: int, until: int) -> None:
        """Remove a partially written frame, because a reader would report it as damage."""
        with suppress(OSError), self._tail.locked() as tail:
            if tail.bytes == until:
                tail.bytes = begin
            else:
                write_at(fd, bytes(until - begin), begin)

    def _open(self, tail: TailState) -> int:
        if self._fd is None:
            # The file is readable, because the C library may emulate reservation by reading and
            # writing.
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            if not tail.creator:
                flags |= os.O_CREAT | os.O_EXCL
            rank = tail.creator - 1 if tail.creator else self._rank
            name = journal_name(self._run, rank)
            self._fd = os.open(name, flags, 0o600, dir_fd=self._directory_fd)
            tail.creator = rank + 1
        return self._fd

    def _make_room(self, fd: int, tail: TailState, until: int) -> None:
        """Reserve space, unless the shares of all ranks remain free after `until`. Raises OSError.

        If the disk is full, existing reservations must be sufficient. This rank may then use its
        own share, but a new rank does not have one.
        """
        ranks = tail.ranks + (not self._is_used)
        share = self._frame_bytes + _MARK_BYTES
        if until + ranks * share > tail.reserved_bytes:
            ahead = until + ranks * self._reservation_bytes
            try:
                os.posix_fallocate(fd, tail.bytes, ahead - tail.bytes)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    self._used_of_share += until - tail.bytes
                    has_share = self._is_used and self._used_of_share <= share
                    if not has_share or until > tail.reserved_bytes:
                        raise
                    return
            tail.reserved_bytes = ahead
        self._used_of_share = 0
        self._is_used, tail.ranks = True, ranks


def _write_error(error: OSError) -> NoSpace:
    return NoSpace(f"cannot write the checkpoint: {error.strerror}")


class JournalFrame(msgspec.Struct, frozen=True):
    """A frame that was read; `offset` is that of the payload."""

    magic: bytes
    epoch: int
    offset: int
    payload: bytes


class DamagedRange(msgspec.Struct, frozen=True):
    """A damaged range of a journal."""

    offset: int
    length: int


def read_frames(fd: int, keys: RecordKeys) -> Iterator[JournalFrame | DamagedRange]:
    """Yield the frames of a journal in order, and the damaged ranges between them. Raises OSError.

    Zeros do not count as damage: they are reserved space, or the range of a rank that died.
    """
    size = os.fstat(fd).st_size
    offset = 0
    while offset < size:
        found = _frame_at(fd, offset, size, keys)
        if found is not None:
            yield found
            offset = found.offset + len(found.payload)
            continue
        after = _next_frame(fd, offset + 1, size, keys)
        if _is_written(fd, offset, after):
            yield DamagedRange(offset, after - offset)
        offset = after


def _frame_at(fd: int, offset: int, size: int, keys: RecordKeys) -> JournalFrame | None:
    head = os.pread(fd, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        return None
    magic, length, epoch, check = _HEAD.unpack(head)
    if magic not in (RECORDS, COMMIT) or length > min(_MAX_BYTES, size - offset - _HEAD.size):
        return None
    payload = os.pread(fd, length, offset + _HEAD.size)
    if len(payload) < length or keys.check(head[:-8], payload) != check:
        return None
    return JournalFrame(magic, epoch, offset + _HEAD.size, payload)


def _next_frame(fd: int, offset: int, size: int, keys: RecordKeys) -> int:
    """Return the offset of the next valid frame, or `size` if no frame follows."""
    step = 1 << 20
    while offset < size:
        data = os.pread(fd, step + 3, offset)
        at = data.find(RECORDS[:3])
        while at >= 0:
            if _frame_at(fd, offset + at, size, keys) is not None:
                return offset + at
            at = data.find(RECORDS[:3], at + 1)
        offset += step
    return size


def _is_written(fd: int, offset: int, end: int) -> bool:
    while offset < end:
        data = os.pread(fd, min(1 << 20, end - offset), offset)
        if not data:
            break
        if data.strip(b"\0"):
            return True
        offset += len(data)
    return False


@cache
def _record_decoder() -> msgspec.msgpack.Decoder[Record]:
    # Most runs read no records, and the decoder takes a millisecond to build.
    return msgspec.msgpack.Decoder(Record)


def read_records(payload: bytes) -> Iterator[tuple[int, int, Record]]:
    """Yield the offset and length of each record in the payload of a frame, and the record.

    Raises ValueError if the payload is malformed.
    """
    at = 0
    while at < len(payload):
        (length,) = _LENGTH.unpack_from(payload, at) if at + 4 <= len(payload) else (_MAX_BYTES,)
        at += _LENGTH.size
        if at + length > len(payload):
            raise ValueError("a record is longer than its frame")
        yield at, length, read_record(payload[at : at + length])
        at += length


def read_record(data: bytes) -> Record:
    """Decode a record. Raises ValueError if it is malformed or has an impossible value."""
    record: Record = _record_decoder().decode(data)
    if len(record.key) != 16:
        raise ValueError("a key is not 16 bytes long")
    numbers: tuple[int, ...] = ()
    if isinstance(record, SubtreeRecord | NamesRecord):
        numbers = (*record.counts.values(), record.made >> 1)  # inode numbers may use 64 bits
        if isinstance(record, SubtreeRecord):
            numbers += (record.signed,)
        if isinstance(record, NamesRecord) and len(record.hashes) % HASH_BYTES:
            raise ValueError("hashes are truncated")
    elif isinstance(record, RangeRecord):
        numbers = (record.offset, record.length)
    elif isinstance(record, InodeRecord):
        numbers = (record.root, record.made)
        if not is_below(record.path, record.name):
            raise ValueError("a path and its name disagree")
    if any(number < 0 or number >> 63 for number in numbers):
        raise ValueError("a number is out of range")
    return record


def is_below(path: bytes, name: bytes) -> bool:
    """Return whether a path below a root (or `HOLDER`) and a name in it are valid."""
    parts = [] if path in (b"", HOLDER) else path.split(b"/")
    odd = any(part in (b"", b".", b"..") or b"\0" in part for part in (*parts, name))
    return not odd and b"/" not in name


def read_mark(payload: bytes) -> tuple[int, NamedCounts]:
    """Decode a commit mark: the rank, and its counts.

    Raises ValueError if they are malformed.
    """
    rank, counts = msgspec.msgpack.decode(payload, type=tuple[int, dict[str, int]])
    # Counts may be negative, because a rank may subtract entries that another rank has counted.
    if rank < 0 or any(abs(number) >> 62 for number in counts.values()):
        raise ValueError("invalid counts")
    return rank, counts


class Recorder(FileSystemSync):
    """Collects and writes the records of one of `size` ranks."""

    def __init__(
        self,
        plan: JournalPlan,
        rank: int,
        size: int,
        first: Recorder | None = None,
        token: bytes = b"",
    ) -> None:
        super().__init__(first, token)
        self._records: list[Callable[[], Record]] = []
        self.keys: RecordKeys = RecordKeys(plan.secret) if first is None else first.keys
        self._fd: int = os.open(plan.path, OPEN_DIRECTORY) if first is None else first._fd
        shared_by, space = token if size > 1 else b"", reserved_bytes(size)
        self.journal: Journal = (
            Journal(self._fd, plan.run, rank, self.keys, space, shared_by)
            if first is None
            else first.journal
        )

    # ---- the current item ------------------------------------------------------

    def begin_item(self) -> None:
        """Start an item. The first call reserves space for records."""
        self.journal.reserve()
        self._records.clear()

    def add(self, record: Record) -> None:
        """Add a record of the current item."""
        self._records.append(lambda: record)

    def add_names(
        self,
        root: int,
        path: bytes,
        names: Sequence[bytes],
        counts: NamedCounts,
        made: int,
        entries: bytes = b"",
    ) -> None:
        """Record that the item has completed these names of a directory; `counts` covers them.

        `made` identifies the copy of the directory. `entries` contains the packed signature entries
        of the names if the copy is signed.
        """

        def record() -> NamesRecord:
            key = self.keys.directory(root, path)
            return NamesRecord(key, self.keys.names(names), counts, made, entries)

        if names:
            # Names are hashed at the end of the item, because the record is not needed if the
            # directory is completed by then.
            self._records.append(record)

    def add_range(
        self,
        file: tuple[int, bytes, bytes],
        temporary: bytes,
        offset: int,
        length: int,
        blocks: bytes = b"",
    ) -> None:
        """Record that the item has copied a range of a file, given as root, path and name.

        `blocks` contains the digests of the range if the copy is signed.
        """
        self.add(RangeRecord(self.keys.file(*file), temporary, offset, length, blocks))

    def end_item(self, floor: int) -> int:
        """End the item and return the epoch of its records.

        The epoch is the current one, or `floor` if that is later.
        """
        if not self._records:
            return max(self.epoch, floor)
        epoch = self.journal.add([record() for record in self._records], floor)
        self._records.clear()
        return epoch

    def add_created_directory(self, root: int, path: bytes) -> None:
        """Record that a directory will be created with a mode that is corrected at the end."""
        self.journal.add([CreatedDirectoryRecord(self.keys.directory(root, path))], now=True)

    # ---- epochs ----------------------------------------------------------------

    def enter(self, epoch: int) -> None:
        super().enter(epoch)
        self.journal.enter(epoch)

    def sync(self) -> None:
        """Write the pending records, and then flush the file systems."""
        self.journal.flush()
        super().sync()

    def close(self) -> None:
        """Write pending records and close everything."""
        self.journal.leave()
        super().close()
        os.close(self._fd)
