"""Copies that are ended in their middle, once something of them was committed."""

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
# first is enough to commit something: so long may who watches it wait for a processor.
SLOWLY = ("--ops-limit", "1000", "--bwlimit", "16M", "--checkpoint-interval", "0.1")


def checkpoints(place: bytes) -> list[bytes]:
    """The checkpoints in a directory."""
    return [place + b"/" + n for n in os.listdir(place) if n.startswith(b".fcp-checkpoint-")]


def temporary_in(directory: bytes) -> list[bytes]:
    """The temporary files in a directory, but for marks and checkpoints."""
    found = [name for name in os.listdir(directory) if name.startswith(b".fcp-")]
    return [name for name in found if not name.startswith((b".fcp-mark-", b".fcp-checkpoint-"))]


def interrupt(
    launcher: Launcher,
    place: bytes,
    *arguments: str | bytes,
    number: signal.Signals = signal.SIGKILL,
    when: Callable[[], bool] | None = None,
) -> bytes:
    """Start a slow copy and end it once something was committed; returns its checkpoint."""
    with Run(launcher, *SLOWLY, *arguments) as run:
        deadline = time.monotonic() + 60
        while not (is_committed(place) if when is None else when()):
            assert run.process.poll() is None, "the copy was faster than its first epoch"
            assert time.monotonic() < deadline
            time.sleep(0.05)  # to look costs more than the copy
        run.kill(number)
        finished = run.finish()
        assert finished.code != 0
        assert run.wait_until_gone() == []
    (found,) = checkpoints(place)
    return found


_MARK = re.compile(rb"fcpC.{4}(.{8})", re.DOTALL)


def is_committed(place: bytes) -> bool:
    """Whether a checkpoint in a directory has a commit of something.

    Of a first commit, or a second, all that was done may be in items that are still at work.
    """
    return max(_marks(place), default=0) > 1 and any(committed(place))


def _marks(place: bytes) -> list[int]:
    """How many commits each journal in a directory has; of one there is a mark of each rank."""
    try:
        return [
            len(set(_MARK.findall(Path(os.fsdecode(checkpoint + b"/" + name)).read_bytes())))
            for checkpoint in checkpoints(place)
            for name in os.listdir(checkpoint)
            if name.startswith(b"journal-")
        ]
    except FileNotFoundError:
        return []  # it is being made, or has just ended


class Committed(NamedTuple):
    """How many directories, names and parts of large files are done."""

    directories: int
    names: int
    parts: int


def committed(place: bytes, *, skipped: int = 0) -> Committed:
    """What the runs of the copy that is kept in `place` have done; nothing once it has ended.

    As far as it is known without so many frames at the beginning of each journal.
    """
    try:
        return read_committed(place, skipped=skipped)
    except FileNotFoundError:
        return Committed(0, 0, 0)


def read_committed(place: bytes, *, skipped: int = 0) -> Committed:
    """As `committed`; FileNotFoundError as it ends."""
    directories: set[bytes] = set()
    names = parts = 0
    for path in checkpoints(place):
        found = Checkpoint.find(path)
        if found is None:
            continue
        found.close()
        if found.header is None:
            continue  # it is just being made
        keys, runs = RecordKeys(found.header.secret), defaultdict[bytes, list[JournalFrame]](list)
        for name in os.listdir(path):
            if name.startswith(b"journal-"):
                fd = os.open(path + b"/" + name, os.O_RDONLY)
                run = runs[name.split(b"-")[1]]
                frames = [each for each in read_frames(fd, keys) if isinstance(each, JournalFrame)]
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
    """The committed records of one run's journals."""
    last = max((each.epoch for each in frames if each.magic == COMMIT), default=0)
    for frame in frames:
        if frame.magic != COMMIT and frame.epoch <= last:
            yield from (record for _, _, record in read_records(frame.payload))
