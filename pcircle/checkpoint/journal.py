"""What a rank has done, on disk: the journal's records, how they are framed, written and read.

The ranks of a node append to a file of their own. A record says that something
is done: a directory and its subtree, names of one directory, a range of a large
file. Which rank did it is no matter, so work that was stolen needs no special
case: what is done is what any journal says.

A journal may claim only what is on disk. Every frame of records has an epoch
(`pcircle.circle.epochs`), that of all its records, and every commit is
marked; a frame counts only if its epoch, or a later one of the same run, is
marked as committed in any of the run's journals. So records are written as
they come, in bounded memory, and come to count all at once. Nothing is ever
rewritten: a crash costs what came after the last mark.

The bytes, all integers little-endian:

    frame   := magic (4)  length (u32)  epoch (u64)  check (u64)  payload (length)
    magic   := "fcpR" for records, "fcpC" for a commit of the epoch
    check   := XXH3-64, seeded with the checkpoint's secret, of magic .. epoch and payload
    payload := of records: { length (u32)  record }*; of a commit: rank and its counts
    record, rank and counts := MessagePack

Directories are named by 16 bytes of keyed BLAKE2b of root and path, names in
them by 8 bytes of seeded XXH3-64: neither can be foreseen by who names the
files, and a record of a deep directory is no longer than of another.
`docs/journal-format.rst` has an example.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import msgspec
import xxhash

from pcircle.checkpoint.blake import blake2b
from pcircle.checkpoint.end import End, JournalEnd
from pcircle.errors import NoSpace
from pcircle.fs.directories import HOLDER
from pcircle.guards import require
from pcircle.writing import write_at

RECORDS, COMMIT = b"fcpR", b"fcpC"
_HEAD = struct.Struct("<4sIQQ")
_LENGTH = struct.Struct("<I")
_MAX_BYTES = 16 << 20  # of a frame's payload: a greater length is damage, or malice
_RESERVED_BYTES = 256 << 10  # ahead of what is written, by a rank of few
_LEAST_RESERVED_BYTES = 16 << 10  # by one of any number
_TOGETHER_BYTES = 256 << 20  # by all ranks, while that is enough for each
_FRAMES = 4  # that are reserved
_MARK_BYTES = 4 << 10  # for the mark of a commit, and what else comes with a frame
HASH_BYTES = 8
# Of a file system that can't reserve, under a C library that does not do it by writing.
_NOT_HERE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Counts: TypeAlias = "tuple[int, ...]"
"""What the tool counts, in a row: in memory, where all ranks are of one version."""
Named: TypeAlias = "dict[str, int]"
"""What the tool counts, by name, as it is on disk; what is not there is 0.

Of names that are unknown the reader takes no notice: another version has counted more.
"""


class Subtree(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A directory and all below it. `counts` are its part of the job's.

    `made` is the copy's inode, `changed` the time of its change in ns: as long as it has these
    nobody has put anything there or removed it. If the copy is signed it has a `digest`, and all
    that is below are `signed` entries.
    """

    key: bytes
    counts: Named
    made: int
    changed: int
    digest: bytes = b""
    signed: int = 0


