"""Copying symbolic links themselves."""

from __future__ import annotations

import os
import stat

from pcircle.copying import target
from pcircle.copying.extras import held_by_path
from pcircle.copying.means import Means
from pcircle.fs.metadata import settle_link
from pcircle.fs.trouble import trying
from pcircle.fs.xattrs import give_attributes


class LinkCopier:
    """Copies links with these means."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def link(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a symbolic link itself. OSError, which says what was tried, if it can't be.

        If it has several names that are to be one in the copy as well, and was
        not `claimed`, nothing is done, and its status returned.
        """
        means, names = self._means, (source_fd, source, target_fd, name)
        keep, existing = means.settings.keep, means.settings.existing
        means.watch.attempt(0)
        # Whether a name of several stays is decided when it is its turn, but for -n.
        early = existing.stays or claimed or not keep.links
        if existing.decides and early and means.stays(*names):
            return None
        with trying("read the link"):
            if keep.links and not claimed:
                status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
                if means.is_one_of_several(status, source_fd):
                    return status
                if existing.decides and not early and means.stays(*names):
                    return None
            text = os.readlink(source, dir_fd=source_fd)
        with trying("create the copy of"):
            if not self._copy(text, *names):
                means.skip(target_fd, name)
                return None
        means.watch.link(text)
        means.counts.links += 1
        means.counts.sized += 1
        return None

    def _copy(
        self, text: bytes, source_fd: int, source: bytes, target_fd: int, name: bytes
    ) -> bool:
        """Make a link of this text; false if what has the name stays."""
        means, written, made = self._means, name, False
        try:
            try:
                os.symlink(text, name, dir_fd=target_fd)
            except FileExistsError:
                means.names.collisions.check(target_fd, name)
                if self._stays(text, target_fd, name):
                    return False
                target.replaceable(target_fd, name)
                written = means.names.next()
                os.symlink(text, written, dir_fd=target_fd)
            made = True
            if means.settings.keep.any:
                with trying("set the attributes of the copy of"):
                    self._settle(source_fd, source, target_fd, written)
            if written != name:
                with trying("put in place the copy of"):
                    os.rename(written, name, src_dir_fd=target_fd, dst_dir_fd=target_fd)
        except OSError as error:
            try:
                target.stop_if_full(error, target_fd, means.names)
            finally:
                if made:
                    target.discard(written, target_fd)
            raise
        return True

    def _settle(self, source_fd: int, source: bytes, target_fd: int, written: bytes) -> None:
        extras = self._means.extras
        status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
        held = extras.of_link(source_fd, source)
        with held_by_path(target_fd, written, stat.S_IFLNK) as path:
            if held is not None and held.values:
                extras.account(give_attributes(path, held), target_fd)
            settle_link(path, status, self._means.settings.keep)

    def _stays(self, text: bytes, target_fd: int, name: bytes) -> bool:
        """Whether what has a link's name is left there. If it is to stay, it was not before."""
        settings = self._means.settings
        existing = settings.existing
        if settings.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
            return False
        return existing.stays or (existing.same and target.is_link(text, target_fd, name))
