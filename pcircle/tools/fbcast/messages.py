"""The messages of a broadcast, and the frames of the stream that they carry.

`Message` includes the messages of `pcircle.collective.operation`. The first rank is the reader and
the conductor. The first rank on each host is a *node*; if the destination contains {rank}, every
rank is a node. All nodes receive the same stream of bytes, divided into chunks. Each stream has a
new `attempt` number, so that late messages of an earlier stream can be recognized.

A stream is a sequence of frames. The bytes of a piece of file content follow its frame. A chunk may
contain several thousand small files, and a large file spans many chunks. Because frames enter and
leave directories, every name is a single component.
"""

from __future__ import annotations

import os
import struct
from typing import Final, Literal, TypeAlias

import msgspec

from pcircle.collective.operation import Message as OfCollective
from pcircle.core.units import Timestamp, timestamp

Verb: TypeAlias = Literal["copy", "remove", "check"]
Way: TypeAlias = Literal["chain", "exchange"]


class BroadcastPlan(msgspec.Struct, frozen=True, array_like=True):
    """The parameters of a job, as decided by the first rank.

    `job` is part of the temporary names of this job. `names` are entries in the directory `target`
    on each node, and `folders` states which of them are directories. `records` is a directory that
    all nodes share, in which the file `proof` exists during the job.
    """

    job: str
    verb: Verb
    target: bytes
    names: tuple[bytes, ...]
    folders: tuple[bool, ...] = ()
    records: bytes = b""
    proof: bytes = b""
    update: bool = False
    force: bool = False
    keep: bool = False
    sync: bool = False
    patience_s: float = 60.0


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """A request from the reader to each node to check that it can take part."""

    plan: BroadcastPlan


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The answer of a node to the reader: its host name, and the problem if it cannot take part.

    `completed` means that an earlier job had decided to show the same names, and that this node has
    now shown them. `present` means that all names exist. `exists` is the reason why existing names
    must not be replaced. `unwritable` means that the problem is a full or read-only file system.
    """

    host: str
    problem: str = ""
    exists: str = ""
    completed: bool = False
    present: bool = False
    unwritable: bool = False


class StreamStart(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """The announcement of a stream to each node on its route, which begins with the reader.

    The stream contains files if `files` is set, or otherwise the list that `--update` compares.
    """

    attempt: int
    route: tuple[int, ...]
    way: Way
    files: bool = True


class StreamChunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of a stream with its number, counted from 0, and the digest of its bytes."""

    number: int
    data: bytes
    digest: bytes
    last: bool = False


class Parts(msgspec.Struct, frozen=True, array_like=True, tag="parts"):
    """Chunks, and the places on the route to which the receiver forwards them (`onward`)."""

    attempt: int
    chunks: tuple[StreamChunk, ...]
    onward: tuple[int, ...] = ()


class Acknowledgement(msgspec.Struct, frozen=True, array_like=True, tag="took"):
    """An acknowledgement that all chunks or panels below a number are written and forwarded."""

    attempt: int
    below: int


class Staged(msgspec.Struct, frozen=True, array_like=True, tag="staged"):
    """The result of a stream on a node: its answer, or the problem that stopped it."""

    attempt: int
    problem: str = ""
    said: bytes = b""


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """A heartbeat from a node to the reader, and the reader's reply."""


class StopRequest(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """A request to the reader to stop with this exit code because a rank received a signal."""

    code: int


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """The end of the job on all ranks, with its exit code; nodes remove entries not shown."""

    code: int


Message: TypeAlias = (
    OfCollective
    | Begin
    | Ready
    | StreamStart
    | Parts
    | Acknowledgement
    | Staged
    | Alive
    | StopRequest
    | Finish
)


# ---- frames of the stream ------------------------------------------------------------------------

LENGTH = struct.Struct(">I")


class About(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of an entry: mode, owner, times and access control lists."""

    mode: int
    uid: int
    gid: int
    accessed: Timestamp
    modified: Timestamp
    lists: tuple[tuple[str, bytes], ...] = ()

    def status(self) -> os.stat_result:
        """Return the metadata as a `stat` result, with dummy values for fields not preserved."""
        times = {"st_atime_ns": self.accessed.ns, "st_mtime_ns": self.modified.ns}
        row = (self.mode, 0, 0, 1, self.uid, self.gid, 0, 0, 0, 0)
        return os.stat_result(row, times)


def about(status: os.stat_result, lists: tuple[tuple[str, bytes], ...] = ()) -> About:
    """Return the metadata that a broadcast preserves."""
    accessed, modified = timestamp(status.st_atime_ns), timestamp(status.st_mtime_ns)
    return About(status.st_mode, status.st_uid, status.st_gid, accessed, modified, lists)


class Enter(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A directory, whose contents are the frames up to the matching `Leave`."""

    name: bytes
    about: About


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """The end of a directory."""


class File(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A regular file with its number, counted from 0.

    `linked` is true if the file has several hard links; `Hard` frames for the others may follow. If
    all nodes already have the content, `known_digest` is its digest, and no content follows.
    """

    name: bytes
    about: About
    size: int
    number: int
    linked: bool = False
    known_digest: bytes = b""


class ContentHeader(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """The header of a piece of file content; gaps between pieces are holes."""

    offset: int
    length: int


class FileEnd(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """The end of a file."""


class Link(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """A symbolic link."""

    name: bytes
    about: About
    text: bytes


class Hard(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """A further hard link to the file whose number is `first`."""

    name: bytes
    first: int


class Close(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """The end of the stream, with the number of entries."""

    entries: int


class ListedFile(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """A file in the list that `--update` compares: its path below DST, size and digest."""

    path: bytes
    size: int
    digest: bytes


Frame: TypeAlias = Enter | Leave | File | ContentHeader | FileEnd | Link | Hard | Close | ListedFile

_encode = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.Decoder(Frame).decode


def packed(frame: Frame) -> bytes:
    """Return the encoded frame, preceded by its length."""
    data = _encode(frame)
    return LENGTH.pack(len(data)) + data
