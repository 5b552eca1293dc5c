"""The tests of an expression as functions of an entry."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pcircle.core.timestamps import MAX_NS, MIN_NS, Timestamp
from pcircle.fs.status import birth_ns
from pcircle.tools.ffind.eval.entry import Entry, Test
from pcircle.tools.ffind.eval.inodes import INODE_TESTS, fs_type
from pcircle.tools.ffind.eval.layouts import LAYOUT_TESTS
from pcircle.tools.ffind.language import regexes
from pcircle.tools.ffind.language.nodes import Node
from pcircle.tools.ffind.language.patterns import matcher, text_of
from pcircle.walk.attributes import LETTERS

_NS = 1_000_000_000
_DAY_S = 86400
_DEAR = 3
_NUMBERS: dict[str, Callable[[os.stat_result], int]] = {
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
"""The cost of a test: 0 and 1 need no look-up, 2 needs one. Other tests need more."""


class Surroundings(msgspec.Struct, frozen=True):
    """The context of all tests.

    With `wide`, names consist of characters; `midnight_ns` is the start of today.
    """

    now_ns: int
    midnight_ns: int
    wide: bool
    follow: str


def checked(node: Node, around: Surroundings) -> Test | None:
    """Return the function of a test; None if the node is not a test."""
    if node.name in _OF_STATUS:
        return _with_status(_OF_STATUS[node.name](around, *node.args))
    if node.name in _OF_ENTRY:
        made: Test = _OF_ENTRY[node.name](around, *node.args)
        return made
    for table in (INODE_TESTS, LAYOUT_TESTS):
        if node.name in table:
            return table[node.name](*node.args)
    return None


def _with_status(test: Callable[[os.stat_result], object]) -> Test:
    def run(entry: Entry) -> object:
        status = entry.st
        if status is None:
            status = entry.look()
        return status is not False and test(status)

    return run


def compared(compare: str, wanted: int) -> Callable[[int], bool]:
    """Return a comparison with a number: greater (`+`), less (`-`) or equal."""
    if compare == "+":
        return lambda number: number > wanted
    if compare == "-":
        return lambda number: number < wanted
    return lambda number: number == wanted


# ---- tests of status ---------------------------------------------------------------


def _time(
    around: Surroundings, field: str, compare: str, ago_ns: int, unit_s: int, midnight: int
) -> Callable[[Any], object]:
    low_ns, high_ns = limits_ns(around, field, compare, ago_ns, unit_s, midnight)
    time_of = _time_of(field)
    low = MIN_NS - 1 if low_ns is None else low_ns
    high = MAX_NS if high_ns is None else high_ns
    return lambda status: low < time_of(status) <= high


def limits_ns(
    around: Surroundings, field: str, compare: str, ago_ns: int, unit_s: int, midnight: int
) -> tuple[int | None, int | None]:
    """Return the limits between which a test of times is true: exclusive, then inclusive."""
    day_ns, unit_ns = _DAY_S * _NS, unit_s * _NS
    # The start of the day that ends now or, with -daystart, of the day that began at midnight.
    origin_ns = around.midnight_ns if midnight else around.now_ns - day_ns
    if unit_s != _DAY_S:
        origin_ns += day_ns
    elif compare == "-":
        origin_ns += day_ns - _NS
    at_ns = origin_ns - ago_ns
    if compare == "-":
        return at_ns, None
    return (None, at_ns - 1) if compare == "+" else (at_ns, at_ns + unit_ns)


def _time_of(field: str) -> Callable[[Any], int]:
    # A getter that looks up an attribute by its name would be slower.
    return {
        "a": lambda status: status.st_atime_ns,
        "c": lambda status: status.st_ctime_ns,
        "m": lambda status: status.st_mtime_ns,
    }[field]


def _in_window(
    time_of: Callable[[Any], int], compare: str, at_ns: int, unit_ns: int
) -> Callable[[Any], object]:
    if compare == "-":
        return lambda status: time_of(status) > at_ns
    if compare == "+":
        return lambda status: time_of(status) < at_ns
    return lambda status: 0 < time_of(status) - at_ns <= unit_ns


def _used(around: Surroundings, compare: str, ago_ns: int) -> Callable[[Any], object]:
    def delta_ns(status: os.stat_result) -> int:
        return status.st_ctime_ns - status.st_atime_ns

    inside = _in_window(delta_ns, compare, -ago_ns, _DAY_S * _NS)
    return lambda status: status.st_atime_ns >= status.st_ctime_ns and inside(status)


def _newer(around: Surroundings, field: str, than_ns: int) -> Callable[[Any], object]:
    time_of = _time_of(field)
    return lambda status: time_of(status) > than_ns


def _size(around: Surroundings, compare: str, wanted: int, unit: int) -> Callable[[Any], object]:
    # Sizes are rounded up to whole units, as in GNU find.
    if compare == "+":
        return lambda status: status.st_size > wanted * unit
    if compare == "-":
        return lambda status: status.st_size <= (wanted - 1) * unit
    return lambda status: (wanted - 1) * unit < status.st_size <= wanted * unit


def _number(around: Surroundings, name: str, compare: str, wanted: int) -> Callable[[Any], object]:
    number, fits = _NUMBERS[name], compared(compare, wanted)
    return lambda status: fits(number(status))


def _perm(around: Surroundings, kind: str, file: int, directory: int) -> Callable[[Any], object]:
    def wanted(status: os.stat_result) -> int:
        return directory if stat.S_ISDIR(status.st_mode) else file

    if kind == "-":
        return lambda status: status.st_mode & wanted(status) == wanted(status)
    if kind == "/":
        return lambda status: not wanted(status) or status.st_mode & wanted(status)
    return lambda status: status.st_mode & 0o7777 == wanted(status)


def _samefile(around: Surroundings, device: int, inode: int) -> Callable[[Any], object]:
    return lambda status: status.st_ino == inode and status.st_dev == device


def _sparse(around: Surroundings) -> Callable[[Any], object]:
    return lambda status: stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < status.st_size


def _nouser(around: Surroundings) -> Callable[[Any], object]:
    known: dict[int, bool] = {}

    def test(status: os.stat_result) -> bool:
        if status.st_uid not in known:
            known[status.st_uid] = _is_nobody("pwd", "getpwuid", status.st_uid)
        return known[status.st_uid]

    return test


def _nogroup(around: Surroundings) -> Callable[[Any], object]:
    known: dict[int, bool] = {}

    def test(status: os.stat_result) -> bool:
        if status.st_gid not in known:
            known[status.st_gid] = _is_nobody("grp", "getgrgid", status.st_gid)
        return known[status.st_gid]

    return test


def _is_nobody(module: str, function: str, number: int) -> bool:
    try:
        getattr(__import__(module), function)(number)
    except KeyError:
        return True
    return False


def _fstype(around: Surroundings, wanted: bytes) -> Callable[[Any], object]:
    return lambda status: fs_type(status.st_dev) == wanted


_OF_STATUS: dict[str, Callable[..., Callable[[Any], object]]] = {
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


def name_test(node: Node, around: Surroundings) -> Callable[[bytes, bytes], object] | None:
    """Return a function of a name and the path before it; None for other tests."""
    if node.name == "name":
        match = _pattern(around, *node.args)
        return lambda name, prefix: match(name)
    if node.name in ("path", "regex"):
        find = (_pattern if node.name == "path" else expression)(around, *node.args)
        return lambda name, prefix: find(prefix + name)
    return None


def _pattern(around: Surroundings, pattern: Any, fold: Any) -> Callable[[bytes], object]:
    return matcher(pattern, fold=bool(fold), wide=around.wide)


def expression(
    around: Surroundings, pattern: Any, fold: Any, syntax: Any
) -> Callable[[bytes], object]:
    """Return a function that matches whole paths with a regular expression."""
    wide = around.wide
    text = text_of(pattern, wide=wide)
    flags = re.MULTILINE | (re.IGNORECASE if fold else 0)
    translated = regexes.translated(text, syntax)
    if wide:
        find = re.compile(translated, flags).fullmatch
        return lambda path: find(path.decode("utf-8", "surrogateescape"))
    return re.compile(translated.encode("latin-1"), flags).fullmatch


def _named(around: Surroundings, pattern: bytes, fold: int) -> Test:
    match = _pattern(around, pattern, fold)
    return lambda entry: match(entry.base or entry.name)


def _path(around: Surroundings, pattern: bytes, fold: int) -> Test:
    match = _pattern(around, pattern, fold)
    return lambda entry: match(entry.path)


def _regex(around: Surroundings, pattern: bytes, fold: int, syntax: int) -> Test:
    match = expression(around, pattern, fold, syntax)
    return lambda entry: match(entry.path)


def _type(around: Surroundings, letters: str) -> Test:
    def test(entry: Entry) -> bool:
        letter = entry.kind or entry.letter()
        return bool(letter) and letter in letters

    return test


def _xtype(around: Surroundings, letters: str) -> Test:
    def test(entry: Entry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False:
            return False
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


def _lname(around: Surroundings, pattern: bytes, fold: int) -> Test:
    match = _pattern(around, pattern, fold)

    def test(entry: Entry) -> object:
        if entry.letter() != "l":
            return False
        try:
            return match(entry.target())
        except OSError as error:
            entry.fail("read link", error)
            return False

    return test


def _empty(around: Surroundings) -> Test:
    def test(entry: Entry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False:
            return False
        if stat.S_ISREG(status.st_mode):
            return bool(status.st_size == 0)
        return stat.S_ISDIR(status.st_mode) and is_empty(entry)

    return test


def is_empty(entry: Entry) -> bool:
    """Return whether a directory has no entries; an unreadable directory is an error."""
    try:
        return entry.is_bare()
    except OSError as error:
        entry.fail("read directory", error)
        return False


def _access(around: Surroundings, mode: int) -> Test:
    def test(entry: Entry) -> bool:
        try:
            return os.access(entry.name, mode, dir_fd=entry.fd)
        except OSError as error:  # raised only after a time limit
            entry.fail("look up", error)
            return False

    return test


def _born(around: Surroundings, than_ns: int) -> Test:
    def test(entry: Entry) -> bool:
        born_ns = birth_ns(entry.name, entry.fd, follow=entry.follow)
        return born_ns is not None and born_ns > than_ns

    return test


def _newer_entry(around: Surroundings, field: str, *than: int) -> Test:
    than_ns = Timestamp(*than).ns
    if field == "B":
        return _born(around, than_ns)
    return _with_status(_newer(around, field, than_ns))


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
    "true": lambda around: lambda entry: True,
    "false": lambda around: lambda entry: False,
}


def cheapest_first(nodes: Sequence[Node]) -> list[Node]:
    """Return tests sorted by cost; tests of equal cost retain their order."""
    return sorted(nodes, key=_cost)


def _cost(node: Node) -> int:
    if node.children:
        return max(map(_cost, node.children))
    return COSTS.get(node.name, _DEAR)
