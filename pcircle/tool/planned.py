"""`--plan FILE` and `--apply FILE`: look first, then do just what was looked at.

A plan is a file of lines of JSON. The first one has the tool and the PATHs, and the last one how
many entries there are: a plan without it was interrupted, and is refused. Each line between is an
entry that the tool would act on: the number of its PATH, its path below that (percent-encoded as in
the error log), and its kind, inode, size and modification time.

The second run walks what the plan names and nothing else, by way of a list (`pcircle.fs.lists`),
so a plan may be longer than memory and is divided among the ranks. What an entry must be has a
record of its own in that list: behind its path an empty name, which no entry has, and its *mark*.
In the names that a tool is given the mark follows a slash, which no name has either. A mark may be
of a tool's own, if it begins as these do.

Of a directory only the inode counts, since what is done to its entries changes its times.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pcircle.errors import UsageError
from pcircle.fs.listed import Listed
from pcircle.fs.scan import Block
from pcircle.trusted import reading
from pcircle.ui.errorlog import decode, encode
from pcircle.ui.names import show
from pcircle.walk.attributes import LETTERS
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.fs.lists import Lists

_VERSION = 1
_NUL, _SLASH = b"\0", b"/"
_ENTRY = msgspec.json.Decoder(tuple[int, str, str])
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a plan. Paths are percent-encoded; each of `roots` is as of `Root`.

    `more` is what a tool has to say of it.
    """

    plan: int
    tool: str
    directory: str
    roots: tuple[tuple[str, str, str, str], ...]
    more: dict[str, Any] = {}


class Tail(msgspec.Struct, frozen=True):
    """The last line: the entries of the plan, and all that were found."""

    entries: int
    found: int


class Planned(NamedTuple):
    """A plan that was read. `marks` are those of roots that are no directories."""

    roots: tuple[Root, ...]
    directory: bytes
    marks: tuple[bytes, ...]
    lists: Lists
    tail: Tail
    more: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def mark_of(status: os.stat_result) -> bytes:
    """What an entry must still be, in short: a letter for its kind, and what tells it apart."""
    kind = LETTERS.get(stat.S_IFMT(status.st_mode), "?")
    if kind == "d":
        return b"d,%d" % status.st_ino
    return b"%b,%d,%d,%d" % (kind.encode(), status.st_ino, status.st_size, status.st_mtime_ns)


def head(
    tool: str, roots: Sequence[Root], directory: bytes, more: dict[str, Any] | None = None
) -> bytes:
    """The first line of a plan."""
    told = ((root.holder, root.name, root.shown, root.within) for root in roots)
    texts = [(encode(a), encode(b), encode(c), encode(d)) for a, b, c, d in told]
    return _line(Head(_VERSION, tool, encode(directory), tuple(texts), more or {}))


def entry(root: int, path: bytes, mark: bytes) -> bytes:
    """The line of an entry."""
    return _line((root, encode(path), mark.decode()))


def tail(entries: int, found: int) -> bytes:
    """The last line."""
    return _line(Tail(entries, found))


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


# ---- reading -----------------------------------------------------------------------------------


def read_plan(name: str, tool: str, *, is_whole: bool = True) -> Planned:
    """Read a plan. UsageError if it is none of this tool or, where it has to be, is not whole."""
    shown = show(os.fsencode(name))
    try:
        with open(reading(os.fsencode(name)), "rb") as stream:
            _refuse_foreign(os.fstat(stream.fileno()))
            last = Tail(0, 0)
            first = msgspec.json.decode(stream.readline(), type=Head)
            if (first.plan, first.tool) != (_VERSION, tool):
                raise ValueError(f"a plan of {first.tool}, version {first.plan}")
            told = (tuple(map(decode, each)) for each in first.roots)
            roots = tuple(Root(a, b, c, d) for a, b, c, d in told)
            marks = [b""] * len(roots)

            def records() -> Iterator[bytes]:
                nonlocal last
                count = 0
                for line in stream:
                    if not (is_whole or line.endswith(b"\n")):
                        break  # the run that wrote it was killed
                    if not line.startswith(b"["):
                        last = msgspec.json.decode(line, type=Tail)
                        break
                    number, text, mark = _ENTRY.decode(line)
                    count += 1
                    if not 0 <= number < len(roots):
                        raise ValueError(f"it has no PATH {number}")
                    if roots[number].name:
                        marks[number] = mark.encode()
                    else:
                        yield b"%010d" % number + _record(decode(text), mark.encode())
                if (is_whole or last.entries) and (last.entries != count or stream.read(1)):
                    raise ValueError("it is not complete")

            lists = _sorted(records(), len(roots))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"--apply: cannot read '{shown}': {reason}") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"--apply: '{shown}' is not a plan of {tool}: {error}") from None
    return Planned(roots, decode(first.directory), tuple(marks), lists, last, first.more)


def _refuse_foreign(status: os.stat_result) -> None:
    """A plan is an order, so nobody else may have written it."""
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
        raise ValueError("it belongs to or may be written by another user")


def _record(path: bytes, mark: bytes) -> bytes:
    parts = path.split(_SLASH) if path else []
    if _NUL in path or b".." in parts or (b"" in parts) or b"." in parts or _SLASH in mark:
        raise ValueError(f"invalid path '{show(path)}'")
    return _NUL.join((*parts, b"", mark))


def _sorted(records: Iterable[bytes], roots: int) -> Lists:
    """The lists of all roots: each has its own, though it may be empty."""
    from pcircle.fs.lists import sort  # few runs have a list
    from pcircle.fs.sorting import sorted_records

    ends = (b"%010d" % number for number in range(roots))
    groups = groupby(_with_ends(sorted_records(records), ends), key=lambda record: record[:10])
    return sort((int(key), _bare(group)) for key, group in groups)


def _with_ends(records: Iterable[bytes], ends: Iterable[bytes]) -> Iterator[bytes]:
    """Sorted records, with one for each root that has none other, and comes to nothing."""
    from heapq import merge

    return merge(records, ends)


def _bare(group: Iterable[bytes]) -> Iterator[bytes]:
    return (record[10:] for record in group if len(record) > 10)


# ---- while it is applied -----------------------------------------------------------------------


def mark_in(listed: Listed, lists: Lists | None) -> bytes:
    """The mark of the directory of which this is what is named; empty if it is not planned."""
    from pcircle.fs.lists import first_of

    record = first_of(listed, lists) or b""
    return record[1:] if record.startswith(_NUL) else b""


def sorted_out(block: Block) -> Block:
    """A block as a list names it, by the kinds that the plan had found."""
    from pcircle.encoding import text_of

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


def parted(name: bytes) -> tuple[bytes, bytes]:
    """The name and the mark of what `sorted_out` has made."""
    bare, _, mark = name.partition(_SLASH)
    return bare, mark
