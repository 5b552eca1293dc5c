"""Results of a job that runs while the program takes them.

The job runs on a thread. It pauses while `_MAX_PIECES` pieces of output wait, so memory does not
grow with the number of results. Its other processes are fresh interpreters, because a process with
threads must not be forked.

Under MPI a job must run on the thread that initialized MPI. So it runs to its end first, and rank 0
keeps the output in a file, or in memory while it is small. The other ranks have no elements.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

from pcircle.cli.tree_program import TreeReport
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
    """An iterator over the results of a job, which starts with the first element.

    `parse` turns a record of the output, without its `end`, into an element. `close` stops the job;
    so does the end of a `with` block.
    """

    def __init__(
        self,
        start: Start,
        end: bytes,
        parse: Callable[[bytes], T],
        cancel: Cancel | None,
    ) -> None:
        self._report: TreeReport | None = None
        self._start = start
        self._cancel = _EitherCancel(cancel)
        is_mpi = launched().kind == "mpi"
        self._pieces = self._after_the_job() if is_mpi else self._while_it_runs()
        self._elements = (parse(record) for record in _records(self._pieces, end))

    def __next__(self) -> T:
        return next(self._elements)

    def __enter__(self) -> Results[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def report(self) -> TreeReport:
        """Return the report of the job. Raises RuntimeError before the end of the iterator."""
        if self._report is None:
            raise RuntimeError("the report exists only after the last result")
        return self._report

    def close(self) -> None:
        """Stop the job, unless it has ended."""
        self._elements.close()
        self._pieces.close()

    def _after_the_job(self) -> Generator[bytes, None, None]:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            self._report = self._start(file.write, self._cancel)
            file.seek(0)
            yield from iter(lambda: file.read(_READ_BYTES), b"")

    def _while_it_runs(self) -> Generator[bytes, None, None]:
        job = _Job(self._start, self._cancel)
        try:
            yield from job.pieces()
        finally:
            job.end()
        self._report = job.report


def _records(pieces: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the records of an output, whose pieces may end within a record."""
    begun = b""
    for piece in pieces:
        *records, begun = (begun + piece).split(end)
        yield from records
    if begun:
        yield begun


class _EitherCancel:
    """The request of the program to stop, or the end of the iteration."""

    def __init__(self, cancel: Cancel | None) -> None:
        self._cancel = cancel
        self.is_closed = False

    def is_set(self) -> bool:
        return self.is_closed or (self._cancel is not None and self._cancel.is_set())


class _Job:
    """A job on a thread; its queue ends with None."""

    def __init__(self, start: Start, cancel: _EitherCancel) -> None:
        self.report: TreeReport | None = None
        self._start = start
        self._cancel = cancel
        self._error: BaseException | None = None
        self._queue: Queue[bytes | None] = Queue(_MAX_PIECES)
        self._thread = threading.Thread(target=self._run, name="pcircle-job", daemon=True)
        self._thread.start()

    def pieces(self) -> Iterator[bytes]:
        """Yield the output of the job. Raises the error with which it ends."""
        while (piece := self._queue.get()) is not None:
            yield piece
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Stop the job and wait for its end."""
        self._cancel.is_closed = True
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=_STEP_S)
            except Empty:
                continue
        self._thread.join()

    def _run(self) -> None:
        try:
            self.report = self._start(self._put, self._cancel)
        except BaseException as error:
            self._error = error
        self._put(None)

    def _put(self, piece: bytes | None) -> None:
        while not self._cancel.is_closed:
            try:
                return self._queue.put(piece, timeout=_STEP_S)
            except Full:
                continue
