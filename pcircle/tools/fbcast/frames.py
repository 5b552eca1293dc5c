"""The stream's form: frames, each a head that says what it is, and of content the bytes behind it.

So small files travel together, some thousand of them in a chunk, and a large one in many chunks.
Directories are entered and left, so that no name is longer than one component.
"""

from __future__ import annotations

import os
import struct
from typing import TypeAlias

import msgspec

from pcircle.core.timestamps import Timestamp, timestamp

LENGTH = struct.Struct(">I")


class About(msgspec.Struct, frozen=True, array_like=True):
    """What an entry has beside its content: as `stat` says, and access control lists."""

    mode: int
    uid: int
    gid: int
    accessed: Timestamp
    modified: Timestamp
    lists: tuple[tuple[str, bytes], ...] = ()

    def status(self) -> os.stat_result:
        """As the kernel would say it; what is not kept is 0."""
        times = {"st_atime_ns": self.accessed.ns, "st_mtime_ns": self.modified.ns}
        row = (self.mode, 0, 0, 1, self.uid, self.gid, 0, 0, 0, 0)
        return os.stat_result(row, times)


def about(status: os.stat_result, lists: tuple[tuple[str, bytes], ...] = ()) -> About:
    """What is kept of an entry."""
    accessed, modified = timestamp(status.st_atime_ns), timestamp(status.st_mtime_ns)
    return About(status.st_mode, status.st_uid, status.st_gid, accessed, modified, lists)


class Enter(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A directory; what follows is in it."""

    name: bytes
    about: About


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """All of the directory has come."""


class File(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A regular file, by its number from 0. It is `linked` if other names may follow.

    Of one that is `kept` each node has the content, so none follows; that is its digest.
    """

    name: bytes
    about: About
    size: int
    number: int
    linked: bool = False
    kept: bytes = b""


class Data(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Content of the file, which follows; what lies between is a hole."""

    offset: int
    length: int


class End(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """All of the file has come."""


class Link(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """A symbolic link."""

    name: bytes
    about: About
    text: bytes


class Hard(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """Another name of the file that came as number `first`, from 0."""

    name: bytes
    first: int


class Close(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """The end of the stream, with the number of entries."""

    entries: int


class Listed(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """Of the list that `--update` compares: the path of a file below the names, and its digest."""

    path: bytes
    size: int
    digest: bytes


Frame: TypeAlias = Enter | Leave | File | Data | End | Link | Hard | Close | Listed

_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Frame).decode


def packed(frame: Frame) -> bytes:
    """A frame as it stands in the stream."""
    data = _encode(frame)
    return LENGTH.pack(len(data)) + data
