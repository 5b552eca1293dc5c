"""Entries of the backing directory that the kernel has: numbered nodes with O_PATH descriptors.

An O_PATH descriptor identifies an entry through renames and after its removal, and its inode number
is not reused. Two names of one file are one node. The cost is a descriptor for each entry that the
kernel remembers.
"""

from __future__ import annotations

import contextlib
import os

from .wire import ROOT

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Node:
    """An entry that the kernel has; `parent` and `name` are its last known path."""

    __slots__ = ("fd", "key", "known", "name", "number", "parent")

    def __init__(self, number: int, fd: int, key: tuple[int, int]) -> None:
        self.number = number
        self.fd = fd
        self.key = key
        self.known = 0  # number of references of the kernel
        self.parent: Node | None = None
        self.name = b""

    @property
    def magic(self) -> bytes:
        """Return a path to exactly this entry, whatever its name; a link is not followed."""
        return b"/proc/self/fd/%d" % self.fd

    def path(self) -> bytes:
        """Return its last known path, relative to the root."""
        names: list[bytes] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            names.append(node.name)
            node = node.parent
        return b"/".join(reversed(names)) or b"."

    def below(self, name: bytes) -> bytes:
        """Return the path of a name in this directory."""
        return name if self.number == ROOT else self.path() + b"/" + name


class Nodes:
    """All nodes by number and by identity."""

    def __init__(self, backing: bytes) -> None:
        fd = os.open(backing, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(fd)
        root = Node(ROOT, fd, (status.st_dev, status.st_ino))
        root.known = 1
        self._by_number = {ROOT: root}
        self._by_key = {root.key: root}
        self._last = ROOT

    def __getitem__(self, number: int) -> Node:
        return self._by_number[number]

    def find(self, parent: Node, name: bytes) -> tuple[Node, os.stat_result]:
        """Return the node of a name and count a reference; OSError if there is none."""
        fd = os.open(name, _FLAGS, dir_fd=parent.fd)
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        node = self._by_key.get(key)
        if node is None:
            self._last += 1
            node = self._by_key[key] = self._by_number[self._last] = Node(self._last, fd, key)
        else:
            os.close(fd)
        node.known += 1
        self.seen(node, parent, name)
        return node, status

    def seen(self, node: Node, parent: Node, name: bytes) -> None:
        """Record the path of a node."""
        if node.number != ROOT:
            node.parent, node.name = parent, name

    def moved(self, parent: Node, name: bytes) -> None:
        """Record that an entry was renamed to `name`."""
        with contextlib.suppress(OSError):  # it has vanished: there is nothing to record
            status = os.stat(name, dir_fd=parent.fd, follow_symlinks=False)
            node = self._by_key.get((status.st_dev, status.st_ino))
            if node is not None:
                self.seen(node, parent, name)

    def forget(self, number: int, times: int) -> None:
        """Drop references of the kernel to a node, and the node with the last one."""
        node = self._by_number.get(number)
        if node is None or number == ROOT:
            return
        node.known -= times
        if node.known <= 0:
            del self._by_number[number], self._by_key[node.key]
            os.close(node.fd)


class SideStore:
    """Extended attributes of namespaces that the backing file system does not support.

    They are in memory by identity of the file, as long as the mount exists.
    """

    _KNOWN = (b"user.", b"trusted.", b"security.", b"system.")

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], dict[bytes, bytes]] = {}

    def takes(self, name: bytes) -> bool:
        """Return whether an attribute is stored here."""
        return not name.startswith(self._KNOWN)

    def of(self, node: Node) -> dict[bytes, bytes]:
        """Return the attributes of a node."""
        return self._kept.setdefault(node.key, {})

    def names(self, node: Node) -> list[bytes]:
        """Return the names of its attributes."""
        return list(self._kept.get(node.key, ()))

    def fresh(self, node: Node) -> None:
        """Drop the attributes of an earlier file with the number of a new one."""
        self._kept.pop(node.key, None)
