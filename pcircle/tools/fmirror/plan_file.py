"""`--plan` writes the actions of a dry run to a file; `--apply` carries out those and no others.

The file is a plan as defined in `pcircle.jobs.plan_file`. Its first line contains A and B, their
identities, and the options that affect individual actions. These options also apply when the plan
is carried out. Filters and lists do not, because the plan already reflects them.

The paths of root number 0 are below the source. The mark of each path has three parts, separated by
semicolons: the state of the entry in the source, the state of the same name in the target, and a
word for the action. A dash stands for a missing entry. The paths of root number 1 are below the
target. They will be removed, and have the same marks as in frm. The words are:

    copy     create or replace the entry
    link     make it a hard link to another entry of the plan
    touch    set only its attributes
    same     leave it unchanged, but link other names to it
    delete   remove the target's entry, including its contents if paths of root 1 list them
    within   leave this directory unchanged, but restore its times when its entries are changed

The mark of a directory that another kind of entry will replace contains the inode number and a
digest of its contents. These are removed with the directory, so they must not have changed. If an
interrupted run has completed an entry, its source must be unchanged and its target up to date.

As in any mirror, each extraneous entry is first looked up in the source again. It is removed only
if the source still lacks it and the plan lists it.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import xxhash

from pcircle.core.encoding import show, to_scan
from pcircle.core.errors import UsageError
from pcircle.fs.directories import closing_fd, join_path, open_below, working_directory
from pcircle.fs.entry_errors import Changed, error_context
from pcircle.fs.scan import Block
from pcircle.fs.sorting import sorted_records
from pcircle.jobs.failures import decode, encode
from pcircle.jobs.plan_file import LoadedPlan, PlanTrailer, head, mark_of, read_plan, split_mark
from pcircle.jobs.plan_file import check_mark as check_entry_mark
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.walk.roots import Root

NONE = b"-"
COPY, LINK, TOUCH, SAME, DELETE, WITHIN = b"copy", b"link", b"touch", b"same", b"delete", b"within"
_WORDS = COPY, LINK, TOUCH, SAME, DELETE, WITHIN
DOING = "carry out the plan for"
OTHER = "it has changed since the plan was made"
_DIGEST_BITS = 128
_DIGEST = re.compile(rb"(?<=\d),[0-9a-f]{32}\Z")  # in the mark of a replaced directory
_PATHS = ("copy_dest", "link_dest", "reflink_dest")
_SEPARATOR = b"\0\0"


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


def step_of(mark: bytes) -> Step | None:
    """Parse a mark like `parse`, or return None if it is empty."""
    return parse(mark) if mark else None


def check_mark(root: int, mark: bytes) -> None:
    """Raise ValueError if an entry of a plan has an invalid mark."""
    if root:
        check_entry_mark(root, mark)
        return
    step = parse(mark)
    if step.word not in _WORDS:
        raise ValueError("not a step")
    for part in (step.source, _DIGEST.sub(b"", step.target)):
        if part != NONE:
            check_entry_mark(root, part)


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


def mark_of_replaced(name: bytes, directory_fd: int) -> bytes:
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


def refuse_within(option: str, path: str, *trees: bytes) -> None:
    """Raise UsageError if an output file would lie in one of these trees."""
    above = os.path.realpath(os.path.dirname(os.fsencode(path)) or b".")
    for tree in trees:
        if os.path.join(above, b"").startswith(os.path.join(os.path.realpath(tree), b"")):
            raise UsageError(f"{option}: '{show(os.fsencode(path))}' is inside '{show(tree)}'")


def _recorded() -> list[str]:
    """Return the options that a plan records because they affect its actions."""
    return sorted(found.dest for _, found in MirrorOptions.offered() if found.recorded)


# ---- writing -----------------------------------------------------------------------------------


def begun(args: argparse.Namespace, paths: Sequence[bytes], known_by: Sequence[str]) -> bytes:
    """Return the first line of a plan: A and B, their identities and the recorded options."""
    options = {name: _encoded(getattr(args, name)) for name in _recorded()}
    if args.state_dir is not None:
        options["state_dir"] = _encoded(os.path.abspath(args.state_dir))
    for name in _PATHS:
        options[name] = _encoded([os.path.abspath(tree) for tree in getattr(args, name) or []])
    more = {"known by": list(known_by), "options": options}
    roots = [Root(path, b"", path) for path in paths]
    return head("fmirror", roots, working_directory(), more)


def _encoded(value: object) -> object:
    if isinstance(value, list):
        return list(map(_encoded, value))
    return encode(os.fsencode(value)) if isinstance(value, str) else value


def _decoded(value: object) -> object:
    if isinstance(value, list):
        return list(map(_decoded, value))
    return os.fsdecode(decode(value)) if isinstance(value, str) else value


# ---- carrying it out ---------------------------------------------------------------------------


def planned(args: argparse.Namespace) -> tuple[LoadedPlan, argparse.Namespace]:
    """Return the plan, and the given options merged with those that the plan records.

    Raise UsageError if the plan is invalid.
    """
    found = read_plan(args.apply, "fmirror", check_mark)
    try:
        roots = [os.path.join(found.directory, root.shown) for root in found.roots]
        options = {name: _decoded(found.more["options"][name]) for name in _recorded()}
        if len(roots) != 2 or len(found.more["known by"]) != 2:
            raise ValueError("it does not name two directories")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown = show(os.fsencode(args.apply))
        raise UsageError(f"--apply: '{shown}' is not a plan for fmirror: {error}") from None
    operands = list(map(os.fsdecode, roots))
    more = {"operands": operands, "planned": True}
    return found, argparse.Namespace(**vars(args) | options | more)


def refuse_others(plan: LoadedPlan, paths: Sequence[bytes], known_by: Sequence[str]) -> None:
    """Raise UsageError if A or B is not the directory for which the plan was made."""
    for path, known, now in zip(paths, plan.more["known by"], known_by, strict=True):
        if known not in (now, "-"):
            raise UsageError(f"--apply: '{show(path)}' is not the directory that the plan is for")


def removals(
    plan: LoadedPlan, paths: Iterable[bytes], replaced: Mapping[bytes, bytes]
) -> LoadedPlan:
    """Return the planned removals at or below these paths.

    `replaced` maps the present path of each replaced directory to its path in the plan.
    """
    from pcircle.fs.lists import sort  # few runs carry out a plan

    count = 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for record in _below(plan, paths, replaced):
            count += 1
            yield record

    lists = sort([(0, counted())])
    return LoadedPlan((), working_directory(), (b"",), lists, PlanTrailer(count, plan.tail.found))


def _below(
    plan: LoadedPlan, paths: Iterable[bytes], replaced: Mapping[bytes, bytes]
) -> Iterator[bytes]:
    """Yield the records of the planned removals at or below these paths, in sorted order."""
    from pcircle.fs.lists import record_of  # few runs carry out a plan

    tops = (record_of(replaced.get(path, path)) + _SEPARATOR + record_of(path) for path in paths)
    ordered = sorted_records(tops)
    was = now = None
    lists = plan.lists
    for part in lists.parts:
        if part.root != 1 or part.listed is None:
            continue
        for record in lists.records(part.listed):
            while was is None or (was + b"\0" < record and not record.startswith(was + b"\0")):
                top = next(ordered, None)
                if top is None:
                    return
                was, _, now = top.partition(_SEPARATOR)
            if now is not None and record.startswith(was + b"\0"):
                yield now + record[len(was) :]
