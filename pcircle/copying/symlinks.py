"""Copying symbolic links, and leaving be what is to stay: the part of `Copier` without contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from pcircle.copying import target
from pcircle.copying.counts import HARD_LINKS, Counts
from pcircle.copying.extras import Extras, held_by_path
from pcircle.copying.limits import Limits
from pcircle.copying.observing import sign_existing
from pcircle.copying.settings import Settings
from pcircle.copying.target import Names
from pcircle.fs.metadata import settle_link
from pcircle.fs.xattrs import give_attributes
from pcircle.signature import Signer


class LinkCopier:
    """What `Copier` has for links. Its attributes are set there."""

    names: Names
    doing: str
    is_stopping: Callable[[], bool]
    _settings: Settings
    _counters: Counts
    _limits: Limits | None
    _signer: Signer | None
    _extras: Extras

    def is_one_of_several(self, status: os.stat_result, source_fd: int) -> bool:
        """Whether this is a name of several that are to be one in the copy as well.

        A file that links are followed to has as many more. A file may be of another file system
        than its directory: on overlayfs, by a followed link, or by a mount of its own. Several
        nodes may number that differently, so there it is a file of its own, and counted.
        """
        settings = self._settings
        followed = settings.follow and stat.S_ISREG(status.st_mode)
        if not settings.keep.links or not (status.st_nlink > 1 or followed):
            return False
        if settings.one_node or status.st_dev == os.fstat(source_fd).st_dev:
            return True
        self._counters.lose({HARD_LINKS})
        return False

    def skip(self, target_fd: int, name: bytes) -> None:
        """Account for an entry that is left as it is. OSError if it must be read and can't be."""
        if self._signer is not None:
            self.doing = "read what stands for the copy of"
            sign_existing(self._signer, target_fd, name, self.is_stopping)
        self._counters.skipped += 1
        self._counters.sized += 1

    def _stays(self, source_fd: int, source: bytes, target_fd: int, name: bytes) -> bool:
        """Whether what has the name is left as it is, and then accounted for."""
        self.doing = "create the copy of"
        if target.stays(self._settings, source_fd, source, target_fd, name, self.names) is None:
            return False
        self.skip(target_fd, name)
        return True

    def link(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a symbolic link itself. OSError, with `doing`, if it can't be.

        If it has several names that are to be one in the copy as well, and was
        not `claimed`, nothing is done, and its status returned.
        """
        keep = self._settings.keep
        if self._limits is not None:
            self._limits.operations(self._limits.entry)
        existing = self._settings.existing
        # Whether a name of several stays is decided when it is its turn, but for -n.
        early = existing.stays or claimed or not keep.links
        if existing.decides and early and self._stays(source_fd, source, target_fd, name):
            return None
        if keep.links and not claimed:
            status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
            if self.is_one_of_several(status, source_fd):
                return status
            if existing.decides and not early and self._stays(source_fd, source, target_fd, name):
                return None
        self.doing = "read the link"
        text = os.readlink(source, dir_fd=source_fd)
        self.doing = "create the copy of"
        written = name
        made = False
        try:
            try:
                os.symlink(text, name, dir_fd=target_fd)
            except FileExistsError:
                self.names.collisions.check(target_fd, name)
                if self._link_stays(text, target_fd, name):
                    self.skip(target_fd, name)
                    return None
                target.replaceable(target_fd, name)
                written = self.names.next()
                os.symlink(text, written, dir_fd=target_fd)
            made = True
            if keep.any:
                self.doing = "set the attributes of the copy of"
                status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
                held = self._extras.of_link(source_fd, source)
                with held_by_path(target_fd, written, stat.S_IFLNK) as path:
                    if held is not None and held.values:
                        self._extras.account(give_attributes(path, held), target_fd)
                    settle_link(path, status, keep)
            if written != name:
                self.doing = "put in place the copy of"
                os.rename(written, name, src_dir_fd=target_fd, dst_dir_fd=target_fd)
        except OSError as error:
            try:
                target.stop_if_full(error, target_fd, self.names)
            finally:
                if made:
                    target.discard(written, target_fd)
            raise
        self._linked(text)
        return None

    def _linked(self, text: bytes) -> None:
        if self._signer is not None:
            self._signer.link(text)
        self._counters.links += 1
        self._counters.sized += 1

    def _link_stays(self, text: bytes, target_fd: int, name: bytes) -> bool:
        """Whether what has a link's name is left there. If it is to stay, it was not before."""
        existing = self._settings.existing
        if self._settings.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
            return False
        return existing.stays or (existing.same and target.is_link(text, target_fd, name))
