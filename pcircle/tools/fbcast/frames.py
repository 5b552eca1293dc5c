"""The format of the stream: frames with a type and, for file content, the bytes that follow.

Small files share a chunk, up to some thousand of them, and a large file spans many chunks. Frames
enter and leave directories, so every name is a single component.
"""

from __future__ import annotations

import os
import struct
from typing import TypeAlias

import msgspec

from pcircle.core.timestamps import Timestamp, timestamp

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
        """Return the metadata as a `stat` result, in which fields that are not kept are 0."""
        times = {"st_atime_ns": self.accessed.ns, "st_mtime_ns": self.modified.ns}
        row = (self.mode, 0, 0, 1, self.uid, self.gid, 0, 0, 0, 0)
        return os.stat_result(row, times)


def about(status: os.stat_result, lists: tuple[tuple[str, bytes], ...] = ()) -> About:
    """Return the metadata that a broadcast preserves."""
    accessed, modified = timestamp(status.st_atime_ns), timestamp(status.st_mtime_ns)
    return About(status.st_mode, status.st_uid, status.st_gid, accessed, modified, lists)


class Enter(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A directory. The following frames are inside it, up to the matching `Leave`."""

    name: bytes
    about: About


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """The end of a directory."""


class File(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A regular file with its number, counted from 0.

    `linked` is true if the file has further hard links, which may follow. If `known_digest` is set,
    all nodes already have the content, so no content follows; `known_digest` is its digest.
    """

    name: bytes
    about: About
    size: int
    number: int
    linked: bool = False
    known_digest: bytes = b""


class ContentHeader(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """The header of a piece of file content. Gaps between pieces are holes."""

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
decode = msgspec.msgpack.Decoder(Frame).decode


def packed(frame: Frame) -> bytes:
    """Return the encoded frame with its length in front."""
    data = _encode(frame)
    return LENGTH.pack(len(data)) + data
