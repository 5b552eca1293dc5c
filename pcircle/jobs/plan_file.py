"""Read the plans that `--plan FILE` writes and `--apply FILE` carries out.

A plan is a file of JSON lines. The first line names the tool and the PATHs. The last line contains
the number of entries; if it is missing, writing the plan was interrupted, and the plan is refused.
Each of the other lines describes an entry on which the tool would act. It contains the number of
its PATH, the percent-encoded path below that PATH, and kind, inode, size and modification time.
Each line ends with a checksum (`pcircle.jobs.plan_output`). All checksums are verified before the
first action.

The run that carries out a plan converts it to a list (`pcircle.fs.lists`) and walks only the
entries in that list. So a plan may be larger than memory, and its entries are divided among the
ranks. The list stores the expected state of each entry, its *mark*, in a record in which the mark
follows an empty name, because no entry has an empty name. In the names that visitors receive, the
mark follows a slash, which no name contains. Tools may define longer marks.

The mark of a directory contains only its inode, because actions on its entries change its times.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError, require
from pcircle.fs.safe_open import OTHERS_WRITE, reading
from pcircle.fs.scan import Block, PathListSlice
from pcircle.jobs.failures import decode, encode
from pcircle.walk.attributes import LETTERS
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists

_VERSION = 2
_NUL, _SLASH = b"\0", b"/"
_ENTRY = msgspec.json.Decoder(tuple[int, str, str, str])
_MAX_LINE_BYTES = 64 << 20

Check: TypeAlias = "Callable[[int, bytes], object]"
"""Raises ValueError if the tool cannot use this mark of an entry below this root number."""


class PlanHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a plan. Paths are percent-encoded; `roots` contains the fields of `Root`.

    `more` contains the tool's own fields.
    """

    plan: int
    tool: str
    directory: str
    roots: tuple[tuple[str, str, str, str], ...]
    more: dict[str, Any] = {}


class PlanTrailer(msgspec.Struct, frozen=True):
    """The last line of a plan: the numbers of entries in the plan and of entries found."""

    entries: int
    found: int


class LoadedPlan(msgspec.Struct, frozen=True):
    """A verified plan. `marks` contains the marks of roots that are not directories.

    `cut` is true if the file ends early, as an undo record does if its run was killed or the disk
    was full.
    """

    roots: tuple[Root, ...]
    directory: bytes
    marks: tuple[bytes, ...]
    lists: Lists
    tail: PlanTrailer
    more: dict[str, Any] = {}
    cut: bool = False


def mark_of(status: os.stat_result) -> bytes:
    """Return the mark of an entry: kind and inode and, except for directories, size and time."""
    kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
    if kind == "d":
        return b"d,%d" % status.st_ino
    return b"%b,%d,%d,%d" % (kind.encode(), status.st_ino, status.st_size, status.st_mtime_ns)


def check_mark(root: int, mark: bytes) -> None:
    """Raise ValueError if a mark does not have the form that `mark_of` returns."""
    kind, *numbers = mark.split(b",")
    known = kind.decode() in (*LETTERS.values(), "?")
    if not known or len(numbers) != (1 if kind == b"d" else 3):
        raise ValueError("not a mark")
    for number in numbers:
        int(number)


def head(
    tool: str, roots: Sequence[Root], directory: bytes, more: dict[str, Any] | None = None
) -> bytes:
    """Return the first line of a plan."""
    fields = ((root.holder, root.name, root.shown, root.within) for root in roots)
    texts = [(encode(a), encode(b), encode(c), encode(d)) for a, b, c, d in fields]
    return _line(PlanHeader(_VERSION, tool, encode(directory), tuple(texts), more or {}))


def entry(root: int, path: bytes, mark: bytes) -> bytes:
    """Return the line of an entry."""
    return _line((root, encode(path), mark.decode()))


def tail(entries: int, found: int) -> bytes:
    """Return the last line of a plan."""
    return _line(PlanTrailer(entries, found))


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


# ---- reading -----------------------------------------------------------------------------------


def read_plan(
    name: str, tool: str, check: Check = check_mark, *, may_be_cut: bool = False
) -> LoadedPlan:
    """Read and verify a plan; `check` raises ValueError for marks that the tool cannot use.

    Raises UsageError if the file is not a plan for this tool, is damaged or, unless `may_be_cut`,
    is incomplete.
    """
    shown = show(os.fsencode(name))
    try:
        with open(reading(os.fsencode(name), piped=True), "rb") as stream:
            _refuse_foreign(os.fstat(stream.fileno()))
            reader = _Reader(stream, tool, check, may_be_cut=may_be_cut)
            lists = _sorted(reader.records(), len(reader.roots))
            first = reader.first
            directory = decode(first.directory)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"--apply: cannot read '{shown}': {reason}") from None
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"--apply: '{shown}' is not a plan for {tool}: {error}") from None
    return LoadedPlan(
        reader.roots, directory, tuple(reader.marks), lists, reader.last, first.more, reader.is_cut
    )


