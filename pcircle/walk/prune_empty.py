"""Detection of directories that contain only directories, before they are entered.

Most directories have a file among their first names, so for most this is one more listing.
Subdirectories of an empty one are not listed again, because it is excluded as a whole.
"""

from __future__ import annotations

import os

from pcircle.fs.directories import join_path, open_below
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.walk.filter import choosing
from pcircle.walk.walker import Scope


class Emptiness:
    """Detects directories that are empty within a scope."""

    def __init__(self, scope: Scope) -> None:
        self._choose = choosing(scope.rules, scope.wanted, scope.now_ns, follow=scope.follow)
        self._stays = scope.one_file_system
        self._filled = b""  # the last one below which something was found: so those above it

    def without_empty(self, block: Block, path: bytes, directory_fd: int) -> None:
        """Remove empty directories from a block of the open directory with this path."""
        if block.directories:
            names = zip(block.directories, encoded(block.directories), strict=True)
            block.directories = [
                text for text, name in names if not self.is_empty(path, name, directory_fd)
            ]

    def is_empty(self, path: bytes, name: bytes, directory_fd: int) -> bool:
        """Return whether a subdirectory is empty; False if unknown."""
        waiting = [name]
        if (self._filled + b"/").startswith(join_path(path, name) + b"/"):
            return False
        device = os.fstat(directory_fd).st_dev
        while waiting:
            below = waiting.pop()
            try:
                fd = open_below(directory_fd, below)
            except OSError:
                return False
            try:
                if self._stays and os.fstat(fd).st_dev != device:
                    continue
                for block in blocks(fd):
                    self._choose(block, join_path(path, below), fd)
                    if block.files or block.links or block.specials:
                        self._filled = join_path(path, below)
                        return False
                    waiting += [join_path(below, child) for child in encoded(block.directories)]
            except OSError:
                return False
            finally:
                os.close(fd)
        return True
