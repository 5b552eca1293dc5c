"""`--since-manifest`: a job before the copy that uses a manifest of B to select entries.

The copy that follows is restricted to a list of these entries, and compares them with the actual
target. Thus a wrong manifest can make a run miss a change, but cannot make it replace or remove
correct data.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.cli.tree_program import TreeConsole, TreeProgram
from pcircle.core.encoding import show
from pcircle.core.errors import StoppedEarly, UsageError
from pcircle.core.writing import discard
from pcircle.fs.lists import Lists, sort
from pcircle.fs.sorting import pieces
from pcircle.ops.compare import fields
from pcircle.ops.compare.manifests import KNOWN, open_verified
from pcircle.ops.digest.manifest import Manifest
from pcircle.runtime import Outcome
from pcircle.tools.fmirror.checks import refuse_inside
from pcircle.tools.fmirror.options import NO_OUTPUT, QUIET, MirrorOptions
from pcircle.tools.fmirror.plan import compared
from pcircle.tools.fmirror.state import proof, state
from pcircle.tools.fmirror.state.state import Lock
from pcircle.tools.fmirror.state.survey import SurveyPlan, SurveyRecords, SurveyTask
from pcircle.tools.fmirror.work.extraneous import ExtraneousPaths, Surplus
from pcircle.walk.attributes import ANY
from pcircle.walk.roots import Root

if TYPE_CHECKING:
    from pcircle.runtime.task import TimeLimit


class ManifestSurveyConsole(TreeConsole):
    """Collects the selected entries on rank 0."""

    _program: ManifestSurvey

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, SurveyRecords):
                self._program.add(value)
            elif isinstance(value, Surplus):
                self._program.found.add(value)

    def conclude(self, outcome: Outcome[dict[int, int]]) -> int:
        self._program.entries = self.total(outcome).found
        return super().conclude(outcome)


class ManifestSurvey(TreeProgram):
    """The program of the survey job.

    On rank 0, its results are `lists`, the extraneous paths `found` and the number of `entries`.
    If the manifest cannot be used, `used` is false, and everything is compared. `is_first` is true
    on rank 0.
    """

    name = "fmirror"
    again = True
    plan_type: ClassVar[type[SurveyPlan]] = SurveyPlan
    task_type: ClassVar[type[SurveyTask]] = SurveyTask
    console_type: ClassVar[type[ManifestSurveyConsole]] = ManifestSurveyConsole

    def __init__(self, options: MirrorOptions, lock: Lock, manifest: str) -> None:
        super().__init__(
            options.replace(**NO_OUTPUT, **QUIET, attribute_filter=ANY), options.sources
        )
        self._mirror, self._lock = options, lock
        self.manifest: bytes = os.fsencode(manifest)
        self.limit: TimeLimit | None = options.time_limit()
        self.used: bool = False
        self.is_first: bool = False
        self.entries = 0
        self.found: ExtraneousPaths = ExtraneousPaths()
        self._records = tempfile.TemporaryFile(prefix="pcircle-list-")  # noqa: SIM115

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ranks in new interpreters, without what only rank 0 uses."""
        return {**vars(self), "found": None, "_records": None, "_lock": None}

    def add(self, notice: SurveyRecords) -> None:
        """Add selected entries. Raise StoppedEarly if there is no space for them."""
        try:
            self._records.write(b"".join(record + b"/" for record in notice.records))
        except OSError as error:
            text = "cannot write the list to the temporary directory"
            raise StoppedEarly(f"{text}: {error.strerror}") from error

    def lists(self) -> Lists | None:
        """Return the selected entries, or None if everything is compared."""
        if not self.used:
            return None
        self._records.seek(0)
        return sort([(0, pieces(self._records, b"/"))])

    def changed(self) -> Iterator[tuple[bytes, bool]]:
        """Yield each path that may have changed, and whether this includes everything below it."""
        self._records.seek(0)
        for record in pieces(self._records, b"/"):
            yield record.rstrip(b"\0").replace(b"\0", b"/"), record.endswith(b"\0")
        for path in self.found.paths():
            yield path, True

    def close_all(self) -> None:
        """Release the disk space of the list."""
        discard(self._records)

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        """Return the fields of the plan. If the manifest cannot be used, nothing is surveyed."""
        self.is_first = True
        options, upkeep = self._mirror, self._mirror.upkeep
        source, target = options.sources[0], options.target
        if roots[0].name:
            raise UsageError(f"'{show(source)}' is not a directory")
        refuse_inside(source, target)
        if not options.dry:
            self._lock.take(options.kept_at, options.state_dir)
        path = os.path.abspath(self.manifest)
        manifest = open_verified(path)
        self._refuse(manifest)
        known = state.read(state.place_of(options.kept_at, options.state_dir))
        why, quiet_ns = self._unfit(known, path)
        self._say(why)
        self.used = not why
        compared_fields = compared(options.keep, privileged=not os.geteuid())
        asks = upkeep.ctime or bool(compared_fields & ~KNOWN)
        compared_fields |= fields.MTIME * (upkeep.look == "time")
        compared_fields |= fields.CONTENT * (upkeep.look == "content")
        return {
            "manifest": path if self.used else b"",
            "target": target,
            "fields": compared_fields & KNOWN,
            "window_ns": upkeep.window_ns,
            "asks": asks,
            "links": options.keep.links,
            "quiet_ns": quiet_ns,
            "device": os.stat(source).st_dev,
            "deleting": options.deleting,
        }

    def _refuse(self, manifest: Manifest) -> None:
        """Raise UsageError if the manifest describes another tree, or cannot be renewed."""
        if manifest.checksum and self._mirror.new_manifest is not None:
            text = (
                f"'{show(self.manifest)}' records checksums of whole files, which are not computed "
                "here; omit --new-manifest, and update it with fsum --update"
            )
            raise UsageError(f"--new-manifest: {text}")
        options, of = self._mirror, manifest.root.name
        paths = os.path.abspath(options.target), os.path.realpath(options.target)
        if options.allow_foreign or of in paths:
            return
        raise UsageError(
            f"'{show(self.manifest)}' is a manifest of "
            f"'{show(of)}', not of '{show(options.target)}'; if that is the same tree, add "
            "--allow-foreign"
        )

    def _unfit(self, known: state.MirrorState | None, path: bytes) -> tuple[str, int]:
        """Return why the manifest cannot replace the target, or an empty string.

        The second value is a time: source entries whose change times are older are unchanged.
        """
        options = self._mirror
        if known is None:
            return "there was no earlier complete run", 0
        why = proof.overdue(options, known) or proof.other_target(options, known)
        identity = state.identity_if_readable(options.sources[0])
        quiet_ns = proof.source_quiet_ns(options, known, identity)
        if not why and quiet_ns is None:
            why = "the last complete run did not record the source, or ran without --ctime"
        if not why and os.stat(path).st_mtime_ns <= known.touched_ns:
            why = "the target may have been changed by a run since the manifest was made"
        return why, 0 if quiet_ns is None else quiet_ns

    def _say(self, why: str) -> None:
        options = self._mirror
        if options.quiet:
            return
        if why:
            self.remark(f"examining the entire target: {why}")
            return
        path = self.manifest
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(path).st_mtime))
        self.remark(
            f"the target is not read: '{show(path)}' of {made} lists its entries; other attributes "
            "are assumed to be as the last complete run left them"
        )

    def remark(self, text: str) -> None:
        """Print a line even though the job is quiet."""
        if not self._mirror.silent:
            super(TreeProgram, self).complain(text)

    def complain(self, text: str) -> None:
        """Print a refusal even though the job is quiet."""
        self._refusal = text
        self.remark(text)
