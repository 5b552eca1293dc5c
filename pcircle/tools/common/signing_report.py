"""`--signature`: digests of the copied data, from the same read that copies it.

A copier that signs reads, so nothing is cloned or copied by the kernel. The data goes through the
rank's signer (`pcircle.ops.digest.signer`), and digests go to rank 0 with the results.

The signature covers the entries of the source as they are in the destination: an entry that was
left unchanged was not read from the source, so it is read in the target. Failed entries leave a
gap, which rank 0 knows from their failures. A checkpoint keeps the digests of completed work, so a
resumed copy reads nothing again.

This module is rank 0's part; a rank's signer belongs to its `pcircle.ops.copy.tree.worker`.
Without the option there is no signer.
"""

from __future__ import annotations

from pcircle.jobs.failures import Failure
from pcircle.ops.copy.tree.items import Done, Skipped
from pcircle.ops.digest import format_signature, get_algorithm, iter_entries


class Signatures:
    """The signatures of the roots, on rank 0.

    `shown` are the paths of the copies for messages.
    """

    def __init__(self, name: str, shown: tuple[bytes, ...]) -> None:
        self._algorithm = get_algorithm(name)
        self._shown = shown
        self._failed: set[int] = set()
        self._lacking: set[int] = set()

    def failed(self, failure: Failure) -> None:
        """Record a failed entry."""
        self._failed.add(failure.root)

    def skipped(self, skipped: Skipped) -> None:
        """Record a special file that was left out of a tree."""
        self._lacking.add(skipped.root)

    @property
    def is_lacking(self) -> bool:
        """Return whether a signature is missing because special files were left out."""
        return bool(self._lacking)

    def why(self, root: int) -> str:
        """Return why a root has no signature."""
        if root in self._lacking and root not in self._failed:
            return "special files in it were skipped: add -a to copy and sign them"
        return "some entries could not be copied"

    def results(
        self, result: Done | None, *, failures: int, entries: int
    ) -> list[tuple[bytes, str | None]]:
        """Return each root with its signature, or None.

        `failures` and `entries` are the totals of the job. ValueError if the signed entries differ
        from these.
        """
        if result is None or (failures and not self._failed):
            return [(shown, None) for shown in self._shown]
        if not failures and result.roots.signed != entries:
            raise ValueError(f"{entries} entries were settled, but {result.roots.signed} signed")
        size = self._algorithm.size
        entries_found = iter_entries(b"".join(result.roots.runs), size)
        texts = {
            int(name): format_signature(self._algorithm, e[-size:]) for name, e in entries_found
        }
        return [
            (shown, None if root in self._failed | self._lacking else texts.get(root))
            for root, shown in enumerate(self._shown)
        ]
