"""What a collective operation is done to, and where its decision is recorded.

A `Store` is one rank's part of what all hold together. It does each change in two steps, so that
the first can be undone: what is prepared survives the process and is seen by nobody.

A decision is a file that exists or not, made at once and whole: whoever makes it first has
decided. The coordinator does so when all are ready. If he is lost, those who wait for his word
decide themselves that nothing comes of it, unless his decision is there: then they do what it says.
So nobody waits for one who is dead, and no two act differently, as long as they reach the
directory. Who can't reach it stays in doubt, shows nothing, and asks again when it is next started.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from pcircle.collective.messages import Op
from pcircle.core.writing import write_all

_COMMIT, _UNDO = b"commit\n", b"undo\n"


class Store(Protocol):
    """One rank's part. `Refused`, or OSError, is why it takes no part in an operation."""

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Get ready to do it, whatever happens to this process; a value for the requester."""

    def look(self, what: bytes) -> bytes:
        """Answer a question, which changes nothing."""

    def commit(self, op: Op) -> None:
        """Show what was prepared. Nothing if that was done before."""

    def undo(self, op: Op) -> None:
        """Forget what was prepared. Nothing if nothing was."""

    def in_doubt(self) -> Iterable[Op]:
        """What was prepared, and neither shown nor undone."""


class Refused(Exception):
    """A store takes no part in an operation; the text says why."""


class Records(Protocol):
    """Where decisions are."""

    def settle(self, op: Op, commit: bool) -> bool | None:
        """Decide, unless it is decided: what stands then. None where that can't be found out."""

    def forget(self, op: Op) -> None:
        """All have done what was decided."""


class Directory:
    """Decisions as files of a directory that all members reach."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def _name(self, op: Op) -> bytes:
        return os.path.join(self._path, b"%d-%d" % op)

    def settle(self, op: Op, commit: bool) -> bool | None:
        """See `Records`. The decision is on disk when this returns."""
        name = self._name(op)
        stood = commits = False
        with suppress(OSError):  # where nothing can be written another's decision may stand
            commits = self._decide(name, _COMMIT if commit else _UNDO) and commit
            stood = True
        try:
            with open(name, "rb") as file:
                decided = file.read() == _COMMIT
            self._sync()  # also where it is another's
        except FileNotFoundError:
            # Somebody has forgotten it since, as long as this rank asks only what came to nothing.
            return False if stood and not commits else None
        except OSError:
            return None
        return decided

    def _decide(self, name: bytes, decision: bytes) -> bool:
        """Make the record; false if there is one. OSError."""
        # A name of its own: who wrote into another's file might write into the record.
        temporary = b"%b.%b" % (name, os.urandom(8).hex().encode())
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                write_all(fd, decision)
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                os.link(temporary, name)
            except FileExistsError:
                return False
            return True
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def _sync(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def forget(self, op: Op) -> None:
        """See `Records`."""
        with suppress(OSError):  # it says what is so
            os.unlink(self._name(op))
