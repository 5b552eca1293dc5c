"""The completed work of an earlier run of this copy, as far as it is still valid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pcircle.fs.attributes.xattrs import lift_flags
from pcircle.ops.checkpoint.journal import NamesRecord, RecordKeys
from pcircle.ops.checkpoint.previous_records import (
    CompletedNames,
    PreviousRecords,
    RecordedDirectory,
    TargetNames,
)
from pcircle.ops.copy.tree.plan import CopyPlan
from pcircle.ops.copy.tree.source_target import Sides

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer


class PreviousRun:
    """The records of the earlier run, `resumed`, compared with what exists now."""

    def __init__(
        self,
        plan: CopyPlan,
        resumed: PreviousRecords,
        keys: RecordKeys,
        sides: Sides,
        signer: Signer | None,
    ) -> None:
        self.resumed = resumed
        self._plan = plan
        self._keys = keys
        self._sides = sides
        self._signer = signer

    def partial(
        self, root: int, path: bytes, listing: TargetNames | None = None
    ) -> CompletedNames | None:
        """Return the completed names of a directory; with a signature, the item takes its entries.

        With a `listing` of the copy, missing names are not completed. NoSpace if entries cannot be
        stored.
        """
        made = self._sides.copy_mark(root, path)

        def trust(record: NamesRecord) -> bool:
            # A directory that was created again has none of the old one's entries.
            same = bool(made) and record.made == made
            same = same and (listing is None or listing.has(record.hashes))
            return same and self._keep_entries(record)

        return self.resumed.partial(root, path, trust)

    def _keep_entries(self, record: NamesRecord) -> bool:
        """Take the entries of a record; return False if they do not match it."""
        keys, signer = self._keys, self._signer
        if signer is None:
            return True
        try:
            signer.restore_entries(record.entries, lambda names: keys.are_of(names, record.hashes))
        except ValueError:
            return False
        return True

    def standing(self, root: int, path: bytes) -> RecordedDirectory:
        """Return the record of a directory and its subtree that is still valid."""
        records = self.resumed.subtrees(root, path)
        if not records:
            return RecordedDirectory()
        now = self._sides.copy_status(root, path)  # by opening it: NFS may cache a plain `stat`
        if now is not None:
            for record in records:
                if (record.made, record.changed) == (now.st_ino, now.st_ctime_ns):
                    return RecordedDirectory(record)
        return RecordedDirectory(modified=True)

    def lift(self, target_fd: int, names: Sequence[bytes]) -> None:
        """Lift the inode flags of files that the earlier run may have completed."""
        if self._plan.keep.flags:
            for name in names:
                with suppress(OSError):  # the file does not exist
                    # Files that are not of this copy keep their flags.
                    if self._plan.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
                        lift_flags(target_fd, name)
