"""The tests of an expression as functions of an entry."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from pcircle.core.units import DAY_S, MAX_NS, MIN_NS, NS_PER_S, Timestamp
from pcircle.fs.attributes.owners import find_group_name, find_user_name
from pcircle.fs.status import birth_ns
from pcircle.tools.ffind.eval.entry import FindEntry, Status, Test
from pcircle.tools.ffind.eval.inodes import INODE_TESTS, LAYOUT_TESTS, fs_type
from pcircle.tools.ffind.language.nodes import ExpressionNode, compared
from pcircle.tools.ffind.language.patterns import matcher, text_of, translated_regex
from pcircle.walk.attributes import LETTERS

StatusTest = Callable[[Status], object]

_NS = 1_000_000_000
_EXPENSIVE = 3
_NUMBERS: dict[str, Callable[[Status], int]] = {
    "inum": lambda status: status.st_ino,
    "links": lambda status: status.st_nlink,
    "uid": lambda status: status.st_uid,
    "gid": lambda status: status.st_gid,
    "blocks": lambda status: status.st_blocks,
    "bytes": lambda status: status.st_size,
}
COSTS = {
    **dict.fromkeys(("true", "false", "prune", "type"), 0),
    **dict.fromkeys(("name", "path", "regex"), 1),
    **dict.fromkeys(("time", "newer", "used", "size", "number", "perm", "sparse"), 2),
    **dict.fromkeys(("samefile", "nouser", "nogroup", "fstype"), 2),
}
"""The costs of tests. Those of cost 2 need a look-up; tests not listed cost `_EXPENSIVE`."""


class EvaluationContext(msgspec.Struct, frozen=True):
    """The context of all tests.

    If `wide` is set, patterns match characters, otherwise bytes. `midnight_ns` is the start of
    today.
    """

    now_ns: int
    midnight_ns: int
    wide: bool
    follow: str


def checked(node: ExpressionNode, context: EvaluationContext) -> Test | None:
    """Return the function of a test, or None if the node is not a test."""
    if node.name in _OF_STATUS:
        return _with_status(_OF_STATUS[node.name](context, *node.args))
    if node.name in _OF_ENTRY:
        made: Test = _OF_ENTRY[node.name](context, *node.args)
        return made
    for table in (INODE_TESTS, LAYOUT_TESTS):
        if node.name in table:
            return table[node.name](*node.args)
    return None


def _with_status(test: StatusTest) -> Test:
    def run(entry: FindEntry) -> object:
        status = entry.st
        if status is None:
            status = entry.look()
        return status is not False and test(status)

    return run


def permitted(kind: str, bits: int) -> Callable[[int], bool]:
    """Return a test of a mode: all bits (`-`), any of the bits (`/`) or exactly these bits."""
    if kind == "-":
        return lambda mode: mode & bits == bits
    if kind == "/":
        return lambda mode: not bits or bool(mode & bits)
    return lambda mode: mode & 0o7777 == bits


# ---- tests of status ---------------------------------------------------------------


def _time(
    context: EvaluationContext, field: str, compare: str, ago_ns: int, unit_s: int, midnight: int
) -> StatusTest:
    low_ns, high_ns = limits_ns(context, field, compare, ago_ns, unit_s, midnight)
    time_of = _time_of(field)
    low = MIN_NS - 1 if low_ns is None else low_ns
    high = MAX_NS if high_ns is None else high_ns
    return lambda status: low < time_of(status) <= high


def limits_ns(
    context: EvaluationContext, field: str, compare: str, ago_ns: int, unit_s: int, midnight: int
) -> tuple[int | None, int | None]:
    """Return the limits of the times that pass a test: after the first, up to the second."""
    day_ns, unit_ns = DAY_S * NS_PER_S, unit_s * NS_PER_S
    # The start of the day that ends now or, with -daystart, of the day that began at midnight.
    origin_ns = context.midnight_ns if midnight else context.now_ns - day_ns
    if unit_s != DAY_S:
        origin_ns += day_ns
    elif compare == "-":
        origin_ns += day_ns - NS_PER_S
    at_ns = origin_ns - ago_ns
    if compare == "-":
        return at_ns, None
    return (None, at_ns - 1) if compare == "+" else (at_ns, at_ns + unit_ns)


def _time_of(field: str) -> Callable[[Status], int]:
    # A getter that looks up an attribute by its name would be slower.
    return {
        "a": lambda status: status.st_atime_ns,
        "c": lambda status: status.st_ctime_ns,
        "m": lambda status: status.st_mtime_ns,
    }[field]


def _in_window(
    time_of: Callable[[Status], int], compare: str, at_ns: int, unit_ns: int
) -> StatusTest:
    if compare == "-":
        return lambda status: time_of(status) > at_ns
    if compare == "+":
        return lambda status: time_of(status) < at_ns
    return lambda status: 0 < time_of(status) - at_ns <= unit_ns


def _used(context: EvaluationContext, compare: str, ago_ns: int) -> StatusTest:
    def delta_ns(status: Status) -> int:
        return status.st_ctime_ns - status.st_atime_ns

    inside = _in_window(delta_ns, compare, -ago_ns, DAY_S * NS_PER_S)
    return lambda status: status.st_atime_ns >= status.st_ctime_ns and inside(status)


def _newer(context: EvaluationContext, field: str, than_ns: int) -> StatusTest:
    time_of = _time_of(field)
    return lambda status: time_of(status) > than_ns


def _size(context: EvaluationContext, compare: str, units: int, unit: int) -> StatusTest:
    # Sizes are rounded up to whole units, as in GNU find.
    if compare == "+":
        return lambda status: status.st_size > units * unit
    if compare == "-":
        return lambda status: status.st_size <= (units - 1) * unit
    return lambda status: (units - 1) * unit < status.st_size <= units * unit


def _number(context: EvaluationContext, name: str, compare: str, limit: int) -> StatusTest:
    number, fits = _NUMBERS[name], compared(compare, limit)
    return lambda status: fits(number(status))


def _perm(context: EvaluationContext, kind: str, file: int, directory: int) -> StatusTest:
    fits_file, fits_directory = permitted(kind, file), permitted(kind, directory)
    return lambda status: (fits_directory if stat.S_ISDIR(status.st_mode) else fits_file)(
        status.st_mode
    )


def _samefile(context: EvaluationContext, device: int, inode: int) -> StatusTest:
    return lambda status: status.st_ino == inode and status.st_dev == device


def _sparse(context: EvaluationContext) -> StatusTest:
    return lambda status: stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < status.st_size


def _nouser(context: EvaluationContext) -> StatusTest:
    name_of = cache(find_user_name)
    return lambda status: name_of(status.st_uid) is None


def _nogroup(context: EvaluationContext) -> StatusTest:
    name_of = cache(find_group_name)
    return lambda status: name_of(status.st_gid) is None


def _fstype(context: EvaluationContext, type_name: bytes) -> StatusTest:
    return lambda status: fs_type(status.st_dev) == type_name


_OF_STATUS: dict[str, Callable[..., StatusTest]] = {
    "time": _time,
    "used": _used,
    "size": _size,
    "number": _number,
    "perm": _perm,
    "samefile": _samefile,
    "sparse": _sparse,
    "nouser": _nouser,
    "nogroup": _nogroup,
    "fstype": _fstype,
}


# ---- tests of names, kinds and other properties ------------------------------------


def name_test(
    node: ExpressionNode, context: EvaluationContext
) -> Callable[[bytes, bytes], object] | None:
    """Return a test of a name and the path before it, or None if the node tests something else."""
    if node.name == "name":
        match = _pattern(context, *node.args)
        return lambda name, prefix: match(name)
    if node.name in ("path", "regex"):
        find = (_pattern if node.name == "path" else expression)(context, *node.args)
        return lambda name, prefix: find(prefix + name)
    return None


def _pattern(context: EvaluationContext, pattern: bytes, fold: int) -> Callable[[bytes], object]:
    return matcher(pattern, fold=bool(fold), wide=context.wide)


def expression(
    context: EvaluationContext, pattern: bytes, fold: int, syntax: int
) -> Callable[[bytes], object]:
    """Return a function that matches whole paths with a regular expression."""
    wide = context.wide
    text = text_of(pattern, wide=wide)
    flags = re.MULTILINE | (re.IGNORECASE if fold else 0)
    translated = translated_regex(text, syntax)
    if wide:
        find = re.compile(translated, flags).fullmatch
        return lambda path: find(path.decode("utf-8", "surrogateescape"))
    return re.compile(translated.encode("latin-1"), flags).fullmatch


def _named(context: EvaluationContext, pattern: bytes, fold: int) -> Test:
    match = _pattern(context, pattern, fold)
    return lambda entry: match(entry.base or entry.name)


def _path(context: EvaluationContext, pattern: bytes, fold: int) -> Test:
    match = _pattern(context, pattern, fold)
    return lambda entry: match(entry.path)


def _regex(context: EvaluationContext, pattern: bytes, fold: int, syntax: int) -> Test:
    match = expression(context, pattern, fold, syntax)
    return lambda entry: match(entry.path)


def _type(context: EvaluationContext, letters: str) -> Test:
    def test(entry: FindEntry) -> bool:
        letter = entry.kind or entry.letter()
        return bool(letter) and letter in letters

    return test


def _xtype(context: EvaluationContext, letters: str) -> Test:
    def test(entry: FindEntry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False:
            return False
        other: Status
        try:
            if entry.fixed and entry.follow:  # only a look-up by name finds the link
                other = os.lstat(entry.fixed)
            else:
                other = os.stat(entry.name, dir_fd=entry.fd, follow_symlinks=not entry.follow)
        except OSError as error:
            if not entry.follow and isinstance(error, FileNotFoundError | NotADirectoryError):
                other = status  # a dangling link
            else:
                entry.fail("look up", error)
                return False
        return LETTERS.get(stat.S_IFMT(other.st_mode), "?") in letters

    return test


def _lname(context: EvaluationContext, pattern: bytes, fold: int) -> Test:
    match = _pattern(context, pattern, fold)

    def test(entry: FindEntry) -> object:
        if entry.letter() != "l":
            return False
        try:
            return match(entry.target())
        except OSError as error:
            entry.fail("read link", error)
            return False

    return test


def _empty(context: EvaluationContext) -> Test:
    def test(entry: FindEntry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False:
            return False
        if stat.S_ISREG(status.st_mode):
            return bool(status.st_size == 0)
        return stat.S_ISDIR(status.st_mode) and is_empty(entry)

    return test


def is_empty(entry: FindEntry) -> bool:
    """Return whether a directory has no entries. Report an unreadable directory as a failure."""
    try:
        return entry.is_bare()
    except OSError as error:
        entry.fail("read directory", error)
        return False


def _access(context: EvaluationContext, mode: int) -> Test:
    def test(entry: FindEntry) -> bool:
        try:
            return os.access(entry.name, mode, dir_fd=entry.fd)
        except OSError as error:  # raised only if the time limit has expired
            entry.fail("look up", error)
            return False

    return test


def _born(context: EvaluationContext, than_ns: int) -> Test:
    def test(entry: FindEntry) -> bool:
        born_ns = birth_ns(entry.name, entry.fd, follow=entry.follow)
        return born_ns is not None and born_ns > than_ns

    return test


def _newer_entry(context: EvaluationContext, field: str, *than: int) -> Test:
    than_ns = Timestamp(*than).ns
    if field == "B":
        return _born(context, than_ns)
    return _with_status(_newer(context, field, than_ns))


_OF_ENTRY: dict[str, Callable[..., Test]] = {
    "name": _named,
    "path": _path,
    "regex": _regex,
    "type": _type,
    "xtype": _xtype,
    "lname": _lname,
    "empty": _empty,
    "access": _access,
    "newer": _newer_entry,
    "true": lambda context: lambda entry: True,
    "false": lambda context: lambda entry: False,
}


def cheapest_first(nodes: Sequence[ExpressionNode]) -> list[ExpressionNode]:
    """Return tests sorted by cost; tests of equal cost retain their order."""
    return sorted(nodes, key=_cost)


def _cost(node: ExpressionNode) -> int:
    if node.children:
        return max(map(_cost, node.children))
    return COSTS.get(node.name, _EXPENSIVE)
