"""Trees and their overnight changes: seeds for everything that a mirror must follow.

A tree has a few names in a few directories, which edits reuse, so that they interact: a file may
become a directory, and a hard link of another file the day after.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from random import Random

from pcircle.fs.attributes.acls import ACCESS
from tests.tools.fcp.trees import remove_tree

NAMES = (b"a", b"b", b"c", b"d e", b"\xff\x01", b"-n", b"long" * 20)
_SECOND = 10**9
_BASE_NS = 1_700_000_000 * _SECOND
LIST = bytes.fromhex(
    "0200000001000600ffffffff020004000100000004000400ffffffff10000600ffffffff20000400ffffffff"
)
"""An access control list: user 1 may read."""


class Tree:
    """A tree at `top`, created and changed by a seed."""

    def __init__(self, top: bytes, seed: int) -> None:
        self.top = top
        self.seed = seed
        self.random = Random(seed)
        os.makedirs(top, exist_ok=True)
        self._clock_ns = _BASE_NS
        for _ in range(self.random.randrange(5, 25)):
            self.edit()

    def edit(self) -> None:
        """Make one random change."""
        random = self.random
        path = self._any_path()
        edits: tuple[Callable[[bytes], None], ...] = (
            self._file, self._file, self._directory, self._directory, self._link, self._special,
            self._hard_link, self._hard_link, self._remove, self._append, self._mode, self._owner,
            self._times, self._attribute, self._list, self._rename,
        )  # fmt: skip
        random.choice(edits)(path)

    def _directories(self) -> list[bytes]:
        return [here for here, _, _ in os.walk(self.top)]

    def _any_path(self) -> bytes:
        return os.path.join(self.random.choice(self._directories()), self.random.choice(NAMES))

    def _entries(self) -> list[bytes]:
        found = []
        for here, directories, files in os.walk(self.top):
            found += [os.path.join(here, name) for name in sorted(directories + files)]
        return found

    def _existing(self, *kinds: int) -> bytes | None:
        entries = self._entries()
        if kinds:
            entries = [e for e in entries if stat.S_IFMT(os.lstat(e).st_mode) in kinds]
        return self.random.choice(entries) if entries else None

    def _free(self, path: bytes) -> None:
        if os.path.lexists(path):
            self._remove_at(path)

    def _remove_at(self, path: bytes) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)

    # ---- edits -----------------------------------------------------------------

    def _file(self, path: bytes) -> None:
        self._free(path)
        with open(path, "xb") as stream:
            stream.write(self.random.randbytes(self.random.choice((0, 1, 100, 5000, 200_000))))
        self._stamp(path)

    def _append(self, path: bytes) -> None:
        file = self._existing(stat.S_IFREG)
        if file is not None:
            with open(file, "ab") as stream:
                stream.write(b"more")
            self._stamp(file)

    def _directory(self, path: bytes) -> None:
        self._free(path)
        os.mkdir(path)

    def _link(self, path: bytes) -> None:
        self._free(path)
        os.symlink(self.random.choice((b"a", b"../b", b"/nowhere", b"\xfe")), path)

    def _special(self, path: bytes) -> None:
        self._free(path)
        if self.random.random() < 0.5:
            os.mkfifo(path)
        else:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, self.random.choice((3, 5))))

    def _hard_link(self, path: bytes) -> None:
        file = self._existing(stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO)
        if file is not None and file != path and not file.startswith(path + b"/"):
            self._free(path)
            os.link(file, path, follow_symlinks=False)

    def _remove(self, path: bytes) -> None:
        entry = self._existing()
        if entry is not None:
            self._remove_at(entry)

    def _rename(self, path: bytes) -> None:
        entry = self._existing()
        if entry is None or path == entry or path.startswith(entry + b"/"):
            return
        if entry.startswith(path + b"/"):
            return
        self._free(path)
        os.rename(entry, path)

    def _mode(self, path: bytes) -> None:
        entry = self._existing(stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO)
        if entry is not None:
            os.chmod(entry, self.random.choice((0o600, 0o644, 0o755, 0o4711, 0o2775, 0o1777)))

    def _owner(self, path: bytes) -> None:
        entry = self._existing()
        if entry is not None:
            os.chown(entry, self.random.choice((0, 1, 2)), 3, follow_symlinks=False)

    def _times(self, path: bytes) -> None:
        entry = self._existing()
        if entry is not None:
            self._stamp(entry)

    def _stamp(self, path: bytes) -> None:
        self._clock_ns += self.random.choice((1, _SECOND, 86_400 * _SECOND))
        os.utime(path, ns=(self._clock_ns, self._clock_ns), follow_symlinks=False)

    def _attribute(self, path: bytes) -> None:
        entry = self._existing(stat.S_IFREG, stat.S_IFDIR)
        if entry is None:
            return
        if self.random.random() < 0.3:
            for name in os.listxattr(entry):
                if name.startswith("user."):
                    os.removexattr(entry, name)
        else:
            name = self.random.choice(("user.one", "user.two"))
            os.setxattr(entry, name, self.random.randbytes(5))

    def _list(self, path: bytes) -> None:
        entry = self._existing(stat.S_IFREG, stat.S_IFDIR)
        if entry is None:
            return
        if self.random.random() < 0.3 and ACCESS in os.listxattr(entry):
            os.removexattr(entry, ACCESS)
        else:
            os.setxattr(entry, ACCESS, LIST)


def copy_of(source: bytes, target: bytes) -> None:
    """Copy a tree, to represent its state of the night before."""
    subprocess.run(["cp", "-a", source, target], check=True)


def cleared(place: bytes) -> tuple[bytes, bytes]:
    """Return paths of a source and a target that do not exist and have no saved state."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)
    return place + b"/a", place + b"/b"
