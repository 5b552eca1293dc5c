"""What the kernel knows of the backing directory: numbered nodes, each a descriptor without rights.

A node holds an O_PATH descriptor, so that it stays itself through renames and after its removal,
and its inode number is not given away. Two names of one file are one node. The cost is a
descriptor for each entry that the kernel remembers.
"""

from __future__ import annotations

import contextlib
import os

from .wire import ROOT

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Node:
    """An entry that the kernel knows; `parent` and `name` are where it was last seen."""

    __slots__ = ("fd", "key", "known", "name", "number", "parent")

    def __init__(self, number: int, fd: int, key: tuple[int, int]) -> None:
        self.number = number
        self.fd = fd
        self.key = key
        self.known = 0  # how many times the kernel was told of it
        self.parent: Node | None = None
        self.name = b""

    @property
    def magic(self) -> bytes:
        """A path to exactly this entry, whatever its name; never followed, even if a link."""
        return b"/proc/self/fd/%d" % self.fd

    def path(self) -> bytes:
        """Where it was last seen, relative to the root."""
        names: list[bytes] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            names.append(node.name)
            node = node.parent
        return b"/".join(reversed(names)) or b"."

    def below(self, name: bytes) -> bytes:
        """The path of a name in this directory."""
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
        """The node of a name, which the kernel then knows once more; OSError if there is none."""
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
        """Note where a node is now."""
        if node.number != ROOT:
            node.parent, node.name = parent, name

    def moved(self, parent: Node, name: bytes) -> None:
        """Note that something was renamed to `name`."""
        with contextlib.suppress(OSError):  # gone again: there is nothing to note
            status = os.stat(name, dir_fd=parent.fd, follow_symlinks=False)
            node = self._by_key.get((status.st_dev, status.st_ino))
            if node is not None:
                self.seen(node, parent, name)

    def forget(self, number: int, times: int) -> None:
        """The kernel forgets a node as often as it was told of it before it is gone."""
        node = self._by_number.get(number)
        if node is None or number == ROOT:
            return
        node.known -= times
        if node.known <= 0:
            del self._by_number[number], self._by_key[node.key]
            os.close(node.fd)


class SideStore:
    """Extended attributes of namespaces that the backing file system does not know.

    Kept in memory by identity of the file, for as long as the mount.
    """

    _KNOWN = (b"user.", b"trusted.", b"security.", b"system.")

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], dict[bytes, bytes]] = {}

    def takes(self, name: bytes) -> bool:
        """Whether an attribute of that name is kept here."""
        return not name.startswith(self._KNOWN)

    def of(self, node: Node) -> dict[bytes, bytes]:
        """The attributes of a node."""
        return self._kept.setdefault(node.key, {})

    def names(self, node: Node) -> list[bytes]:
        """Their names."""
        return list(self._kept.get(node.key, ()))

    def fresh(self, node: Node) -> None:
        """A file was just made: what one with the same number had is over."""
        self._kept.pop(node.key, None)
