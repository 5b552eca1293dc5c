"""Progress of a job (a live bar, occasional lines or nothing), its rate and its remaining time.

The caller passes a `ProgressView` as often as it likes; a renderer decides by the times in the view
whether to show it. So there is no clock, thread or signal here, and tests need not wait.

Importing rich takes 40 ms or more, so the live bar imports it after half a second of run time. A
broken stream silences the progress and does not affect the job.

`Pace` measures the rate and estimates the remaining time. The estimate assumes that remaining work
takes as long as similar work has taken so far. Known work is measured in bytes, unknown work in
entries of average size. The cost of an entry and the cost of a byte are fitted to the course of the
job, because entries may dominate its beginning and bytes its end.

One large file among thousands of files does not make more large files likely. So the step in which
the most bytes were found is excluded from the average.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TextIO, cast

import msgspec

from pcircle.cli.output import MessageStream
from pcircle.core.units import format_count, format_duration, format_rate, format_size, plural
from pcircle.core.writing import CALLER, Caller
from pcircle.jobs.tree_task import ENTRY_COST_BYTES, WorkCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType
    from rich.live import Live


Mode = Literal["auto", "always", "never"]

_LIVE_AFTER_S = 0.5
_NOTED_TOGETHER = 4000  # characters; a write of at most 4,096 bytes to a pipe is atomic
_LIVE_EVERY_S = 0.1
_BAR_CELLS_MIN = 10
_BAR_CELLS_MAX = 40
_PERCENT_CELLS = len("~100.0%")
# The parts that are omitted on a narrow terminal, in this order.
_DISPENSABLE = ("entry rate", "total", "entries", "rate", "silent", "size", "failed")
_ECHO_CELLS = len("^C")  # the echo, which would otherwise wrap the line
_CURSORLESS_TERMINALS = frozenset({"", "dumb", "unknown"})


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a running job at one moment.

    `fraction` is the share that is done, from 0 to 1; unless `exact` it is an estimate, shown with
    ``~``. `bytes_total` and `remaining_s` are None while unknown. `stale_ranks` is the number of
    ranks whose last report is missing, so that older numbers are used for them.
    """

    fraction: float
    exact: bool
    bytes_done: int
    bytes_total: int | None
    entries_done: int
    elapsed_s: float
    rate_bytes_s: float
    rate_entries_s: float
    remaining_s: float | None
    stale_ranks: int = 0
    failed: int = 0
    has_bytes: bool = True


class Progress:
    """A progress display, which prints only notes unless a subclass shows more.

    Its methods never raise and are called by one thread.
    """

    def __init__(self, output: MessageStream) -> None:
        self._output = output
        self._closed = False

    def update(self, view: ProgressView) -> None:
        """Show a view, if an update is due."""

    def note(self, text: str) -> None:
        """Print a line, even if progress is not shown."""
        self._output.line(text)

    def suspend(self) -> None:
        """Remove the bar and restore the terminal, until the next update."""

    def close(self) -> None:
        """Remove the bar and restore the terminal. Idempotent; notes are still printed."""
        self._closed = True
        self.suspend()


def note_all(progress: Progress, texts: Iterable[str]) -> None:
    """Print lines in few short writes, because other processes may write to the same pipe."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if size + len(text) >= _NOTED_TOGETHER and batch:
            progress.note("\n".join(batch))
            batch, size = [], 0
        batch.append(text)
        size += len(text) + 1
    if batch:
        progress.note("\n".join(batch))


def describe(view: ProgressView, cells: int | None = None) -> str:
    """Return a view in one line, without the percentage.

    Parts are omitted until the others fit into `cells`; the remaining time is never omitted.
    """
    left_out = 0
    while cells is not None and left_out < len(_DISPENSABLE):
        if len(_words(view, frozenset(_DISPENSABLE[:left_out]))) <= cells:
            break
        left_out += 1
    return _words(view, frozenset(_DISPENSABLE[:left_out]))


def line(view: ProgressView) -> str:
    """Return a view in one line with the percentage, for logs and for SIGUSR1."""
    return f"{_percent(view)} after {format_duration(view.elapsed_s)}: {describe(view)}"


def _words(view: ProgressView, without: frozenset[str]) -> str:
    """Return the text of a line, except the parts in `without`."""
    size, total = format_size(view.bytes_done), view.bytes_total
    silent = view.stale_ranks
    parts = {
        "size": size,
        "entries": f"{format_count(view.entries_done)} entries",
        "rate": format_rate(view.rate_bytes_s),
        "entry rate": plural(round(view.rate_entries_s), "entry/s", "entries/s"),
    }
    if view.has_bytes and total is not None and "total" not in without:
        parts["size"] = f"{size} of {format_size(total)}"
    if not view.has_bytes:
        del parts["size"], parts["rate"]
    if view.remaining_s is not None:
        parts["left"] = f"{format_duration(view.remaining_s)} left"
    if view.failed:
        parts["failed"] = f"{format_count(view.failed)} failed"
    if silent:
        parts["silent"] = f"{silent} rank{'s'[: silent != 1]} not responding"
    return ", ".join(text for part, text in parts.items() if part not in without)


def _percent(view: ProgressView) -> str:
    # Rounded down: 100.0% is shown only when everything is done.
    tenths = min(1000, max(0, int(view.fraction * 1000)))
    return f"{'' if view.exact else '~'}{tenths // 10}.{tenths % 10}%"


class _Plain(Progress):
    """Prints one line per interval, for logs."""

    def __init__(self, output: MessageStream, interval_s: float) -> None:
        super().__init__(output)
        self._interval_s = interval_s
        self._due_s = interval_s

    def update(self, view: ProgressView) -> None:
        if self._closed or view.elapsed_s < self._due_s:
            return
        self._due_s = view.elapsed_s + self._interval_s
        self._output.line(line(view))


class _Live(Progress):
    """Redraws one line in place with rich, in the caller's thread."""

    def __init__(self, output: MessageStream) -> None:
        super().__init__(output)
        self._due_s = _LIVE_AFTER_S
        self._display: Live | None = None

    def update(self, view: ProgressView) -> None:
        if self._closed or view.elapsed_s < self._due_s:
            return
        self._due_s = view.elapsed_s + _LIVE_EVERY_S
        if self._display is None:
            self._display = _start_display(self._output)
        self._display.update(_bar_line(view, self._display.console.width), refresh=True)

    def note(self, text: str) -> None:
        if self._display is None:
            super().note(text)
            return
        # Without markup and wrapping, so that a path can be copied in one piece.
        self._display.console.out(text, highlight=False)

    def suspend(self) -> None:
        if self._display is not None:
            display, self._display = self._display, None
            display.stop()


