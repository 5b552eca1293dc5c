"""What an earlier run of this copy has done, as far as it still holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pcircle.checkpoint.journal import NamesRecord, RecordKeys
from pcircle.checkpoint.previous_records import (
    CompletedNames,
    PreviousRecords,
    RecordedDirectory,
    TargetNames,
)
from pcircle.fs.xattrs import lift_flags
from pcircle.transfer.plan import Plan
from pcircle.transfer.worker.sides import Sides

if TYPE_CHECKING:
    from pcircle.signature import Signer


class Earlier:
    """The records of the earlier run, `resumed`, held against what is there now."""

    def __init__(
        self,
        plan: Plan,
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
        """What it has done of a directory; if it is signed, its entries are the item's.

        With a `listing` of the copy, what is not there is not done. NoSpace if entries can't be
        kept.
        """
        made = self._sides.copy_mark(root, path)

        def trust(record: NamesRecord) -> bool:
            # In a directory that was made anew nothing of what was in the old one is done.
            same = bool(made) and record.made == made
            same = same and (listing is None or listing.has(record.hashes))
            return same and self._keep_entries(record)

        return self.resumed.partial(root, path, trust)

    def _keep_entries(self, record: NamesRecord) -> bool:
        """Take over the entries of a record; false if they are not what it tells of."""
        keys, signer = self._keys, self._signer
        if signer is None:
            return True
        try:
            signer.restore_entries(record.entries, lambda names: keys.are_of(names, record.hashes))
        except ValueError:
            return False
        return True

    def standing(self, root: int, path: bytes) -> RecordedDirectory:
        """What it has done of a directory and its subtree, and is still so."""
        records = self.resumed.subtrees(root, path)
        if not records:
            return RecordedDirectory()
        now = self._sides.copy_status(root, path)  # opened: over NFS a mere `stat` may be old
        if now is not None:
            for record in records:
                if (record.made, record.changed) == (now.st_ino, now.st_ctime_ns):
                    return RecordedDirectory(record)
        return RecordedDirectory(modified=True)

    def lift(self, target_fd: int, names: Sequence[bytes]) -> None:
        """Where it may have finished files, let them be replaced."""
        if self._plan.keep.flags:
            for name in names:
                with suppress(OSError):  # it is not there
                    # Others' files stay as protected as they are.
                    if self._plan.is_ours(os.stat(name, dir_fd=target_fd, follow_symlinks=False)):
                        lift_flags(target_fd, name)
