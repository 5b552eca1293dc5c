"""Progress: a live bar on a terminal, occasional lines elsewhere, or nothing.

The caller passes a `ProgressView` as often as it likes; a renderer decides by the times in the view
whether to show it. So there is no clock, thread or signal here, and tests need not wait.

Importing rich takes 40 ms and more, so the live bar imports it after half a second of run time. A
broken stream silences the progress and does not affect the job.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Protocol, TextIO, cast

import msgspec

from pcircle.cli.output import MessageStream
from pcircle.core.units import format_count, format_duration, format_rate, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType
    from rich.live import Live

__all__ = [
    "Mode",
    "Progress",
    "ProgressView",
    "describe",
    "line",
    "live",
    "make",
    "note_all",
    "plain",
    "silent",
]

Mode = Literal["auto", "always", "never"]

_LIVE_AFTER_S = 0.5
_NOTED_TOGETHER = 4000  # characters; a pipe takes 4,096 bytes in one piece
_LIVE_EVERY_S = 0.1
_BAR_CELLS_MIN = 10
_BAR_CELLS_MAX = 40
_PERCENT_CELLS = len("~100.0%")
# The parts that a narrow terminal lacks, in the order in which they are omitted.
_DISPENSABLE = ("entry rate", "total", "entries", "rate", "silent", "size", "failed")
_ECHO_CELLS = len("^C")  # which the terminal would otherwise wrap
_CURSORLESS_TERMINALS = frozenset({"", "dumb", "unknown"})


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a running job at one moment.

    `fraction` is the share that is done, from 0 to 1; unless `exact` it is an estimate, shown with
    ``~``. `bytes_total` and `remaining_s` are None while unknown. `stale_ranks` is the number of
    ranks whose last report is missing, for which older numbers are used.
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


class Progress(Protocol):
    """A progress display. Its methods never raise and are called by one thread."""

    def update(self, view: ProgressView) -> None:
        """Show a view, if it is time for it."""

    def note(self, text: str) -> None:
        """Print a line, also if progress is quiet."""

    def suspend(self) -> None:
        """Remove the bar and restore the terminal, until the next update."""

    def close(self) -> None:
        """Remove the bar and restore the terminal. Idempotent; notes are still printed."""


def note_all(progress: Progress, texts: Iterable[str]) -> None:
    """Print lines in few short writes, because others may write to the same pipe."""
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

    Parts that do not fit into `cells` are omitted, the remaining time last.
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
    """Return the parts of a line, except the omitted ones."""
    size, total = format_size(view.bytes_done), view.bytes_total
    silent = view.stale_ranks
    parts = {
        "size": size,
        "entries": f"{format_count(view.entries_done)} entries",
        "rate": format_rate(view.rate_bytes_s),
        "entry rate": f"{format_count(round(view.rate_entries_s))} entries/s",
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
        parts["silent"] = f"{silent} rank{'s'[: silent != 1]} not answering"
    return ", ".join(text for part, text in parts.items() if part not in without)


def _percent(view: ProgressView) -> str:
    # Rounded down: 100.0% is shown only when everything is done.
    tenths = min(1000, max(0, int(view.fraction * 1000)))
    return f"{'' if view.exact else '~'}{tenths // 10}.{tenths % 10}%"


class _Silent:
    """Prints only notes."""

    def __init__(self, output: MessageStream) -> None:
        self._output = output

    def update(self, view: ProgressView) -> None:
        pass

    def note(self, text: str) -> None:
        self._output.line(text)

    def suspend(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Plain:
    """Prints one line per interval, for logs."""

    def __init__(self, output: MessageStream, interval_s: float) -> None:
        self._output = output
        self._interval_s = interval_s
        self._due_s = interval_s
        self._closed = False

    def update(self, view: ProgressView) -> None:
        if self._closed or view.elapsed_s < self._due_s:
            return
        self._due_s = view.elapsed_s + self._interval_s
        self._output.line(line(view))

    def note(self, text: str) -> None:
        self._output.line(text)

    def suspend(self) -> None:
        pass

    def close(self) -> None:
        self._closed = True


class _Live:
    """Redraws one line in place with rich, in the caller's thread."""

    def __init__(self, output: MessageStream) -> None:
        self._output = output
        self._due_s = _LIVE_AFTER_S
        self._display: Live | None = None
        self._closed = False

    def update(self, view: ProgressView) -> None:
        if self._closed or view.elapsed_s < self._due_s:
            return
        self._due_s = view.elapsed_s + _LIVE_EVERY_S
        if self._display is None:
            self._display = _start_display(self._output)
        self._display.update(_bar_line(view, self._display.console.width), refresh=True)

    def note(self, text: str) -> None:
        if self._display is None:
            self._output.line(text)
            return
        # Not through markup or wrapping: a path stays as it is, to be copied in one piece.
        self._display.console.out(text, highlight=False)

    def suspend(self) -> None:
        if self._display is not None:
            display, self._display = self._display, None
            display.stop()

    def close(self) -> None:
        self._closed = True
        self.suspend()


def _start_display(output: MessageStream) -> Live:
    from rich.live import Live

    display = Live(
        console=_console(output),
        auto_refresh=False,  # its refreshing would be a thread
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    display.start()
    return display


def _console(output: MessageStream) -> Console:
    from rich.console import Console

    # Output has all methods of a file that Console calls.
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
    """Return a display without progress, only notes."""
    return _Silent(MessageStream(stream))


def plain(stream: TextIO | None, interval_s: float) -> Progress:
    """Return a display that prints one line per interval."""
    return _Plain(MessageStream(stream), interval_s)


def live(stream: TextIO | None) -> Progress:
    """Return a bar for a terminal, redrawn at most ten times a second."""
    return _Live(MessageStream(stream))


def make(mode: Mode, stream: TextIO | None, *, quiet: bool, interval_s: float) -> Progress:
    """Return the display for this mode and stream.

    ``auto`` is a bar on a terminal, lines elsewhere, and nothing if `quiet`. ``always`` is the bar,
    also on a pipe, because under mpirun the terminal is at the other end of a pipe; in a file it is
    lines. ``never`` is nothing. A terminal that cannot move its cursor, according to ``TERM``, gets
    lines.
    """
    if mode == "never" or (quiet and mode == "auto"):
        return silent(stream)
    output = MessageStream(stream)
    wanted = output.isatty() or (mode == "always" and not output.is_file())
    if wanted and os.environ.get("TERM", "") not in _CURSORLESS_TERMINALS:
        return live(stream)
    return plain(stream, interval_s)