class Names(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """Names of one directory, as hashes in a row; their packed `entries` if the copy is signed.

    `made` is what the directory's copy is known by: in another one nothing of it is done.
    """

    key: bytes
    hashes: bytes
    counts: Named
    made: int
    entries: bytes = b""


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """A large file was begun under a temporary name, whose inode is `made`.

    `key` is that of the file itself, `where` that of its temporary one.
    `source` is the version of the source, as of `Stamp.version`.
    """

    key: bytes
    where: bytes
    temporary: bytes
    made: int
    source: tuple[int, int, int, int]


class Part(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """A range of a large file was copied into the temporary one; with digests of its blocks."""

    key: bytes
    temporary: bytes
    offset: int
    length: int
    blocks: bytes = b""


class Inode(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """The copy of an inode of several names, made under this one; `made` is the copy's mark.

    `source` is what it is a copy of, as of `Stamp.version`.
    """

    key: bytes
    root: int
    path: bytes
    name: bytes
    made: int
    source: tuple[int, int, int, int]
    seal: bytes = b""  # kind and digest, if the copy is signed


class Made(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """A directory was made by the job. Counts although its epoch was not committed."""

    key: bytes


Record: TypeAlias = Subtree | Names | Begun | Part | Inode | Made


def add_named(a: Named, b: Named) -> Named:
    """Counts of two parts together."""
    return {name: a.get(name, 0) + b.get(name, 0) for name in a | b}


def add_counts(a: Counts, b: Counts) -> Counts:
    """Counts of two parts together; a part may have none."""
    return tuple(map(sum, zip(a, b, strict=True))) if a and b else a or b


def reserved_bytes(ranks: int) -> int:
    """How much each of so many ranks reserves: 256 MiB of them all, but enough for a commit."""
    return max(_LEAST_RESERVED_BYTES, min(_RESERVED_BYTES, _TOGETHER_BYTES // ranks))


def journal_name(run: int, rank: int) -> bytes:
    """The name of the journal that a rank has made."""
    return b"journal-%04d-%d" % (run, rank)


class Keys:
    """Names for what is recorded, by a checkpoint's secret of 8 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._seed = int.from_bytes(secret, "little")

    def directory(self, root: int, path: bytes) -> bytes:
        """A directory's key."""
        return self._key(b"d", b"%d/%b" % (root, path))

    def file(self, root: int, path: bytes, name: bytes) -> bytes:
        """The key of a file that has records of its own."""
        return self._key(b"f", b"%d/%b/%b" % (root, path, name))

    def inode(self, file_system: int, inode: int) -> bytes:
        """An inode's key."""
        return self._key(b"i", b"%d/%d" % (file_system, inode))

    def _key(self, kind: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=16, key=self._secret, person=kind).digest()

    def names(self, names: Sequence[bytes]) -> bytes:
        """The hashes of names, in a row."""
        hash_, seed = xxhash.xxh3_64_intdigest, self._seed
        hashes = [hash_(name, seed) for name in names]
        return struct.pack(f"<{len(hashes)}Q", *hashes)

    def are_of(self, names: Sequence[bytes], hashes: bytes) -> bool:
        """Whether hashes in a row are those of these names, in any order."""
        each = struct.Struct("<Q")
        return sorted(each.iter_unpack(self.names(names))) == sorted(each.iter_unpack(hashes))

    def check(self, head: bytes, payload: bytes) -> int:
        """A frame's checksum; `head` is what stands before it."""
        checksum = xxhash.xxh3_64(head, self._seed)
        checksum.update(payload)
        return checksum.intdigest()


def frame(keys: Keys, magic: bytes, epoch: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    head = _HEAD.pack(magic, len(payload), epoch, 0)[:-8]
    return head + keys.check(head, payload).to_bytes(8, "little") + payload


class Journal:
    """Where a rank's records go. Any thread may use it. NoSpace if it can't be written.

    The ranks of a node have one file, if they are of a job with a `token`; it is named by the first
    of them that has something to write. `directory_fd` is the checkpoint's.

    Space is reserved ahead, `reserved_bytes` for each rank at a time, and before less is left of it
    than a commit of all takes: a full disk must not keep from the journal what a full disk
    interrupts. So frames are as large as there is space for them.
    """

    def __init__(
        self,
        directory_fd: int,
        run: int,
        rank: int,
        keys: Keys,
        reserved_bytes: int = _RESERVED_BYTES,
        token: bytes = b"",
    ) -> None:
        self.committed = 0
        self.bytes = 0  # up to which this rank has written
        self._directory_fd = directory_fd
        self._run = run
        self._rank = rank
        self._keys = keys
        self._encode = msgspec.msgpack.Encoder().encode
        self._lock = threading.Lock()
        self._end = JournalEnd(token, run)
        self._fd: int | None = None
        self._is_used = self._was_reserved = False
        self._of_share = 0  # what was written of it since no more could be reserved
        self._ahead_bytes = reserved_bytes
        self._frame_bytes = reserved_bytes // _FRAMES
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_epoch = 0
        self._epoch = 1  # which the rank is in

    def reserve(self) -> None:
        """Make the file, with space for what is written first; not if there is none. Once."""
        if not self._was_reserved:
            self._was_reserved = True
            with self._lock, suppress(NoSpace):
                self._write(b"")

    def enter(self, epoch: int) -> None:
        """What is added from now on is of this epoch, or of a later one."""
        # Without the lock, which who has it may keep for long: what it adds is there at `flush`.
        self._epoch = epoch

    def add(self, records: Sequence[Record], floor: int = 0, *, now: bool = False) -> int:
        """Append records that count together, not before the epoch `floor`; which one it is.

        `now`: whatever becomes of this process.
        """
        encoded = [self._encode(record) for record in records]
        with self._lock:
            # Under the lock: the flush that this epoch's commit relies on is yet to come.
            epoch = max(self._epoch, floor)
            if epoch != self._pending_epoch:
                self._flush()  # or these would count no sooner than what they are written with
                self._pending_epoch = epoch
            for data in encoded:
                self._pending.append(_LENGTH.pack(len(data)))
                self._pending.append(data)
                self._pending_bytes += len(data) + _LENGTH.size
            if now or self._pending_bytes >= self._frame_bytes:
                self._flush()
            return epoch

    def flush(self) -> None:
        """Write what was added."""
        with self._lock:
            self._flush()

    def commit(self, epoch: int, counts: Named) -> None:
        """Mark that the epoch is committed, and bring it to disk. `counts` are this rank's.

        A rank that has neither done nor counted anything has no journal: the marks of others do.
        """
        with self._lock:
            if not (self._is_used or self._pending or counts):
                return
            self._flush()
            mark = self._encode((self._rank, counts))
            self._write(frame(self._keys, COMMIT, epoch, mark))
            self.committed = epoch
            fd = os.dup(require(self._fd))  # it may be closed while others are waited for
        try:
            try:
                self._end.sync(lambda: os.fdatasync(fd))
            finally:
                os.close(fd)
        except OSError as error:
            raise _cannot(error) from error

    def close(self) -> None:
        """Write what was added, as far as possible, and close the file.

        It is opened again for what may come: an abort as late as the ranks' accounts brings a
        commit. NoSpace if it cannot be closed, as on NFS without quota: a file system that loses
        what was written to a journal cannot be relied on.
        """
        with self._lock:
            with suppress(NoSpace):  # it was not committed anyhow
                self._flush()
            fd, self._fd = self._fd, None
            if fd is not None:
                try:
                    os.close(fd)
                except OSError as error:
                    raise _cannot(error) from error

    def leave(self) -> None:
        """Close it for good. What was committed is on disk, whatever becomes of the rest."""
        with suppress(NoSpace):
            self.close()
        self._end.close()

    def _flush(self) -> None:
        if self._pending:
            payload = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._write(frame(self._keys, RECORDS, self._pending_epoch, payload))

    def _write(self, data: bytes) -> None:
        try:
            with self._end.locked() as end:
                fd = self._opened(end)
                begin = end.bytes
                until = begin + len(data)
                self._make_room(fd, end, until)
                # Before it is written: should this rank die, nobody writes into what it has begun.
                end.bytes = until
            try:
                self.bytes = begin + write_at(fd, data, begin)
            except OSError:
                self._give_back(fd, begin, until)
                raise
        except OSError as error:
            raise _cannot(error) from error

    def _give_back(self, fd: int, begin: int, until: int) -> None:
        """Have no half of a frame there, which would be taken for damage."""
        with suppress(OSError), self._end.locked() as end:
            if end.bytes == until:
                end.bytes = begin
            else:
                write_at(fd, bytes(until - begin), begin)

    def _opened(self, end: End) -> int:
        if self._fd is None:
            # To be read as well: so the C library reserves where the file system can't.
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            if not end.maker:
                flags |= os.O_CREAT | os.O_EXCL
            rank = end.maker - 1 if end.maker else self._rank
            name = journal_name(self._run, rank)
            self._fd = os.open(name, flags, 0o600, dir_fd=self._directory_fd)
            end.maker = rank + 1
        return self._fd

    def _make_room(self, fd: int, end: End, until: int) -> None:
        """Reserve space if less than each rank's share would be left behind `until`. OSError.

        If there is none, what was reserved must do: this rank may use its own share, and has none
        if it is a new one.
        """
        ranks = end.ranks + (not self._is_used)
        share = self._frame_bytes + _MARK_BYTES
        if until + ranks * share > end.reserved_bytes:
            ahead = until + ranks * self._ahead_bytes
            try:
                os.posix_fallocate(fd, end.bytes, ahead - end.bytes)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    self._of_share += until - end.bytes
                    if not self._is_used or self._of_share > share or until > end.reserved_bytes:
                        raise
                    return
            end.reserved_bytes = ahead
        self._of_share = 0
        self._is_used, end.ranks = True, ranks


def _cannot(error: OSError) -> NoSpace:
    return NoSpace(f"cannot write the checkpoint: {error.strerror}")


class Frame(NamedTuple):
    """A frame that was read: its magic, its epoch, and where its payload lies."""

    magic: bytes
    epoch: int
    offset: int
    payload: bytes


class Damage(NamedTuple):
    """Bytes of a journal that are no frame."""

    offset: int
    length: int


def read_frames(fd: int, keys: Keys) -> Iterator[Frame | Damage]:
    """The frames of a journal, in order, and what is damaged between them.

    Zeros are no damage: space that is reserved, or that a rank that died had taken. OSError.
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
            yield Damage(offset, after - offset)
        offset = after


def _frame_at(fd: int, offset: int, size: int, keys: Keys) -> Frame | None:
    head = os.pread(fd, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        return None
    magic, length, epoch, check = _HEAD.unpack(head)
    if magic not in (RECORDS, COMMIT) or length > min(_MAX_BYTES, size - offset - _HEAD.size):
        return None
    payload = os.pread(fd, length, offset + _HEAD.size)
    if len(payload) < length or keys.check(head[:-8], payload) != check:
        return None
    return Frame(magic, epoch, offset + _HEAD.size, payload)


def _next_frame(fd: int, offset: int, size: int, keys: Keys) -> int:
    """Where the next good frame begins; `size` if there is none."""
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


_decode_record = msgspec.msgpack.Decoder(Record).decode
_decode_mark = msgspec.msgpack.Decoder(tuple[int, dict[str, int]]).decode


def read_records(payload: bytes) -> Iterator[tuple[int, int, Record]]:
    """Offset and length in the payload, and the record, of each.

    ValueError if it holds something else.
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
    """A record. ValueError if it is none, or has an impossible value."""
    record: Record = _decode_record(data)
    if len(record.key) != 16:
        raise ValueError("a key is not of 16 bytes")
    numbers: tuple[int, ...] = ()
    if isinstance(record, Subtree | Names):
        numbers = (*record.counts.values(), record.made >> 1)  # an inode may have all 64 bits
        if isinstance(record, Subtree):
            numbers += (record.signed,)
        if isinstance(record, Names) and len(record.hashes) % HASH_BYTES:
            raise ValueError("hashes are cut short")
    elif isinstance(record, Part):
        numbers = (record.offset, record.length)
    elif isinstance(record, Inode):
        numbers = (record.root, record.made)
        if not is_below(record.path, record.name):
            raise ValueError("a path leads elsewhere")
    if any(number < 0 or number >> 63 for number in numbers):
        raise ValueError("a number is out of range")
    return record


def is_below(path: bytes, name: bytes) -> bool:
    """Whether a directory's path below a root, or a root's holder, and a name in it are such."""
    parts = [] if path in (b"", HOLDER) else path.split(b"/")
    odd = any(part in (b"", b".", b"..") or b"\0" in part for part in (*parts, name))
    return not odd and b"/" not in name


def read_mark(payload: bytes) -> tuple[int, Named]:
    """The rank that marks a commit, and its counts. ValueError if they are none."""
    rank, counts = _decode_mark(payload)
    # A rank may have fewer than none: it takes back what others have counted.
    if rank < 0 or any(abs(number) >> 62 for number in counts.values()):
        raise ValueError("these are no counts")
    return rank, counts
