"""Steps of a plan: the state of an entry on both sides, and the action for it.

In a plan (`pcircle.jobs.plan_file`), the paths of root number 0 are below the source. The mark of
each path has three parts, separated by semicolons: the state of the entry in the source, the state
of the same name in the target, and a word for the action. A dash stands for a missing entry. The
paths of root number 1 are below the target. They will be removed, and have the same marks as in
frm. The words are:

    copy     create or replace the entry
    link     make it a hard link to another entry of the plan
    touch    set only its attributes
    same     leave it unchanged, but link other names to it
    delete   remove the target's entry, including its contents if paths of root 1 list them
    within   leave this directory unchanged, but restore its times when its entries are changed

The mark of a directory that another kind of entry will replace contains the inode number and a
digest of its contents. These are removed with the directory, so they must not have changed. If an
interrupted run has completed an entry, its source must be unchanged and its target up to date.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

import msgspec
import xxhash

from pcircle.core.encoding import to_scan
from pcircle.fs.directories import closing_fd, join_path, open_below
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.scan import Block
from pcircle.jobs import plan_file as planned
from pcircle.jobs.plan_file import mark_of, split_mark

__all__ = ["mark_of"]

NONE = b"-"
COPY, LINK, TOUCH, SAME, DELETE, WITHIN = b"copy", b"link", b"touch", b"same", b"delete", b"within"
_WORDS = COPY, LINK, TOUCH, SAME, DELETE, WITHIN
DOING = "carry out the plan for"
OTHER = "it has changed since the plan was made"
_DIGEST_BITS = 128
_DIGEST = re.compile(rb"(?<=\d),[0-9a-f]{32}\Z")  # in the mark of a replaced directory


class Step(msgspec.Struct, frozen=True):
    """The state of an entry on both sides, and the planned action."""

    source: bytes
    target: bytes
    word: bytes

    @property
    def mark(self) -> bytes:
        """Return the mark of the entry in the plan."""
        return b";".join((self.source, self.target, self.word))


def parse(mark: bytes) -> Step:
    """Parse a mark. Raise ValueError if it is invalid."""
    source, target, word = mark.split(b";")
    return Step(source, target, word)


def read(mark: bytes) -> Step | None:
    """Parse a mark like `parse`, or return None if it is empty."""
    return parse(mark) if mark else None


def check_mark(root: int, mark: bytes) -> None:
    """Raise ValueError if an entry of a plan has an invalid mark."""
    if root:
        planned.check_mark(root, mark)
        return
    step = parse(mark)
    if step.word not in _WORDS:
        raise ValueError("not a step")
    for part in (step.source, _DIGEST.sub(b"", step.target)):
        if part != NONE:
            planned.check_mark(root, part)


def side(name: bytes, directory_fd: int) -> bytes:
    """Return the mark of a name in a directory, or `NONE` if the name or directory is missing.

    Raise OSError if the name cannot be examined.
    """
    if directory_fd < 0:
        return NONE
    try:
        return mark_of(os.stat(name, dir_fd=directory_fd, follow_symlinks=False))
    except FileNotFoundError:
        return NONE


def replaced(name: bytes, directory_fd: int) -> bytes:
    """Return the mark of an entry that may be replaced.

    The mark of a directory includes a digest of its contents. Raise OSError if these cannot be
    read.
    """
    mark = side(name, directory_fd)
    if not mark.startswith(b"d"):
        return mark
    return b"%b,%b" % (mark, _digest(name, directory_fd))


def _digest(name: bytes, directory_fd: int) -> bytes:
    """Return an order-independent digest of everything below a directory."""
    total, waiting = 0, [b""]
    while waiting:
        path = waiting.pop()
        below = join_path(name, path) if path else name
        with closing_fd(open_below(directory_fd, below)) as fd, os.scandir(to_scan(fd)) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                inner = join_path(path, os.fsencode(entry.name))
                total += xxhash.xxh3_128_intdigest(inner + b"\0" + mark_of(status))
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(inner)
    return b"%032x" % (total % (1 << _DIGEST_BITS))


def confirmed(
    block: Block, path: bytes, source_fd: int, target_fd: int
) -> Iterator[tuple[bytes, OSError | None]]:
    """Take the planned removals out of the block, and yield the path of each.

    A path is accompanied by an error if the entry must stay, for example because it now exists in
    the source. Entries that have vanished are omitted.
    """
    remaining, surplus = [], []
    for text in block.specials:
        name, mark = split_mark(os.fsencode(text))
        if mark.startswith(NONE):
            surplus.append(name)
        else:
            remaining.append(text)
    block.specials = remaining
    for name in surplus:
        try:
            with error_context(DOING):
                if side(name, source_fd) != NONE:
                    raise Changed(OTHER)
        except OSError as error:
            yield join_path(path, name), error
        else:
            if side(name, target_fd) != NONE:
                yield join_path(path, name), None