class _Passed(Progress):
    """Passes views to the program that called the tool, and prints only notes."""

    def __init__(self, output: MessageStream, caller: Caller) -> None:
        super().__init__(output)
        self._caller = caller

    def update(self, view: ProgressView) -> None:
        self._caller.show(view)


def _start_display(output: MessageStream) -> Live:
    from rich.live import Live

    display = Live(
        console=_console(output),
        auto_refresh=False,  # automatic refreshing would start a thread
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    display.start()
    return display


def _console(output: MessageStream) -> Console:
    from rich.console import Console

    # A MessageStream has all methods of a file that Console calls.
    return Console(file=cast(TextIO, output), force_terminal=True, highlight=False)


def _bar_line(view: ProgressView, terminal_cells: int) -> RenderableType:
    """Return percentage, bar and text; the bar fills the space that the text leaves."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    spare_cells = max(0, terminal_cells - _PERCENT_CELLS - 2 - _ECHO_CELLS)
    words = describe(view, spare_cells - _BAR_CELLS_MIN)
    bar_cells = min(_BAR_CELLS_MAX, spare_cells - len(words))
    if bar_cells < _BAR_CELLS_MIN:  # no room: the remaining time matters more than the bar
        words, bar_cells = describe(view, spare_cells), 0
    line = Table.grid(padding=(0, 1))
    line.add_column(justify="right", no_wrap=True, min_width=_PERCENT_CELLS)
    line.add_column(no_wrap=True, overflow="ellipsis")
    text = Text(words, style="red" if view.failed else "")
    if bar_cells:
        line.add_column(no_wrap=True, overflow="ellipsis")
        done = min(1.0, max(0.0, view.fraction))
        line.add_row(
            Text(_percent(view)), ProgressBar(total=1.0, completed=done, width=bar_cells), text
        )
    else:
        line.add_row(Text(_percent(view)), text)
    return line


def silent(stream: TextIO | None) -> Progress:
    """Return a display that prints only notes."""
    return Progress(MessageStream(stream))


def plain(stream: TextIO | None, interval_s: float) -> Progress:
    """Return a display that prints one line per interval."""
    return _Plain(MessageStream(stream), interval_s)


def live(stream: TextIO | None) -> Progress:
    """Return a bar for a terminal, redrawn at most ten times a second."""
    return _Live(MessageStream(stream))


def make(mode: Mode, stream: TextIO | None, *, quiet: bool, interval_s: float) -> Progress:
    """Return the display for this mode and stream.

    ``never``, and ``auto`` if `quiet`, select a display that prints only notes. A terminal gets a
    bar, unless ``TERM`` shows that it cannot move its cursor; any other stream gets lines. In a
    function call, the program receives the views.
    """
    caller = CALLER.get()
    if mode != "never" and caller is not None:
        return _Passed(MessageStream(stream), caller)
    if mode == "never" or (quiet and mode == "auto"):
        return silent(stream)
    is_terminal = MessageStream(stream).isatty()
    if is_terminal and os.environ.get("TERM", "") not in _CURSORLESS_TERMINALS:
        return live(stream)
    return plain(stream, interval_s)


# ---- rate and remaining time ---------------------------------------------------------------------

_RATE_WINDOW_S = 10.0
_SURE_AFTER_S = 1.0
_POINTS = 64  # maximum number of points in the course of a job
_DOUBT = 0.05  # the weight of the assumption that an entry costs as much as ENTRY_COST_BYTES
_NOT_DONE = 0.9999


class _Point(msgspec.Struct, frozen=True):
    """The progress of a job at one moment."""

    at_s: float
    entries: float
    bytes: float


class Pace:
    """Records the course of a job, and computes its rates and remaining time."""

    def __init__(self) -> None:
        self._window: deque[_Point] = deque([_Point(0.0, 0, 0)])
        self._course = [_Point(0.0, 0, 0)]
        self._step_s = 0.0
        self._sized = (0, 0)  # entries and bytes of the last view
        self._leap = (0, 0)  # entries and bytes of the step in which the most bytes were found

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
        """Return the current state of the job, with its rates.

        `bytes_shown` is the number of bytes to show if bytes do not measure the work. If
        `has_bytes` is False, no bytes are shown.
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
        """Record a moment; when the course becomes long, drop every second moment."""
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
        """Return the share that is done, and the remaining seconds or None."""
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
        # A cost cannot be negative.
        per_entry, per_byte = (
            (per_entry, 0.0) if fitted[1] < 0 else (0.0, per_byte) if fitted[0] < 0 else fitted
        )
    return per_entry, per_byte / ENTRY_COST_BYTES
