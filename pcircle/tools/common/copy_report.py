"""The result of a copy: the report, its text, and signatures.

With `--signature`, data is digested as it is being copied, so that it is read only once. For this
purpose the process itself must read all data, so nothing is cloned or copied by the kernel. The
data passes through the rank's signer (`pcircle.ops.digest.signer`), and the digests are sent to
rank 0 with the results.

The signature covers the entries of the source as they exist in the target. If an entry was left
unchanged, it was not read in the source, so it is read in the target. Failed entries are missing
from the digests, and rank 0 identifies them by their failure notices. A checkpoint contains the
digests of completed work, so a resumed copy does not read completed files again.

This module contains only the part of rank 0. The signer of each rank belongs to its worker
(`pcircle.ops.copy.tree.worker`), and exists only with this option.
"""

from __future__ import annotations

from collections.abc import Sequence

from pcircle.cli.console import miscounted, unsettled
from pcircle.cli.report import ReadReport, RootSignature, only_signature
from pcircle.core.encoding import show
from pcircle.core.units import format_duration, format_rates, format_size, plural
from pcircle.jobs.failures import FailedEntry, Failure
from pcircle.ops.copy.entry.counts import HARD_LINKS
from pcircle.ops.copy.tree.counters import CopyCounters, totals
from pcircle.ops.copy.tree.items import CopyResult, Remark, SkippedSpecial
from pcircle.runtime import RankReport


class Signatures:
    """Computes the signatures of the roots on rank 0.

    `shown` are the paths of the copies as shown in messages.
    """

    def __init__(self, name: str, shown: tuple[bytes, ...]) -> None:
        from pcircle.ops.digest import get_algorithm  # few runs sign

        self._algorithm = get_algorithm(name)
        self._shown = shown
        self._failed: set[int] = set()
        self._lacking: set[int] = set()

    def failed(self, failure: Failure) -> None:
        """Record a failed entry."""
        self._failed.add(failure.root)

    def skipped(self, skipped: SkippedSpecial) -> None:
        """Record that a special file of a tree was skipped."""
        self._lacking.add(skipped.root)

    @property
    def is_lacking(self) -> bool:
        """Return whether a signature cannot be computed because special files were skipped."""
        return bool(self._lacking)

    def why(self, root: int) -> str:
        """Return why a root has no signature."""
        if root in self._lacking and root not in self._failed:
            return "special files in it were skipped: add -a to copy and sign them"
        return "some entries could not be copied"

    def results(
        self, result: CopyResult | None, *, failures: int, entries: int
    ) -> list[tuple[bytes, str | None]]:
        """Return the path of each root with its signature, or None if it has no signature.

        `failures` and `entries` are the totals of the job. Raise ValueError if the number of signed
        entries is not `entries`, although nothing has failed.
        """
        from pcircle.ops.digest import format_signature, iter_entries

        if result is None or (failures and not self._failed):
            return [(shown, None) for shown in self._shown]
        if not failures and result.roots.signed != entries:
            signed = result.roots.signed
            raise ValueError(f"{entries} entries were completed, but {signed} were signed")
        size = self._algorithm.size
        entries_found = iter_entries(b"".join(result.roots.runs), size)
        texts = {
            int(name): format_signature(self._algorithm, e[-size:]) for name, e in entries_found
        }
        return [
            (shown, None if root in self._failed | self._lacking else texts.get(root))
            for root, shown in enumerate(self._shown)
        ]


SCHEMA = 1

_NOT_HELD = "destination does not support them, or they cannot be read"


class CopyReport(ReadReport, frozen=True):
    """The result of a copy.

    `entries` counts the copied entries. `not_kept` counts the entries for each kind of attribute
    that could not be preserved. `special_skipped` counts the special files that were skipped
    because -a was not given. They are not included in `skipped`. `directories` includes
    `directories_created` and `directories_touched`. The latter counts existing directories whose
    attributes were updated. In a resumed run, both include directories that an earlier run started
    but did not complete. `resumed` counts the entries of an earlier run. These and their bytes are
    included in the counts, but not in the rates.
    """

    dry_run: bool
    sources: tuple[str, ...]
    target: str
    found: int
    not_kept: dict[str, int]
    skipped: int
    special_skipped: int
    resumed: int
    resumed_bytes: int
    directories_created: int = 0
    directories_touched: int = 0
    signatures: tuple[RootSignature, ...] = ()

    @property
    def signature(self) -> str:
        """Return the signature of the only copy, if it was requested.

        Raises EntriesFailed if entries could not be read, and ValueError if there are several,
        or none.
        """
        return only_signature(self.signatures)


