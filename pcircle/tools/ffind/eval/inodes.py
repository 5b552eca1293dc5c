"""Tests of inode data: flags, extended attributes, access control lists, file systems."""

from __future__ import annotations

import os
from collections.abc import Callable

from pcircle.core.encoding import attributes
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.attributes.xattrs import read_flags
from pcircle.tools.ffind.eval.entry import FindEntry, Test

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
    except OSError:  # the file system has no inode flags
        return []


def _any(entry: FindEntry) -> bool:
    return bool(_names(entry))


def _acl(entry: FindEntry) -> bool:
    return any(name in _ACLS for name in _names(entry))


def _capable(entry: FindEntry) -> bool:
    return _CAPABILITY in _names(entry)


def _named(name: bytes) -> Test:
    wanted = os.fsdecode(name)
    # A name without a namespace is in the namespace `user`.
    known = (wanted,) if "." in wanted else (wanted, f"user.{wanted}")
    return lambda entry: any(attribute in known for attribute in _names(entry))


def _flags(kind: str, letters: str) -> Test:
    wanted = sum(FLAGS[letter] for letter in set(letters))
    known = _KNOWN | wanted

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
            return found & wanted == wanted
        return bool(found & wanted) if kind == "/" else found == wanted

    return test


INODE_TESTS: dict[str, Callable[..., Test]] = {
    "xattr": lambda: _any,
    "xattrname": _named,
    "acl": lambda: _acl,
    "capable": lambda: _capable,
    "flags": _flags,
}