class _Reader:
    """Reads and verifies the lines of a plan in order. Methods raise ValueError or OSError."""

    def __init__(self, stream: IO[bytes], tool: str, check: Check, *, may_be_cut: bool) -> None:
        self._stream, self._check, self._may_be_cut = stream, check, may_be_cut
        from pcircle.jobs.plan_output import Checksums  # few runs read a plan

        self._checksums = Checksums()
        self._number = 0  # number of the current line
        line = self._line()
        self.first = msgspec.json.decode(line, type=PlanHeader)
        if (self.first.plan, self.first.tool) != (_VERSION, tool):
            raise ValueError(f"it is a plan for {self.first.tool}, version {self.first.plan}")
        self._verify(line)
        roots = (tuple(map(decode, fields)) for fields in self.first.roots)
        self.roots = tuple(Root(a, b, c, d) for a, b, c, d in roots)
        self.marks = [b""] * len(self.roots)
        self.last = PlanTrailer(0, 0)
        self.is_cut = False

    def records(self) -> Iterator[bytes]:
        """Yield the records of all entries.

        When the last one has been yielded, all lines have been verified.
        """
        count = 0
        while True:
            line = self._line()
            if _is_cut(line):
                if not self._may_be_cut:
                    raise ValueError("it is not complete")
                self.is_cut = True
                return
            self._verify(line)
            if not line.startswith(b"["):
                self.last = msgspec.json.decode(line, type=PlanTrailer)
                break
            number, text, mark, _ = _ENTRY.decode(line)
            count += 1
            if not 0 <= number < len(self.roots):
                raise ValueError(f"it has no PATH {number}")
            self._check(number, mark.encode())
            if self.roots[number].name:
                self.marks[number] = mark.encode()
            else:
                yield b"%010d" % number + _record(decode(text), mark.encode())
        if self.last.entries != count or self._stream.read(1):
            raise ValueError("it is not complete")

    def _line(self) -> bytes:
        self._number += 1
        return self._stream.readline(_MAX_LINE_BYTES)

    def _verify(self, line: bytes) -> None:
        try:
            self._checksums.verify(line)
        except ValueError as error:
            raise ValueError(f"line {self._number:,} is damaged: {error}") from None


def _is_cut(line: bytes) -> bool:
    """Return whether a line is missing or truncated, as after a kill."""
    is_text = line.isascii() and _NUL not in line
    return not line or (not line.endswith(b"\n") and line[:1] in (b"[", b"{") and is_text)


def _refuse_foreign(status: os.stat_result) -> None:
    """Raise ValueError for a plan that another user could have written."""
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & OTHERS_WRITE:
        raise ValueError("another user owns it or can write to it")


def _record(path: bytes, mark: bytes) -> bytes:
    parts = path.split(_SLASH) if path else []
    if _NUL in path or b".." in parts or (b"" in parts) or b"." in parts or _SLASH in mark:
        raise ValueError(f"invalid path '{show(path)}'")
    return _NUL.join((*parts, b"", mark))


def _sorted(records: Iterable[bytes], roots: int) -> Lists:
    """Return the lists of all roots; the list of a root without entries is empty."""
    from pcircle.fs.lists import sort  # few runs have a list
    from pcircle.fs.sorting import sorted_records

    ends = (b"%010d" % number for number in range(roots))
    groups = groupby(_with_ends(sorted_records(records), ends), key=lambda record: record[:10])
    return sort((int(key), _bare(group)) for key, group in groups)


def _with_ends(records: Iterable[bytes], ends: Iterable[bytes]) -> Iterator[bytes]:
    """Add an empty record for each root to sorted records, so that no root is missing."""
    from heapq import merge

    return merge(records, ends)


def _bare(group: Iterable[bytes]) -> Iterator[bytes]:
    return (record[10:] for record in group if len(record) > 10)


# ---- while it is applied -----------------------------------------------------------------------


def mark_in(listed: PathListSlice | None, lists: Lists | None) -> bytes:
    """Return the mark of a list's directory; empty if the plan does not act on it."""
    from pcircle.fs.lists import first_of

    record = first_of(require(listed), lists) or b""
    return record[1:] if record.startswith(_NUL) else b""


def sorted_by_kind(block: Block) -> Block:
    """Sort a block's listed names by the kinds in the plan; append marks except to directories."""
    from pcircle.core.encoding import text_of

    found, block.directories = block.directories, []
    kinds = {"f": block.files, "l": block.links, "d": block.directories}
    for name in found:
        below = block.below.get(name)
        mark = b"d" if below is None else mark_in(below, None) or b"d"
        letter = chr(mark[0])
        if name and letter == "d":
            block.directories.append(name)
        elif name:
            kinds.get(letter, block.specials).append(f"{name}/{text_of(mark)}")
    return block


def split_mark(name: bytes) -> tuple[bytes, bytes]:
    """Split a name that `sorted_by_kind` returned into the name and the mark."""
    bare, _, mark = name.partition(_SLASH)
    return bare, mark