def described(remark: Remark) -> str:
    """Return the text of a remark, including its path."""
    path = f"'{show(remark.path)}'"
    if "{}" in remark.text:
        return remark.text.replace("{}", path, 1)
    return f"{path} {remark.text}"


def describe_losses(not_kept: dict[str, int]) -> list[str]:
    """Return a line for each kind of attribute that could not be preserved."""
    return [
        f"{kind} of {plural(count, 'entry', 'entries')} were not kept: "
        + ("each became a separate file" if kind == HARD_LINKS else _NOT_HELD)
        for kind, count in not_kept.items()
    ]


def account(
    total: CopyCounters, reports: Sequence[RankReport], failures: Sequence[FailedEntry]
) -> str | None:
    """Return an error if the counts of a successful job are inconsistent, or None.

    Entries and bytes are counted as found when the source is read, and as settled when the target
    is written. Bytes can be compared only if no entry has failed. The error names a file that
    contains all counts.
    """
    text = unsettled(total)
    if not text and not total.failed and total.bytes_found != total.bytes_done:
        text = f"{total.bytes_found} bytes were found, but {total.bytes_done} accounted for"
    known = [f"all ranks: {total}"]
    known += [f"rank {report.rank}: {totals(report.counts)}" for report in reports]
    known += [f"failed: {failure}" for failure in failures]
    return miscounted(text, "\n".join(known)) if text else None


def summary(
    report: CopyReport,
    target: str | None = None,
    touched: int = 0,
    idle: str = "nothing to do",
    *,
    resumes: bool = False,
) -> str:
    """Return the last line of a run: entries, bytes, destination, time and rates.

    `touched` counts entries, other than directories, whose attributes alone were updated. If
    nothing was done, the line contains `idle`. In a run that `resumes`, all directories count as
    copied, because an earlier run may have created them.
    """
    resumes = resumes or report.resumed > 0
    made = report.directories if resumes else report.directories_created
    touched += 0 if resumes else report.directories_touched
    checked = report.directories - made
    there = report.target if target is None else target
    took = f"in {format_duration(report.elapsed_s)}"
    stay = [f"{plural(report.skipped, 'entry', 'entries')} skipped"] if report.skipped else []
    stay += [f"{plural(checked, 'directory', 'directories')} checked"] if checked else []
    special = []
    if report.special_skipped:
        special = [f"{plural(report.special_skipped, 'special file', 'special files')} skipped"]
    touched_entries = plural(touched, "entry", "entries")
    is_set = (
        f"would update attributes of {touched_entries}"
        if report.dry_run
        else f"attributes of {touched_entries} updated"
    )
    if _was_idle(report):
        done = is_set if touched else idle
        stay = special + stay
        done = f"{done}: {', '.join(stay)} in '{there}' {took}" if stay else f"{done} {took}"
    else:
        done = f"{_copied(report, made)} to '{there}' {took}"
        if not report.dry_run:
            share = 1 - checked / report.entries if report.entries else 1.0
            rates = format_rates(report.bytes_per_s, report.entries_per_s * share)
            done = f"{done}: {rates}" if rates else done
        if report.resumed:
            size = format_size(report.resumed_bytes)
            earlier = plural(report.resumed, "entry", "entries")
            done = f"{done}, including {earlier} ({size}) from an earlier run"
        stay += [is_set] if touched else []
        stay += special
        done = f"{done}; {', '.join(stay)}" if stay else done
    if report.failed:
        done = f"{plural(report.failed, 'entry', 'entries')} failed; {done}"
    return done


def _copied(report: CopyReport, made: int) -> str:
    """Describe what was copied or would be copied, including `made` directories."""
    kinds = [
        plural(report.files, "file", "files"),
        plural(made, "directory", "directories"),
        plural(report.links, "link", "links"),
    ]
    if report.special:
        kinds.append(plural(report.special, "special file", "special files"))
    verb = "would copy" if report.dry_run else "copied"
    entries = plural(report.entries - report.directories + made, "entry", "entries")
    return f"{verb} {entries} ({', '.join(kinds)}), {format_size(report.bytes)}"


def _was_idle(report: CopyReport) -> bool:
    """Return whether the run succeeded and did not copy any entry."""
    if report.failed or report.exit_code:
        return False
    return not (report.files or report.links or report.special or report.directories_created)
