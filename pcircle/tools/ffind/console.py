"""The console of a search, and the sort keys of entries.

The console writes the results of all ranks, sorted on request. Sort keys are bytes that sort in the
requested order. Paths are compared byte by byte, as by ``sort -z`` in the C locale. All keys end
with the path, so keys are unique.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from pcircle.cli.change_program import ChangeConsole, ChangeProgram
from pcircle.cli.listing import groups, users
from pcircle.core.errors import IntegrityError, worst
from pcircle.core.units import plural
from pcircle.core.writing import standard_error, write_stream
from pcircle.fs.sorting import Sorter
from pcircle.jobs.failures import LogFile
from pcircle.runtime import Outcome
from pcircle.tools.ffind.eval import line_formats
from pcircle.tools.ffind.eval.entry import FIELDS, FindEntry, Status
from pcircle.tools.ffind.eval.evaluator import SearchTask
from pcircle.tools.ffind.language.nodes import ParsedExpression, walk
from pcircle.tools.ffind.options import FindOptions
from pcircle.tools.ffind.plan import FindCounters, Order

_BLOCK_BYTES = 512


class SearchProgram(ChangeProgram):
    """The part of the program that its console uses.

    `names` contains the names of all primaries. `ends` maps each stream to the terminator of its
    records, if all output consists of records. `has_head` is set once the CSV header has been
    written. `first_task` is the first task of this process.
    """

    options: FindOptions
    parsed: ParsedExpression
    names: set[str]
    order: Order | None
    files: list[LogFile]
    ends: dict[int, bytes] | None
    has_head: bool
    first_task: SearchTask | None


class FindConsole(ChangeConsole):
    """Reports a search."""

    def __init__(self, program: SearchProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._find = program
        expression = program.parsed.expression
        limits = [node for node in walk(expression) if node.name == "limit"]
        self._left: dict[int, int] = {int(n.args[1] or 0): int(n.args[0] or 0) for n in limits}
        self._ended = False
        self._sorter: Sorter | None = None
        self._top: list[tuple[bytes, bytes]] = []
        self._links: Sorter | None = None
        self._names = program.names
        self._files_failed: set[int] = set()
        if not program.has_head and any(
            node.name == "csv" and not node.args[0] for node in walk(expression)
        ):
            self._emit(line_formats.CSV_HEAD)
        program.has_head = True

    # ---- notices ---------------------------------------------------------------

    def notice(self, source: int, values: Sequence[object]) -> None:
        texts: list[bytes] = []
        unhandled: list[object] = []
        if self._ended:
            self._halt()
        for value in values:
            if isinstance(value, line_formats.StreamText):
                if self._ended:
                    continue
                if value.event:
                    self._handle_event(value.event)
                elif value.stream == 0:
                    texts.append(value.text)
                else:
                    self._write_stream(value.stream, self._unwritten(value.stream, value.text))
            elif isinstance(value, line_formats.SortRecords):
                self._recorded(value.records)
            elif isinstance(value, line_formats.LinkedFiles):
                self._linked(value.files)
            else:
                unhandled.append(value)
        if text := self._unwritten(0, b"".join(texts)):
            self._emit(text)
        if unhandled:
            super().notice(source, unhandled)

    def _unwritten(self, stream: int, text: bytes) -> bytes:
        """Return the part of `text` that no earlier run has written to the stream."""
        ends = self._find.ends or {}
        return self._fresh(f"stream {stream}", text, ends.get(stream, b"\n"))

    def _emit(self, text: bytes) -> None:
        self.results.text([text])
        if self.results.is_broken:
            self._halt()  # the reader of the output has exited

    def _halt(self) -> None:
        self._ended = True
        if self._find.first_task is not None:
            self._find.first_task.halted = True

    def _handle_event(self, event: int) -> None:
        """Handle an event: end the search, or count it towards a limit."""
        if event == line_formats.QUIT:
            self._ended = True
        else:
            self._left[event] -= 1
            self._ended = self._left[event] <= 0
        if self._ended:
            self._halt()

    def _write_stream(self, stream: int, text: bytes) -> None:
        """Write to standard error, or to a file of -fprint."""
        if stream < 0:
            with suppress(OSError, ValueError):
                write_stream(standard_error(), text)
            return
        try:
            self._find.files[stream - 1].append(text)
        except OSError as error:
            if stream not in self._files_failed:
                self._files_failed.add(stream)
                name = self._find.parsed.files[stream - 1]
                self.note(f"{self.tool}: cannot write '{name}': {error.strerror}")

    def _recorded(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        order = self._find.order
        if order is not None and order.top is not None:
            self._top += records
            self._top.sort()
            del self._top[order.top :]
            return
        if self._sorter is None:
            self._sorter = Sorter()
        for key, text in records:
            self._sorter.add(packed(key, text))

    def _linked(self, files: Sequence[tuple[int, int, int]]) -> None:
        if self._links is None:
            self._links = Sorter()
        for device, inode, blocks in files:
            self._links.add(b"%020d %020d %d" % (device, inode, blocks))

    # ---- end of the job --------------------------------------------------------

    def summary(self, total: FindCounters) -> str:
        parts = [f"{plural(total.found, 'entry', 'entries')} searched"]
        if "delete" in self._names:
            options = self._find.options
            dry = options.dry or options.plan is not None
            done = "would be removed" if dry else "removed"
            parts = [
                f"{plural(total.deleted, 'entry', 'entries')} {done}",
                f"{total.found:,} searched",
            ]
        if total.vanished:
            parts.append(f"{total.vanished:,} vanished")
        return ", ".join(parts)

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        total = FindCounters.total(outcome.counts)
        if not outcome.code:
            self._write_final_output(total)
        for sorter in (self._sorter, self._links):
            if sorter is not None:
                sorter.close()
        code, reasons = super().end(outcome)
        for file in self._find.files:
            try:
                file.close()
            except OSError as error:
                self._files_failed.add(0)
                self.note(f"{self.tool}: cannot write: {error.strerror}")
        if self._files_failed:
            self.log_failed = True
        if "exists" in self._names and not code and not total.matched:
            code = worst((code, IntegrityError.exit_code))
        return code, reasons

    def _write_final_output(self, total: FindCounters) -> None:
        """Write output that is known only at the end."""
        for _, text in self._top:
            self._emit(text)
        if self._sorter is not None:
            for record in self._sorter.sorted():
                self._emit(text_of(record))
        if "count" in self._names:
            self._emit(b"%d\n" % total.matched)
        if "du" in self._names:
            blocks = total.blocks + sum(self._linked_blocks())
            self._emit(b"%d\n" % (blocks * _BLOCK_BYTES))

    def _linked_blocks(self) -> Iterator[int]:
        """Yield the blocks of hard-linked files, once for each file."""
        last = b""
        for record in self._links.sorted() if self._links is not None else ():
            name, _, blocks = record.rpartition(b" ")
            if name != last:
                yield int(blocks)
            last = name


# ---- sort keys -----------------------------------------------------------------------------------

_WIDTH = 12  # bytes: a time in nanoseconds needs 94 bits
_DIGITS = 10
_OFFSET = 1 << 95
_INVERTED = bytes(255 - byte for byte in range(256))
_USERS, _GROUPS = users(), groups()

_OF_NAME: dict[str, Callable[[FindEntry], bytes]] = {
    "path": lambda entry: entry.path,
    "name": lambda entry: entry.basename,
    "ext": lambda entry: os.path.splitext(entry.basename)[1],
}
_OF_OWNER: dict[str, Callable[[Status], bytes]] = {
    "user": lambda status: _USERS[status.st_uid],
    "group": lambda status: _GROUPS[status.st_gid],
}


def order_of(options: FindOptions) -> Order | None:
    """Return the order of --sort, --top and --by."""
    if options.top is None:
        return None if options.sort is None else Order(options.sort)
    # The largest and newest entries come first unless a dash reverses the order.
    turned = tuple(key[1:] if key.startswith("-") else f"-{key}" for key in options.by)
    return Order(turned, options.top)


def ordered(order: Order, now_ns: int) -> line_formats.SortKeys:
    """Return the object that computes the sort keys of an order."""
    parts = [_part(field) for field in (*order.fields, "path")]
    return line_formats.SortKeys(lambda entry: b"".join([part(entry) for part in parts]), order.top)


def _part(field: str) -> Callable[[FindEntry], bytes]:
    name = field.removeprefix("-")
    is_down = name != field
    if name in FIELDS or name == "depth":
        number = _number(name)
        if is_down:
            return lambda entry: (_OFFSET - number(entry)).to_bytes(_WIDTH, "big")
        return lambda entry: (_OFFSET + number(entry)).to_bytes(_WIDTH, "big")
    text = _text(name)
    if is_down:
        # In this order, a longer text must sort before its prefix. The terminator does not occur in
        # the text, because no name contains NUL.
        return lambda entry: text(entry).translate(_INVERTED) + b"\xff"
    return lambda entry: text(entry) + b"\0"


def _number(name: str) -> Callable[[FindEntry], int]:
    if name == "depth":
        return lambda entry: entry.depth
    of = FIELDS[name]

    def number(entry: FindEntry) -> int:
        status = entry.look() if entry.st is None else entry.st
        return 0 if status is False else of(status)

    return number


def _text(name: str) -> Callable[[FindEntry], bytes]:
    if name in _OF_NAME:
        return _OF_NAME[name]
    of = _OF_OWNER[name]

    def text(entry: FindEntry) -> bytes:
        status = entry.look() if entry.st is None else entry.st
        return b"" if status is False else of(status)

    return text


def packed(key: bytes, text: bytes) -> bytes:
    """Return a record of key and text that sorts by the key."""
    return b"%b%b%0*d" % (key, text, _DIGITS, len(text))


def text_of(record: bytes) -> bytes:
    """Return the text of a record."""
    end = len(record) - _DIGITS
    return record[end - int(record[end:]) : end]
