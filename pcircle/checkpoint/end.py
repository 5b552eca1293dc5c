"""Where the next frame of a journal goes: the end of a file that all ranks of a node write.

A file system on many nodes has to make each file, reserve its space and bring it to disk at each
commit, so a node has one journal for all of its ranks. Each frame has its place before it is
written, and nobody waits for the writing. What a rank that dies has not written are zeros, which no
frame begins with.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pcircle.checkpoint.node import Board
    from pcircle.checkpoint.shared import SharedSync


class End(msgspec.Struct):
    """The end of a journal: who has made it, from 1 on (0: nobody), and how far it goes.

    So many `ranks` write to it.
    """

    maker: int = 0
    bytes: int = 0
    reserved_bytes: int = 0
    ranks: int = 0


class JournalEnd:
    """The end of the journal that the ranks of a node have for a run of the job with this `token`.

    It is this rank's alone if there is none, or nothing can be had in common.
    """

    def __init__(self, token: bytes, run: int) -> None:
        self._token = token
        self._what = f"journal-{run}"
        self._end = End()  # without others
        self._maker = 0
        self._board: Board | None = None
        self._syncs: SharedSync | None = None
        self._was_joined = not token
        self._is_closed = False

    @contextmanager
    def locked(self) -> Iterator[End]:
        """The end, for nobody else meanwhile; what is made of it is kept. OSError."""
        if not self._was_joined:
            from pcircle.checkpoint.node import Board  # a rank alone has no need of it

            self._was_joined = True
            with suppress(OSError):
                self._board = Board(self._token, self._what, len(End.__struct_fields__))
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._board is None:
            yield self._end
            return
        with self._board.locked() as numbers:
            end = End(*numbers.read())
            try:
                yield end
            finally:
                numbers.write(msgspec.structs.astuple(end))
                self._maker = end.maker

    def sync(self, flush: Callable[[], None]) -> None:
        """What was written before this call is on disk after it: `flush` does that, if need be."""
        if self._board is not None and self._syncs is None:
            from pcircle.checkpoint.shared import SharedSync  # few copies last so long

            # Of this very file: who came when its maker had left may have another one.
            what = f"{self._what}-{self._maker}-syncs"
            with suppress(OSError):
                self._syncs = SharedSync(self._token, what, gather_s=0)
        if self._syncs is None:
            flush()
        else:
            self._syncs.sync(flush)

    def close(self) -> None:
        """Let go, for good."""
        self._is_closed = True
        for shared in (self._board, self._syncs):
            if shared is not None:
                shared.close()
        self._board = self._syncs = None
