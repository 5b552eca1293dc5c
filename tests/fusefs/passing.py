"""The operations of the file system: each is applied to the backing directory and answered.

An operation takes a request and returns the bytes of the answer; an OSError is returned as an
error. Entries are accessed through the descriptors of their nodes, never by path, so renames and
removals need no care. The server runs as root and gives new entries to the requesting user; the
kernel has checked the permissions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from . import wire
from .folding import Folded
from .layouts import NAME as LAYOUT
from .layouts import LustreStore
from .libc import fallocate, rename2
from .nodes import Node, Nodes, SideStore
from .wire import Op

_KEPT_OPEN_FLAGS = os.O_ACCMODE | os.O_TRUNC | os.O_NOATIME


class Request(NamedTuple):
    """One request of the kernel."""

    op: Op
    unique: int
    node: int
    uid: int
    gid: int
    body: bytes | memoryview


class Caching(NamedTuple):
    """Caching by the kernel: names and attributes for a time, contents across opens."""

    attributes_s: float = 0.0
    keep: bool = False  # pages outlive a close, as on a disk
    direct: bool = False  # no page cache at all
    lustre: bool = False  # files and directories have layouts, see `LustreStore`
    times_ns: int = 1  # times of access and modification are truncated to multiples of this
    changes_ns: int = 1  # and change times to multiples of this
    folding: str = ""  # see `Folded`
    parallel: bool = False  # with direct: writes into one file overlap, except those that extend it


class Passing:
    """The operations on the backing directory."""

    def __init__(self, backing: bytes, caching: Caching) -> None:
        self.nodes = Nodes(backing)
        self._cuts = (caching.times_ns, caching.changes_ns)
        self._folded = Folded(caching.folding)
        self._lustre = LustreStore(self.nodes[wire.ROOT]) if caching.lustre else None
        self._side = self._lustre or SideStore()
        self._valid = divmod(round(caching.attributes_s * 1e9), 10**9)
        self._open_flags = (
            wire.KEEP_CACHE * caching.keep
            | wire.DIRECT_IO * caching.direct
            | wire.PARALLEL_WRITES * caching.parallel
        )
        self._listings: dict[int, list[tuple[bytes, int, int]]] = {}
        self._directories: dict[int, Node] = {}
        self._last_listing = 0
        self.table: dict[Op, Callable[[Request], bytes]] = {
            op: getattr(self, f"_{op.name.lower()}")
            for op in Op
            if hasattr(self, f"_{op.name.lower()}")
        }

    @property
    def ignored(self) -> int:
        """Return the number of layouts that were set too late."""
        return 0 if self._lustre is None else self._lustre.ignored

    # Answers.

    def _entry(self, parent: Node, name: bytes) -> bytes:
        node, status = self.nodes.find(parent, name)
        seconds, nanoseconds = self._valid
        return wire.ENTRY.pack(
            node.number, 0, seconds, seconds, nanoseconds, nanoseconds
        ) + wire.attributes(status, *self._cuts)

    def _made(self, request: Request, name: bytes) -> bytes:
        """Give a new entry to the requesting user, and answer with it."""
        parent = self.nodes[request.node]
        group = -1 if os.fstat(parent.fd).st_mode & stat.S_ISGID else request.gid
        os.chown(name, request.uid, group, dir_fd=parent.fd, follow_symlinks=False)
        answer = self._entry(parent, name)
        self._side.fresh(self.nodes[wire.ENTRY.unpack_from(answer)[0]])
        return answer

    def _attributes(self, node: Node) -> bytes:
        return wire.ATTR_VALID.pack(*self._valid, 0) + wire.attributes(
            os.fstat(node.fd), *self._cuts
        )

    # Names.

    def _place(self, number: int, name: bytes) -> tuple[Node, bytes]:
        """Return the directory and the stored name of a name in it."""
        parent = self.nodes[number]
        return parent, self._folded.real(parent.magic, name)

    def _lookup(self, request: Request) -> bytes:
        return self._entry(*self._place(request.node, wire.strings(request.body)[0]))

    def _forget(self, request: Request) -> bytes:
        self.nodes.forget(request.node, *wire.FORGET_IN.unpack_from(request.body))
        return b""

    def _batch_forget(self, request: Request) -> bytes:
        count, _ = wire.BATCH_FORGET_IN.unpack_from(request.body)
        for number in range(count):
            at = wire.BATCH_FORGET_IN.size + number * wire.FORGET_ONE.size
            self.nodes.forget(*wire.FORGET_ONE.unpack_from(request.body, at))
        return b""

    def _mknod(self, request: Request) -> bytes:
        (name,), (mode, device, mask, _) = _named(request, wire.MKNOD_IN)
        parent, name = self._place(request.node, name)
        os.mknod(name, mode & ~mask, device, dir_fd=parent.fd)
        return self._made(request, name)

    def _mkdir(self, request: Request) -> bytes:
        (name,), (mode, mask) = _named(request, wire.MKDIR_IN)
        parent, name = self._place(request.node, name)
        os.mkdir(name, mode & ~mask, dir_fd=parent.fd)
        answer = self._made(request, name)
        if self._lustre is not None:
            made = self.nodes[wire.ENTRY.unpack_from(answer)[0]]
            self._lustre.made_directory(made, parent)
        return answer

    def _symlink(self, request: Request) -> bytes:
        name, text = wire.strings(request.body)
        parent, name = self._place(request.node, name)
        os.symlink(text, name, dir_fd=parent.fd)
        return self._made(request, name)

    def _link(self, request: Request) -> bytes:
        (name,), (old,) = _named(request, wire.LINK_IN)
        parent, name = self._place(request.node, name)
        os.link(self.nodes[old].magic, name, dst_dir_fd=parent.fd, follow_symlinks=True)
        return self._entry(parent, name)

    def _unlink(self, request: Request) -> bytes:
        parent, name = self._place(request.node, wire.strings(request.body)[0])
        os.unlink(name, dir_fd=parent.fd)
        return b""

    def _rmdir(self, request: Request) -> bytes:
        parent, name = self._place(request.node, wire.strings(request.body)[0])
        os.rmdir(name, dir_fd=parent.fd)
        return b""

    def _rename(self, request: Request) -> bytes:
        (old, new), (to,) = _named(request, wire.RENAME_IN)
        return self._renamed(request.node, old, to, new, 0)

    def _rename2(self, request: Request) -> bytes:
        (old, new), (to, flags, _) = _named(request, wire.RENAME2_IN)
        return self._renamed(request.node, old, to, new, flags)

    def _renamed(self, number: int, old: bytes, to: int, new: bytes, flags: int) -> bytes:
        (source, old), (target, new) = self._place(number, old), self._place(to, new)
        rename2(source.fd, old, target.fd, new, flags)
        self.nodes.moved(target, new)
        self.nodes.moved(source, old)  # an exchange
        return b""

    def _readlink(self, request: Request) -> bytes:
        return os.readlink(b"", dir_fd=self.nodes[request.node].fd)

    # Attributes.

    def _getattr(self, request: Request) -> bytes:
        return self._attributes(self.nodes[request.node])

    def _setattr(self, request: Request) -> bytes:
        (
            valid,
            _,
            handle,
            size,
            _,
            atime,
            mtime,
            _,
            atime_ns,
            mtime_ns,
            _,
            mode,
            _,
            uid,
            gid,
            _,
        ) = wire.SETATTR_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        if valid & (wire.SET_UID | wire.SET_GID):
            new_uid = uid if valid & wire.SET_UID else -1
            os.chown(node.magic, new_uid, gid if valid & wire.SET_GID else -1)
        if valid & wire.SET_SIZE:
            os.truncate(handle if valid & wire.SET_BY_HANDLE else node.magic, size)
        if valid & wire.SET_MODE:
            os.chmod(node.magic, stat.S_IMODE(mode))
        if valid & (wire.SET_ATIME | wire.SET_MTIME):
            status, now = os.fstat(node.fd), time.time_ns()
            atime_all = atime * 10**9 + atime_ns if valid & wire.SET_ATIME else status.st_atime_ns
            mtime_all = mtime * 10**9 + mtime_ns if valid & wire.SET_MTIME else status.st_mtime_ns
            atime_all = now if valid & wire.SET_ATIME_NOW else atime_all
            mtime_all = now if valid & wire.SET_MTIME_NOW else mtime_all
            os.utime(node.magic, ns=(atime_all, mtime_all))
        return self._attributes(node)

    def _statfs(self, request: Request) -> bytes:
        s = os.statvfs(self.nodes[request.node].magic)
        return wire.STATFS_OUT.pack(
            s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree,
            s.f_bsize, s.f_namemax, s.f_frsize, 0,
        )  # fmt: skip

    def _setxattr(self, request: Request) -> bytes:
        size, flags = wire.SETXATTR_IN.unpack_from(request.body)
        name, _, tail = bytes(request.body[wire.SETXATTR_IN.size :]).partition(b"\0")
        value, node = tail[:size], self.nodes[request.node]
        if not self._side.takes(name):
            os.setxattr(node.magic, name, value, flags)
            return b""
        if self._lustre is not None and name == LAYOUT:
            self._lustre.set_layout(node, value)
            return b""
        attributes = self._side.of(node)
        if flags & os.XATTR_CREATE and name in attributes:
            raise OSError(errno.EEXIST, "")
        if flags & os.XATTR_REPLACE and name not in attributes:
            raise OSError(errno.ENODATA, "")
        attributes[name] = value
        return b""

    def _getxattr(self, request: Request) -> bytes:
        (name,), (room, _) = _named(request, wire.GETXATTR_IN)
        node = self.nodes[request.node]
        if not self._side.takes(name):
            return _fitting(os.getxattr(node.magic, name), room)
        value = self._side.of(node).get(name)
        if value is None and name == LAYOUT:
            value = self._default_of(node)
        if value is None:
            raise OSError(errno.ENODATA, "")
        return _fitting(value, room)

    def _default_of(self, node: Node) -> bytes | None:
        if self._lustre is None or not stat.S_ISDIR(os.fstat(node.fd).st_mode):
            return None
        return self._lustre.default_of(node)

    def _listxattr(self, request: Request) -> bytes:
        room, _ = wire.GETXATTR_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        names = [os.fsencode(name) for name in os.listxattr(node.magic)] + self._side.names(node)
        return _fitting(b"".join(name + b"\0" for name in names), room)

    def _removexattr(self, request: Request) -> bytes:
        (name,) = wire.strings(request.body)
        node = self.nodes[request.node]
        if not self._side.takes(name):
            os.removexattr(node.magic, name)
        elif self._side.of(node).pop(name, None) is None:
            raise OSError(errno.ENODATA, "")
        return b""

    # Files.

    def _open(self, request: Request) -> bytes:
        flags, _ = wire.OPEN_IN.unpack_from(request.body)
        node = self.nodes[request.node]
        fd = os.open(node.magic, flags & _KEPT_OPEN_FLAGS | os.O_CLOEXEC)
        if self._lustre is not None:
            self._lustre.opened(node, flags)
        return wire.OPEN_OUT.pack(fd, self._open_flags, 0)

    def _create(self, request: Request) -> bytes:
        (name,), (flags, mode, mask, _) = _named(request, wire.CREATE_IN)
        parent, name = self._place(request.node, name)
        open_flags = flags & (_KEPT_OPEN_FLAGS | os.O_EXCL)
        made = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, open_flags | made, mode & ~mask & 0o7777, dir_fd=parent.fd)
        try:
            answer = self._made(request, name)
        except OSError:
            os.close(fd)
            raise
        if self._lustre is not None:
            number = wire.ENTRY.unpack_from(answer)[0]
            self._lustre.opened(self.nodes[number], flags, parent)
        return answer + wire.OPEN_OUT.pack(fd, self._open_flags, 0)

    def _read(self, request: Request) -> bytes:
        handle, offset, count, *_ = wire.READ_IN.unpack_from(request.body)
        return os.pread(handle, count, offset)

    def _write(self, request: Request) -> bytes:
        if self._lustre is not None:
            self._lustre.demand_layout(self.nodes[request.node])
        handle, offset, count, *_ = wire.READ_IN.unpack_from(request.body)
        size = wire.READ_IN.size
        return wire.WRITE_OUT.pack(os.pwrite(handle, request.body[size : size + count], offset), 0)

    def _flush(self, request: Request) -> bytes:
        return b""

    def _release(self, request: Request) -> bytes:
        os.close(wire.RELEASE_IN.unpack_from(request.body)[0])
        return b""

    def _fsync(self, request: Request) -> bytes:
        os.fsync(wire.FSYNC_IN.unpack_from(request.body)[0])
        return b""

    def _lseek(self, request: Request) -> bytes:
        handle, offset, whence, _ = wire.LSEEK_IN.unpack_from(request.body)
        return wire.LSEEK_OUT.pack(os.lseek(handle, offset, whence))

    def _fallocate(self, request: Request) -> bytes:
        handle, offset, length, mode, _ = wire.FALLOCATE_IN.unpack_from(request.body)
        fallocate(handle, mode, offset, length)
        return b""

    def _copy_file_range(self, request: Request) -> bytes:
        source, at, into, target, to, count, _ = wire.COPY_IN.unpack_from(request.body)
        if self._lustre is not None:
            self._lustre.demand_layout(self.nodes[into])
        return wire.WRITE_OUT.pack(os.copy_file_range(source, target, count, at, to), 0)

    def _syncfs(self, request: Request) -> bytes:
        fd = os.open(self.nodes[wire.ROOT].magic, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return b""

    # Directories. A listing is taken at offset 0, so it is consistent while names appear and
    # vanish.

    def _opendir(self, request: Request) -> bytes:
        self._last_listing += 1
        self._directories[self._last_listing] = self.nodes[request.node]
        return wire.OPEN_OUT.pack(self._last_listing, 0, 0)

    def _releasedir(self, request: Request) -> bytes:
        handle = wire.RELEASE_IN.unpack_from(request.body)[0]
        self._listings.pop(handle, None)
        del self._directories[handle]
        return b""

    def _fsyncdir(self, request: Request) -> bytes:
        return self._syncfs(request)

    def _listing(self, handle: int, offset: int) -> list[tuple[bytes, int, int]]:
        if offset == 0 or handle not in self._listings:
            fd = os.open(self._directories[handle].magic, os.O_RDONLY | os.O_DIRECTORY)
            try:
                own = os.fstat(fd).st_ino
                found = [(b".", own, stat.S_IFDIR >> 12), (b"..", own, stat.S_IFDIR >> 12)]
                for name in os.listdir(fd):
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    shown = self._folded.listed(os.fsencode(name))
                    found.append((shown, status.st_ino, status.st_mode >> 12))
            finally:
                os.close(fd)
            self._listings[handle] = found
        return self._listings[handle]

    def _readdir(self, request: Request) -> bytes:
        return self._read_directory(request, plus=False)

    def _readdirplus(self, request: Request) -> bytes:
        return self._read_directory(request, plus=True)

    def _read_directory(self, request: Request, *, plus: bool) -> bytes:
        handle, offset, room, *_ = wire.READ_IN.unpack_from(request.body)
        out: list[bytes] = []
        parent = self._directories[handle]
        for number, (name, inode, kind) in enumerate(self._listing(handle, offset)):
            if number < offset:
                continue
            record = wire.DIRENT.pack(inode, number + 1, len(name), kind) + name
            record += bytes(-len(record) % 8)
            room -= len(record) + plus * (wire.ENTRY.size + wire.ATTR.size)
            if room < 0:
                break
            if plus:
                record = self._entry_if_there(parent, name) + record
            out.append(record)
        return b"".join(out)

    def _entry_if_there(self, parent: Node, name: bytes) -> bytes:
        """Return the node of a listed name; node 0 stands for dots and vanished entries."""
        if name not in (b".", b".."):
            with contextlib.suppress(OSError):
                return self._entry(parent, name)
        return bytes(wire.ENTRY.size + wire.ATTR.size)


def _named(request: Request, layout: Struct) -> tuple[list[bytes], tuple[Any, ...]]:
    """Return the names after a request's structure, and the structure."""
    fields = layout.unpack_from(request.body)
    return wire.strings(request.body[layout.size :]), fields


def _fitting(value: bytes, room: int) -> bytes:
    """Return an attribute's value, or only its length if it was requested."""
    if room == 0:
        return wire.WRITE_OUT.pack(len(value), 0)
    if len(value) > room:
        raise OSError(errno.ERANGE, "")
    return value
