"""`--error-log` writes a line of JSON for each failed entry; `--retry-from` retries these entries.

`pcircle.jobs.failures` describes how lines reach the file. A line contains text for people. It also
contains percent-encoded data by which a program finds the entry again: the absolute paths of the
SRC and of its copy, and the entry's path below both.

A log is not trusted. If a line is malformed, belongs to other roots or contains a path that could
lead out of the roots, the run is refused. `pcircle.fs.directories` ensures that no entry is reached
through a symbolic link.

The path in a line is the one for which the system call failed: that of the entry or of its copy.
Tasks report a failure by the source path and the operation. If the operation concerned the copy,
this module composes the path of the copy for the message.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from pcircle.cli.inputs import open_input
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.entry_errors import COLLISION
from pcircle.fs.lists import Lists, record_of, sort
from pcircle.fs.sorting import pieces, sorted_records
from pcircle.jobs.failures import Failure, LogLine, decode, encode, log_line
from pcircle.ops.copy.tree.items import DIRECTORY, CopyRoot, Notice

_OF_COPY = " the copy of"
# Operations on "the copy of PATH" that are worded differently if the path is that of the copy.
_WORDS = {
    "reach": "open",
    "finish": "close",
    "rename": "rename the copy to",
}
_OF_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EOPNOTSUPP)


def with_path(failure: Failure, roots: Sequence[CopyRoot]) -> Failure:
    """Return the failure with the path for which the system call failed."""
    if failure.kind == COLLISION:  # two sources collide, and the user must rename one of them
        return msgspec.structs.replace(failure, doing="copy")
    trying, of_copy, remainder = f"{failure.doing} ".partition(f"{_OF_COPY} ")
    if failure.doing == "read the existing copy of":
        trying, of_copy, remainder = "read existing", _OF_COPY, ""
    elif trying == "copy " and failure.errno in _OF_WRITES:
        trying, of_copy = "write", _OF_COPY
    if not of_copy:
        return failure
    target = roots[failure.root].target_shown
    path = os.path.join(target, failure.entry) if failure.entry else target
    doing = f"{_WORDS.get(trying, trying)} {remainder}".rstrip()
    return msgspec.structs.replace(failure, path=path, doing=doing)


_KEY_BYTES = 8


class CopyLogLine(LogLine, frozen=True):
    """A line of the log, with the absolute paths of the SRC and of its copy.

    Like `entry`, the path below both, they are percent-encoded.
    """

    source: str
    target: str


class CopyLineFormatter:
    """Formats the lines of failures on the rank on which they occur."""

    def __init__(self, roots: Sequence[CopyRoot], directory: bytes) -> None:
        self._roots = roots
        self._sides = [tuple(map(encode, sides(root, directory))) for root in roots]

    def of(self, notice: Notice) -> bytes:
        """Return the line of a notice, or nothing if it is not a failure."""
        return self._line(notice) if isinstance(notice, Failure) else b""

    def _line(self, failure: Failure) -> bytes:
        source, target = self._sides[failure.root]
        plain = msgspec.structs.asdict(log_line(with_path(failure, self._roots)))
        line = CopyLogLine(**plain, source=source, target=target)
        return msgspec.json.encode(line) + b"\n"


def sides(root: CopyRoot, directory: bytes) -> tuple[bytes, bytes]:
    """Return the absolute paths of a SRC and of its copy. Together they identify a root."""
    return (
        os.path.normpath(os.path.join(directory, root.source_shown)),
        os.path.normpath(os.path.join(directory, root.target_shown)),
    )


class RetryEntry(msgspec.Struct, frozen=True):
    """An entry to retry: the paths of its SRC and of the copy, and its path below both."""

    source: bytes
    target: bytes
    entry: bytes


def read_log(path: str) -> Iterator[RetryEntry]:
    """Yield the entries of a log. Raise UsageError if the log is invalid."""
    shown = show(os.fsencode(path))
    try:
        with open_input(path) as stream:
            for number, line in enumerate(pieces(stream, b"\n"), 1):
                if line.strip():
                    yield _read_line(line, f"line {number} of '{shown}'")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--retry-from: cannot read '{shown}': {reason}") from None


def _read_line(data: bytes, where: str) -> RetryEntry:
    try:
        line = msgspec.json.decode(data, type=CopyLogLine)
        failed = RetryEntry(decode(line.source), decode(line.target), decode(line.entry))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        what = f"{where} does not describe a failed entry"
        raise UsageError(f"--retry-from: {what}: {error}") from None
    parts = failed.entry.split(b"/") if failed.entry else []
    if b"\0" in failed.entry or not {b"", b".", b".."}.isdisjoint(parts):
        raise UsageError(f"--retry-from: {where} names no path below SRC: '{show(failed.entry)}'")
    return failed


def select(failed: Iterable[RetryEntry], roots: Sequence[CopyRoot], directory: bytes) -> Lists:
    """Return the lists of entries to retry. Raise UsageError if an entry has another root."""
    keyed = sorted_records(_keyed(failed, roots, directory))
    by_root = groupby(keyed, key=lambda record: record[:_KEY_BYTES])
    return sort((int(key, 16), (record[_KEY_BYTES:] for record in group)) for key, group in by_root)


def _keyed(
    failed: Iterable[RetryEntry], roots: Sequence[CopyRoot], directory: bytes
) -> Iterator[bytes]:
    """Yield the records of the entries, each preceded by the number of its root."""
    numbers = {sides(root, directory): number for number, root in enumerate(roots)}
    for entry in failed:
        number = numbers.get((entry.source, entry.target))
        if number is None:
            raise UsageError(
                "--retry-from: the log belongs to a different copy, from "
                f"'{show(entry.source)}' to '{show(entry.target)}'"
            )
        if entry.entry and roots[number].kind != DIRECTORY:
            raise UsageError(f"--retry-from: '{show(entry.source)}' is no longer a directory")
        yield b"%0*x" % (_KEY_BYTES, number) + record_of(entry.entry, whole=True)
