"""The tail of a journal file that all ranks of a node append to.

On a parallel file system every file must be created, given reserved space and synced at each
commit, so a node has one journal for all its ranks. Each frame gets its range before it is written,
and no rank waits for the write of another rank. If a rank dies, the unwritten part of its range
contains zeros, and no frame begins with a zero.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pcircle.ops.checkpoint.shared_board import SharedBoard
    from pcircle.ops.checkpoint.shared_sync import SharedSync


class TailState(msgspec.Struct):
    """The state of a journal's tail; `creator` is the rank that created the file plus 1, or 0.

    `bytes` is the end of the allocated frames, and `ranks` is the number of ranks that write to it.
    """

    creator: int = 0
    bytes: int = 0
    reserved_bytes: int = 0
    ranks: int = 0


class JournalTail:
    """The tail of the journal that a node's ranks share in a run of the job with this `token`.

    The tail belongs to this rank alone if there is no token or if sharing fails.
    """

    def __init__(self, token: bytes, run: int) -> None:
        self._token = token
        self._name = f"journal-{run}"
        self._state = TailState()  # if not shared
        self._creator = 0
        self._board: SharedBoard | None = None
        self._syncs: SharedSync | None = None
        self._was_joined = not token
        self._is_closed = False

    @contextmanager
    def locked(self) -> Iterator[TailState]:
        """Lock the tail and yield its state; changes to the state are stored. OSError."""
        if not self._was_joined:
            from pcircle.ops.checkpoint.shared_board import (
                SharedBoard,  # not needed for a single rank
            )

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
            from pcircle.ops.checkpoint.shared_sync import SharedSync  # most copies end before

            # The creator is part of the name: a rank that arrives after the creator has left may
            # use another file.
            name = f"{self._name}-{self._creator}-syncs"
            with suppress(OSError):
                self._syncs = SharedSync(self._token, name, gather_s=0)
        if self._syncs is None:
            flush()
        else:
            self._syncs.sync(flush)

    def close(self) -> None:
        """Release the shared memory for good."""
        self._is_closed = True
        for shared in (self._board, self._syncs):
            if shared is not None:
                shared.close()
        self._board = self._syncs = None
