"""`--signature`: digests of what is copied, from the same read that copies it.

A copier that signs reads, so nothing is cloned or copied by the kernel; what
passes goes to the rank's signer (`pcircle.signature.signer`), and with the results
to rank 0.

The signature is of what stands in the destination for the entries of the
source: what was left as it is was not read from the source, so it is read
where it is. Failed entries leave a gap, which is rank 0's to know: it hears of
each failure, and which root it is in. A checkpoint keeps the digests of what is
done, so that a resumed copy reads nothing again.

Here is what rank 0 makes of it; a rank's signer belongs to its `pcircle.transfer.worker.worker`.
Without the option there is no signer and nothing of this is done.
"""

from __future__ import annotations

from pcircle.signature import format_signature, get_algorithm, iter_entries
from pcircle.tool.failures import Failure
from pcircle.transfer.items import Done, Skipped


class Signatures:
    """Rank 0's view: which roots can have a signature, and what they are.

    `shown` are the roots' copies as the user knows them.
    """

    def __init__(self, name: str, shown: tuple[bytes, ...]) -> None:
        self._algorithm = get_algorithm(name)
        self._shown = shown
        self._failed: set[int] = set()
        self._lacking: set[int] = set()

    def failed(self, failure: Failure) -> None:
        """An entry could not be copied."""
        self._failed.add(failure.root)

    def skipped(self, skipped: Skipped) -> None:
        """A special file was left out of a tree."""
        self._lacking.add(skipped.root)

    @property
    def is_lacking(self) -> bool:
        """Whether something has no signature because special files were left out."""
        return bool(self._lacking)

    def why(self, root: int) -> str:
        """Why a root has no signature."""
        if root in self._lacking and root not in self._failed:
            return "special files in it were skipped: add -a to copy and sign them"
        return "some entries could not be copied"

    def results(
        self, result: Done | None, *, failures: int, entries: int
    ) -> list[tuple[bytes, str | None]]:
        """Each root with its signature, None if it has none.

        `failures` and `entries` are the accounts of the job. ValueError if
        the entries that were signed are not those.
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
