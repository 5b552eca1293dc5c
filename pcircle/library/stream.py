"""Results of a job that runs while the program iterates over them.

The job runs on a thread. It pauses while `_MAX_PIECES` pieces of output wait, so memory does not
grow with the number of results. Its other processes are fresh interpreters, because a process with
threads must not be forked.

Under MPI a job must run on the thread that initialized MPI. So it runs to its end first, and rank 0
keeps the output in a file, or in memory while it is small. On the other ranks, the iterator is
empty.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from queue import Full, Queue
from typing import Generic, TypeVar

from pcircle.cli.program import TreeReport
from pcircle.library.call import Cancel
from pcircle.transport.launch import launched

T = TypeVar("T")
Start = Callable[[Callable[[bytes], object], Cancel], TreeReport]
"""Runs the job with a function that receives its output, and a request to stop."""

_MAX_PIECES = 64
_STEP_S = 0.1
_READ_BYTES = 1 << 16
_IN_MEMORY_BYTES = 16 << 20


class Results(Iterator[T], Generic[T]):
    """An iterator over the results of a job; the job starts when the first one is requested.

    `parse` turns a record of the output, without its `end`, into an element. `close` stops the job
    and waits for its end; so does the end of a `with` block. An iterator that is dropped stops the
    job, but does not wait.
    """

    def __init__(
        self,
        start: Start,
        end: bytes,
        parse: Callable[[bytes], T],
        cancel: Cancel | None,
    ) -> None:
        either = _EitherCancel(cancel)
        is_mpi = launched().kind == "mpi"
        self._job = _JobToItsEnd(start, either) if is_mpi else _ThreadedJob(start, either)
        self._elements = (parse(record) for record in _records(self._job.pieces(), end))
        # The collector of cycles may run on a thread of the job; that thread must not wait for the
        # job.
        weakref.finalize(self, either.close)

    def __next__(self) -> T:
        try:
            return next(self._elements)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Results[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def report(self) -> TreeReport:
        """Return the report of the job. Raises RuntimeError until the iterator has ended."""
        if self._job.report is None:
            raise RuntimeError("the report is available only after the last result")
        return self._job.report

    def close(self) -> None:
        """Stop the job, unless it has ended."""
        self._elements.close()
        self._job.end()


def _records(pieces: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the records of an output; its pieces may end within a record."""
    begun = b""
    for piece in pieces:
        *records, begun = (begun + piece).split(end)
        yield from records
    if begun:
        yield begun


class _EitherCancel:
    """A request to stop: by the program, or because the iteration has ended."""

    def __init__(self, cancel: Cancel | None) -> None:
        self._cancel = cancel
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def is_set(self) -> bool:
        return self.is_closed or (self._cancel is not None and self._cancel.is_set())


class _JobToItsEnd:
    """A job that runs to its end before its first piece of output."""

    def __init__(self, start: Start, cancel: _EitherCancel) -> None:
        self.report: TreeReport | None = None
        self._start = start
        self._cancel = cancel

    def pieces(self) -> Iterator[bytes]:
        """Yield the output of the job. Raises the error with which it ends."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            self.report = self._start(file.write, self._cancel)
            file.seek(0)
            yield from iter(lambda: file.read(_READ_BYTES), b"")

    def end(self) -> None:
        """Do nothing, because the job has ended."""


class _ThreadedJob:
    """A job on a thread; its queue ends with None. `report` is set after the last piece."""

    def __init__(self, start: Start, cancel: _EitherCancel) -> None:
        self.report: TreeReport | None = None
        self._start = start
        self._cancel = cancel
        self._result: TreeReport | None = None
        self._error: BaseException | None = None
        self._queue: Queue[bytes | None] = Queue(_MAX_PIECES)
        self._thread: threading.Thread | None = None

    def pieces(self) -> Iterator[bytes]:
        """Start the job, and yield its output. Raises the error with which it ends."""
        self._thread = threading.Thread(target=self._run, name="pcircle-job", daemon=True)
        self._thread.start()
        while (piece := self._queue.get()) is not None:
            yield piece
        if self._error is not None:
            raise self._error
        self.report = self._result

    def end(self) -> None:
        """Stop the job and wait for its end."""
        self._cancel.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._result = self._start(self._put, self._cancel)
        except BaseException as error:
            self._error = error
        self._put(None)

    def _put(self, piece: bytes | None) -> None:
        while not self._cancel.is_closed:
            try:
                return self._queue.put(piece, timeout=_STEP_S)
            except Full:
                continue
