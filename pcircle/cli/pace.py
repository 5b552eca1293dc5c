"""The rate of a job, and the estimate of its remaining time.

The estimate assumes that remaining work takes as long as similar work has taken so far. Known work
is measured in bytes, unknown work in entries of average size. The time of an entry and of a byte is
fitted to the course of the job, because entries may dominate its beginning and bytes its end.

One large file among thousands of files does not make more large files likely. So the moment in
which most bytes were found is excluded from the average.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import msgspec

from pcircle.cli.progress import ProgressView
from pcircle.jobs.counters import ENTRY_COST_BYTES, WorkCounts

_RATE_WINDOW_S = 10.0
_SURE_AFTER_S = 1.0
_POINTS = 64  # of the course of the job, at most
_DOUBT = 0.05  # the weight of this assumption once there is a course
_NOT_DONE = 0.9999


class _Point(msgspec.Struct, frozen=True):
    """The progress of a job at one moment."""

    at_s: float
    entries: float
    bytes: float


class Pace:
    """The course of a job, and its last seconds."""

    def __init__(self) -> None:
        self._window: deque[_Point] = deque([_Point(0.0, 0, 0)])
        self._course = [_Point(0.0, 0, 0)]
        self._step_s = 0.0
        self._sized = (0, 0)  # entries and bytes of the last view
        self._leap = (0, 0)  # entries and bytes of the moment in which most bytes were found

    def view(
        self,
        elapsed_s: float,
        known: WorkCounts,
        *,
        stale_ranks: int,
        failed: int,
        bytes_shown: int | None = None,
        has_bytes: bool = True,
    ) -> ProgressView:
        """Return the present state with rates; see `ProgressView`.

        `bytes_shown` are the bytes of a job whose bytes are not work. A job may have no bytes at
        all.
        """
        shown = known.bytes_done if bytes_shown is None else bytes_shown
        self._note(elapsed_s, known)
        window = self._window
        window.append(_Point(elapsed_s, known.done - known.earlier, shown - known.earlier_bytes))
        while len(window) > 2 and elapsed_s - window[0].at_s > _RATE_WINDOW_S:
            window.popleft()
        since, now = window[0], window[-1]
        span_s = max(elapsed_s - since.at_s, 1e-6)
        fraction, left_s = self._estimate(elapsed_s, known)
        exact = known.complete and not stale_ranks
        return ProgressView(
            fraction=fraction,
            exact=exact,
            bytes_done=shown,
            bytes_total=known.bytes_found if known.complete and bytes_shown is None else None,
            entries_done=known.done,
            elapsed_s=elapsed_s,
            rate_bytes_s=max(0.0, now.bytes - since.bytes) / span_s,
            rate_entries_s=max(0.0, now.entries - since.entries) / span_s,
            remaining_s=left_s if elapsed_s > _SURE_AFTER_S else None,
            stale_ranks=stale_ranks,
            failed=failed,
            has_bytes=has_bytes,
        )

    def _note(self, elapsed_s: float, known: WorkCounts) -> None:
        """Record a moment; in a long course, keep every second one."""
        found = known.sized - self._sized[0], known.bytes_found - self._sized[1]
        self._sized = known.sized, known.bytes_found
        if found[1] > self._leap[1]:
            self._leap = found
        course = self._course
        if elapsed_s - course[-1].at_s < self._step_s:
            return
        done = known.done - known.earlier, known.bytes_done - known.earlier_bytes
        course.append(_Point(elapsed_s, done[0], done[1] / ENTRY_COST_BYTES))
        if len(course) > _POINTS:
            del course[1::2]
            self._step_s = elapsed_s / _POINTS * 2

    def _estimate(self, elapsed_s: float, known: WorkCounts) -> tuple[float, float | None]:
        """Return the share that is done, and the remaining seconds; None if unknown."""
        entries, size = _expected(known, self._leap)
        per_entry, per_byte = _costs(self._course)
        took = per_entry * (known.done - known.earlier)
        took += per_byte * (known.bytes_done - known.earlier_bytes)
        left = per_entry * max(0.0, entries - known.done)
        left += per_byte * max(0.0, size - known.bytes_done)
        left_s = elapsed_s * left / took if took > 0 else None
        if known.complete and known.bytes_found:
            fraction = known.bytes_done / known.bytes_found
        else:
            done = per_entry * known.done + per_byte * known.bytes_done
            fraction = done / (done + left) if done + left > 0 else 0.0
        if not (known.complete and known.done == known.found):
            fraction = min(fraction, _NOT_DONE)
        return min(1.0, fraction), left_s


def _expected(known: WorkCounts, leap: tuple[int, int]) -> tuple[float, float]:
    """Return the expected total numbers of entries and bytes."""
    entries = float(known.found)
    if not known.scanned and known.weight > 0:
        entries = max(entries, known.done / min(1.0, known.weight))
    sized, size = known.sized - leap[0], known.bytes_found - leap[1]
    mean_bytes = max(0, size) / sized if sized > 0 else 0.0
    return entries, known.bytes_found + mean_bytes * max(0.0, entries - known.sized)


def _costs(course: list[_Point]) -> tuple[float, float]:
    """Return the costs of an entry and of a byte that fit the course best."""
    entries, size = course[-1].entries, course[-1].bytes
    if entries + size <= 0:
        return 0.0, 0.0
    equal = course[-1].at_s / (entries + size)
    ee = eb = bb = et = bt = 0.0
    for one, other in pairwise(course):
        took_s = other.at_s - one.at_s
        e, b = other.entries - one.entries, other.bytes - one.bytes
        ee, eb, bb = ee + e * e, eb + e * b, bb + b * b
        et, bt = et + e * took_s, bt + b * took_s
    et, bt = et + _DOUBT * ee * equal, bt + _DOUBT * bb * equal
    ee, bb = ee * (1 + _DOUBT), bb * (1 + _DOUBT)
    per_entry = et / ee if ee else 0.0
    per_byte = bt / bb if bb else 0.0
    if ee and bb:
        both = ee * bb - eb * eb
        fitted = (et * bb - bt * eb) / both, (bt * ee - et * eb) / both
        # No cost is negative.
        per_entry, per_byte = (
            (per_entry, 0.0) if fitted[1] < 0 else (0.0, per_byte) if fitted[0] < 0 else fitted
        )
    return per_entry, per_byte / ENTRY_COST_BYTES
