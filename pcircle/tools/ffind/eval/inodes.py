"""Tests of inode data (flags, attributes, access control lists, file systems) and Lustre layouts.

Tests of Lustre layouts are false on other file systems.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from pcircle.core.encoding import attributes
from pcircle.fs.attributes.lustre import ATTRIBUTE, RELEASED, Component, Layout, Stripes, parse
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.attributes.xattrs import read_flags
from pcircle.tools.ffind.eval.entry import FindEntry, Test
from pcircle.tools.ffind.language.nodes import compared

_ACLS = ("system.posix_acl_access", "system.posix_acl_default", "system.nfs4_acl")
_CAPABILITY = "security.capability"
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
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


def _names(entry: FindEntry) -> list[str]:
    try:
        return attributes(entry.opened, follow=entry.follow)
    except OSError:  # the file system does not support attributes
        return []


def _any(entry: FindEntry) -> bool:
    return bool(_names(entry))


def _acl(entry: FindEntry) -> bool:
    return any(name in _ACLS for name in _names(entry))


def _capable(entry: FindEntry) -> bool:
    return _CAPABILITY in _names(entry)


def _named(name: bytes) -> Test:
    attribute_name = os.fsdecode(name)
    # A name without a namespace may be in the namespace `user`.
    known = (
        (attribute_name,) if "." in attribute_name else (attribute_name, f"user.{attribute_name}")
    )
    return lambda entry: any(attribute in known for attribute in _names(entry))


def _flags(kind: str, letters: str) -> Test:
    flags = sum(FLAGS[letter] for letter in set(letters))
    known = _KNOWN | flags

    def test(entry: FindEntry) -> bool:
        if entry.letter() not in ("f", "d"):
            return False
        try:
            fd = os.open(
                entry.name, _OPEN | (0 if entry.follow else os.O_NOFOLLOW), dir_fd=entry.fd
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


INODE_TESTS: dict[str, Callable[..., Test]] = {
    "xattr": lambda: _any,
    "xattrname": _named,
    "acl": lambda: _acl,
    "capable": lambda: _capable,
    "flags": _flags,
}


# ---- Lustre layouts ------------------------------------------------------------------------------

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


def _number(name: str, compare: str, limit: int) -> Test:
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


LAYOUT_TESTS: dict[str, Callable[..., Test]] = {
    "layout_number": _number,
    "pool": _pool,
    "released": _released,
}
