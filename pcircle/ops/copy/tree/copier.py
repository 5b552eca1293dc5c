"""The copier of one worker thread, with its target directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pcircle.fs.directories import Directories
from pcircle.fs.entry_errors import trying
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.files import Copier
from pcircle.ops.copy.entry.overwrite import DestinationExistsError
from pcircle.ops.copy.tree.action_log import Acting
from pcircle.ops.copy.tree.counters import Counters

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer
from pcircle.walk.items import Place


class DirectoryCopier:
    """A `copier` that is told of each directory before anything is copied into it."""

    def __init__(
        self,
        copier: Copier,
        extras: AttributeCopier,
        counters: Counters,
        sources: Directories,
        signer: Signer | None,
        acting: Acting | None,
    ) -> None:
        self.copier = copier
        self._extras = extras
        self._counters = counters
        self._sources = sources
        self._signer = signer
        self._acting = acting

    def enter(self, root: int, path: bytes, place: Place, target_fd: int) -> None:
        """Set the target directory, which is open."""
        self._extras.enter(target_fd, bare=place.bare)
        self.enter_names(root, path, made=place.made)

    def enter_names(self, root: int, path: bytes, *, made: bool) -> None:
        """Set the target directory of names, which this run has `made` or not."""
        self.copier.names.collisions.enter(self._sources, root, path, made=made)
        self.copier.context.recalls.place = root, path
        if self.copier.names.keeper is not None:
            self.copier.names.keeper.enter(root, path)
        if self._acting is not None:
            self._acting.at(root, path)

    def special(
        self, source_fd: int, source: bytes, target_fd: int, name: bytes, *, claimed: bool = True
    ) -> os.stat_result | None:
        """Copy a FIFO, a socket or a device, and count it; see `copy_special`."""
        from pcircle.ops.copy.entry.special_files import copy_special  # few trees have any

        names = (source_fd, source, target_fd, name)
        self.copier.context.observers.attempt(0)
        try:
            status = copy_special(self.copier.context, names, claimed=claimed)
        except DestinationExistsError:
            self.copier.skip(target_fd, name)
            return None
        if status is None:
            if self._signer is not None:
                with trying("read the existing copy of"):
                    made = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
                self._signer.seal_node(made.st_mode, made.st_rdev)
            self._counters.special += 1
            self._counters.sized += 1
            if self._acting is not None:
                self._acting.special(target_fd, name)
        return status
