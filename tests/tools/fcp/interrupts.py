"""Copies that are interrupted after a part of them was committed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pcircle.ops.checkpoint.journal import (
    COMMIT,
    JournalFrame,
    NamesRecord,
    RangeRecord,
    RecordKeys,
    SubtreeRecord,
    read_frames,
    read_records,
)
from pcircle.ops.checkpoint.store import Checkpoint
from tests.tools.fcp.running import Launcher, Run

# A copy of some thousand files, or of a file of 64 MiB, takes at least four seconds, of which the
# first suffices for a commit: the watching process may wait that long for a processor.
SLOWLY = ("--ops-limit", "1000", "--bwlimit", "16M", "--checkpoint-interval", "0.1")


def checkpoints(place: bytes) -> list[bytes]:
    """Return the checkpoints in a directory."""
    return [place + b"/" + n for n in os.listdir(place) if n.startswith(b".fcp-checkpoint-")]


def temporary_in(directory: bytes) -> list[bytes]:
    """Return the temporary files in a directory, except marks and checkpoints."""
    found = [name for name in os.listdir(directory) if name.startswith(b".fcp-")]
    return [name for name in found if not name.startswith((b".fcp-mark-", b".fcp-checkpoint-"))]


def interrupt(
    launcher: Launcher,
    place: bytes,
    *arguments: str | bytes,
    number: signal.Signals = signal.SIGKILL,
    when: Callable[[], bool] | None = None,
) -> bytes:
    """Start a slow copy and end it after a commit; return its checkpoint."""
    with Run(launcher, *SLOWLY, *arguments) as run:
        deadline = time.monotonic() + 60
        while not (is_committed(place) if when is None else when()):
            assert run.process.poll() is None, "the copy was faster than its first epoch"
            assert time.monotonic() < deadline
            time.sleep(0.05)  # polling costs more than the copy
        run.kill(number)
        finished = run.finish()
        assert finished.code != 0
        assert run.wait_until_gone() == []
    (found,) = checkpoints(place)
    return found


_MARK = re.compile(rb"fcpC.{4}(.{8})", re.DOTALL)


def is_committed(place: bytes) -> bool:
    """Return whether a checkpoint in a directory has a commit with completed work.

    At the first or second commit all work may belong to items that are still running.
    """
    return max(_marks(place), default=0) > 1 and any(committed(place))


def _marks(place: bytes) -> list[int]:
    """Return the number of commits of each journal in a directory; a commit has a mark per rank."""
    try:
        return [
            len(set(_MARK.findall(Path(os.fsdecode(checkpoint + b"/" + name)).read_bytes())))
            for checkpoint in checkpoints(place)
            for name in os.listdir(checkpoint)
            if name.startswith(b"journal-")
        ]
    except FileNotFoundError:
        return []  # it is being created, or has just ended


class Committed(NamedTuple):
    """The numbers of completed directories, names and parts of large files."""

    directories: int
    names: int
    parts: int


def committed(place: bytes, *, skipped: int = 0) -> Committed:
    """Return the committed work of the copy with its checkpoint in `place`; nothing after its end.

    `skipped` frames at the start of each journal are ignored.
    """
    try:
        return read_committed(place, skipped=skipped)
    except FileNotFoundError:
        return Committed(0, 0, 0)


def read_committed(place: bytes, *, skipped: int = 0) -> Committed:
    """Return the committed work; FileNotFoundError if the copy ends meanwhile."""
    directories: set[bytes] = set()
    names = parts = 0
    for path in checkpoints(place):
        found = Checkpoint.find(path)
        if found is None:
            continue
        found.close()
        if found.header is None:
            continue  # it is being created
        keys, runs = RecordKeys(found.header.secret), defaultdict[bytes, list[JournalFrame]](list)
        for name in os.listdir(path):
            if name.startswith(b"journal-"):
                fd = os.open(path + b"/" + name, os.O_RDONLY)
                run = runs[name.split(b"-")[1]]
                frames = [
                    frame for frame in read_frames(fd, keys) if isinstance(frame, JournalFrame)
                ]
                run += frames[skipped:]
                os.close(fd)
        for record in chain.from_iterable(map(records_of, runs.values())):
            if isinstance(record, SubtreeRecord):
                directories.add(record.key)
            elif isinstance(record, NamesRecord):
                names += len(record.hashes) // 8
            elif isinstance(record, RangeRecord):
                parts += 1
    return Committed(len(directories), names, parts)


def records_of(frames: list[JournalFrame]) -> Iterator[object]:
    """Return the committed records of one run's journals."""
    last = max(
        (journal_frame.epoch for journal_frame in frames if journal_frame.magic == COMMIT),
        default=0,
    )
    for frame in frames:
        if frame.magic != COMMIT and frame.epoch <= last:
            yield from (record for _, _, record in read_records(frame.payload))
