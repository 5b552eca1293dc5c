"""The tests of an expression as functions of an entry.

Tests of Lustre layouts are false on other file systems.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import msgspec

from pcircle.core.encoding import attributes
from pcircle.core.units import DAY_S, MAX_NS, MIN_NS, NS_PER_S, Timestamp
from pcircle.fs.attributes.lustre import ATTRIBUTE, RELEASED, Component, Layout, Stripes, parse
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.attributes.owners import find_group_name, find_user_name
from pcircle.fs.attributes.xattrs import read_flags
from pcircle.fs.status import birth_ns
from pcircle.tools.ffind.eval.entry import FIELDS, TIMES, FindEntry, Status, Test
from pcircle.tools.ffind.language.patterns import matcher, text_of, translated_regex
from pcircle.tools.ffind.plan import ExpressionNode
from pcircle.walk.attributes import LETTERS

StatusTest = Callable[[Status], object]

FIELD_OF_NUMBER = {
    "inum": "inode", "links": "links", "uid": "uid", "gid": "gid", "blocks": "blocks",
    "bytes": "size",
}  # fmt: skip
_EXPENSIVE = 3
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


def checked(node: ExpressionNode, context: EvaluationContext) -> Test:
    """Return the function of a test."""
    if node.name in _OF_STATUS:
        return _with_status(_OF_STATUS[node.name](context, *node.args))
    if node.name in _OF_ENTRY:
        made: Test = _OF_ENTRY[node.name](context, *node.args)
        return made
    return _OF_INODE[node.name](*node.args)


def cheapest_first(nodes: Sequence[ExpressionNode]) -> list[ExpressionNode]:
    """Return tests sorted by cost; tests of equal cost retain their order."""
    return sorted(nodes, key=_cost)


def _cost(node: ExpressionNode) -> int:
    if node.children:
        return max(map(_cost, node.children))
    return COSTS.get(node.name, _EXPENSIVE)


def _with_status(test: StatusTest) -> Test:
    def run(entry: FindEntry) -> object:
        status = entry.st
        if status is None:
            status = entry.look()
        return status is not False and test(status)

    return run


def compared(compare: str, limit: int) -> Callable[[int], bool]:
    """Return a comparison with a number: greater (`+`), less (`-`) or equal."""
    if compare == "+":
        return lambda number: number > limit
    if compare == "-":
        return lambda number: number < limit
    return lambda number: number == limit


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
    time_of = FIELDS[TIMES[field]]
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


def _used(context: EvaluationContext, compare: str, ago_ns: int) -> StatusTest:
    def test(status: Status) -> bool:
        after_ns = status.st_ctime_ns - status.st_atime_ns + ago_ns
        if status.st_atime_ns < status.st_ctime_ns:
            return False
        if compare == "-":
            return after_ns > 0
        return after_ns < 0 if compare == "+" else 0 < after_ns <= DAY_S * NS_PER_S

    return test


def _size(context: EvaluationContext, compare: str, units: int, unit: int) -> StatusTest:
    fits = fits_size(compare, units, unit)
    return lambda status: fits(status.st_size)


def fits_size(compare: str, units: int, unit: int) -> Callable[[int], bool]:
    """Return a test of a size, which is rounded up to whole units, as in GNU find."""
    low, high = (units - 1) * unit, units * unit
    if compare == "+":
        return lambda size: size > high
    if compare == "-":
        return lambda size: size <= low
    return lambda size: low < size <= high


def _number(context: EvaluationContext, name: str, compare: str, limit: int) -> StatusTest:
    number, fits = FIELDS[FIELD_OF_NUMBER[name]], compared(compare, limit)
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


def name_test(node: ExpressionNode, context: EvaluationContext) -> Callable[[bytes, bytes], object]:
    """Return the test of a name and the path before it."""
    if node.name == "name":
        match = pattern_match(context, *node.args)
        return lambda name, prefix: match(name)
    find = (pattern_match if node.name == "path" else expression)(context, *node.args)
    return lambda name, prefix: find(prefix + name)


def pattern_match(
    context: EvaluationContext, pattern: bytes, fold: int
) -> Callable[[bytes], object]:
    """Return a function that matches names or paths with a shell pattern."""
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
    match = pattern_match(context, pattern, fold)
    return lambda entry: match(entry.base or entry.name)


def _path(context: EvaluationContext, pattern: bytes, fold: int) -> Test:
    match = pattern_match(context, pattern, fold)
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
    match = pattern_match(context, pattern, fold)

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
        try:
            return stat.S_ISDIR(status.st_mode) and entry.is_bare()
        except OSError as error:
            entry.fail("read directory", error)
            return False

    return test


def _access(context: EvaluationContext, mode: int) -> Test:
    def test(entry: FindEntry) -> bool:
        try:
            return os.access(entry.name, mode, dir_fd=entry.fd)
        except OSError as error:  # raised only if the time limit has expired
            entry.fail("look up", error)
            return False

    return test


def _newer(context: EvaluationContext, field: str, *than: int) -> Test:
    than_ns = Timestamp(*than).ns
    if field != "B":
        time_of = FIELDS[TIMES[field]]
        return _with_status(lambda status: time_of(status) > than_ns)

    def test(entry: FindEntry) -> bool:
        born_ns = birth_ns(entry.name, entry.fd, follow=entry.follow)
        return born_ns is not None and born_ns > than_ns

    return test


_OF_ENTRY: dict[str, Callable[..., Test]] = {
    "name": _named,
    "path": _path,
    "regex": _regex,
    "type": _type,
    "xtype": _xtype,
    "lname": _lname,
    "empty": _empty,
    "access": _access,
    "newer": _newer,
    "true": lambda context: lambda entry: True,
    "false": lambda context: lambda entry: False,
}


# ---- tests of inode data -----------------------------------------------------------

_ACLS = ("system.posix_acl_access", "system.posix_acl_default", "system.nfs4_acl")
_CAPABILITY = "security.capability"
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FLAGS = {
    "s": 0x1, "u": 0x2, "c": 0x4, "S": 0x8, "i": 0x10, "a": 0x20, "d": 0x40, "A": 0x80,
    "E": 0x800, "I": 0x1000, "j": 0x4000, "t": 0x8000, "D": 0x10000, "T": 0x20000, "V": 0x100000,
    "C": 0x800000, "x": 0x2000000, "N": 0x10000000, "P": 0x20000000, "F": 0x40000000,
    "X": 0x400,
}  # fmt: skip
"""Inode flags by the letters of chattr(1)."""
_KNOWN = sum(FLAGS.values()) & ~(FLAGS["E"] | FLAGS["I"])  # the file system sets E and I itself

_TYPES: dict[int, bytes] = {}


def fs_type(device: int) -> bytes:
    """Return the file system type of a device number."""
    found = _TYPES.get(device)
    if found is None:
        found = _TYPES[device] = type_of_device(device) or b"unknown"
    return found


def _xattr_names(entry: FindEntry) -> list[str]:
    try:
        return attributes(entry.opened, follow=entry.follow)
    except OSError:  # the file system does not support attributes
        return []


def _has_xattr(name: bytes) -> Test:
    attribute_name = os.fsdecode(name)
    # A name without a namespace may be in the namespace `user`.
    known = (
        (attribute_name,) if "." in attribute_name else (attribute_name, f"user.{attribute_name}")
    )
    return lambda entry: any(attribute in known for attribute in _xattr_names(entry))


def _flags(kind: str, letters: str) -> Test:
    flags = sum(FLAGS[letter] for letter in set(letters))
    known = _KNOWN | flags

    def test(entry: FindEntry) -> bool:
        if entry.letter() not in ("f", "d"):
            return False
        try:
            fd = os.open(
                entry.name, _OPEN_FLAGS | (0 if entry.follow else os.O_NOFOLLOW), dir_fd=entry.fd
            )
        except OSError as error:
            entry.fail("open", error)
            return False
        try:
            found = read_flags(fd, known)
        finally:
            os.close(fd)
        if kind == "-":
            return found & flags == flags
        return bool(found & flags) if kind == "/" else found == flags

    return test


# ---- tests of Lustre layouts, which are false on other file systems ----------------

_METADATA = "lustre.lmv"


def _layout(entry: FindEntry) -> Layout | None:
    """Return the layout of a file or directory, or None if it has no valid layout."""
    if entry.letter() not in ("f", "d"):
        return None
    try:
        value = os.getxattr(entry.opened, ATTRIBUTE, follow_symlinks=entry.follow)
        return parse(value)
    except (OSError, ValueError):
        return None


def _stripes(layout: Layout | None) -> Iterator[Stripes]:
    """Yield a plain layout, or each plain layout of a composite layout."""
    if isinstance(layout, Stripes):
        yield layout
    elif layout is not None:
        parts: tuple[Component, ...] = layout.components
        yield from (part.stripes for part in parts if part.stripes is not None)


def _layout_number(name: str, compare: str, limit: int) -> Test:
    fits = compared(compare, limit)
    if name == "ost":
        return lambda entry: any(
            fits(target) for component in _stripes(_layout(entry)) for target in component.targets
        )
    if name == "mdt":
        return lambda entry: any(map(fits, _metadata_targets(entry)))
    field = {"stripe-count": "count", "stripe-size": "stripe_bytes"}[name]

    def test(entry: FindEntry) -> bool:
        # The last component with data counts, as in `lfs find`.
        found = list(_stripes(_layout(entry)))
        return bool(found) and fits(getattr(found[-1], field))

    return test


def _metadata_targets(entry: FindEntry) -> Iterator[int]:
    """Yield the metadata target of a directory, or of a file's directory."""
    where = entry.opened if entry.letter() == "d" else b"/proc/self/fd/%d" % entry.fd
    try:
        value = os.getxattr(where, _METADATA)
    except OSError:
        return
    if len(value) >= 12:
        yield int.from_bytes(value[8:12], "little")


def _pool(name: bytes) -> Test:
    return lambda entry: any(component.pool == name for component in _stripes(_layout(entry)))


def _released() -> Test:
    def test(entry: FindEntry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False or not stat.S_ISREG(status.st_mode):
            return False
        return any(component.pattern & RELEASED for component in _stripes(_layout(entry)))

    return test


_OF_INODE: dict[str, Callable[..., Test]] = {
    "xattr": lambda: lambda entry: bool(_xattr_names(entry)),
    "xattrname": _has_xattr,
    "acl": lambda: lambda entry: any(name in _ACLS for name in _xattr_names(entry)),
    "capable": lambda: lambda entry: _CAPABILITY in _xattr_names(entry),
    "flags": _flags,
    "layout_number": _layout_number,
    "pool": _pool,
    "released": _released,
}
