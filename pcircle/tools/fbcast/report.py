"""The report of a broadcast: a summary line, a line for each bad node, and JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle import __version__
from pcircle.cli.output import MessageStream
from pcircle.cli.report import ToolReport
from pcircle.cli.results import Results
from pcircle.cli.shell import command
from pcircle.core.encoding import show
from pcircle.core.errors import worst
from pcircle.core.units import format_duration, format_rate, format_size, plural
from pcircle.core.writing import standard_error
from pcircle.tools.fbcast.conductor import Conductor
from pcircle.tools.fbcast.options import BroadcastOptions
from pcircle.tools.fbcast.source_reader import BroadcastTotals

_SIGNALLED = (130, 143)


class BadNode(msgspec.Struct, frozen=True):
    """A node that failed, or that differs from the source."""

    rank: int
    host: str
    why: str


class NodeTime(msgspec.Struct, frozen=True):
    """The time of a node from the start of the stream or check to its answer, or None.

    A node answers a stream when all data is written.
    """

    rank: int
    host: str
    elapsed_s: float | None


class BroadcastReport(ToolReport, frozen=True):
    """The JSON document; `shown` is null if the outcome is in doubt."""

    action: str
    shown: bool | None
    nodes: int
    entries: int
    bytes: int
    sent_bytes: int
    chunks: int
    way: str
    elapsed_s: float
    reason: str
    bad_nodes: tuple[BadNode, ...]
    ranks: tuple[NodeTime, ...]


class BroadcastConsole:
    """Prints the outcome of a broadcast."""

    def __init__(self, options: BroadcastOptions) -> None:
        self._out = MessageStream(standard_error())
        self._options = options
        self._results = Results("fbcast", options.json, self._out.line)

    def refuse(self, why: str) -> None:
        """Print why the job was refused."""
        self._say(why)

    def status(self, totals: BroadcastTotals, elapsed_s: float) -> None:
        """Print the progress."""
        entries, took = plural(totals.entries, "entry", "entries"), format_duration(elapsed_s)
        self._say(f"{self._options.verb}: {entries}, {format_size(totals.bytes)} read after {took}")

    def tell(self, conductor: Conductor, totals: BroadcastTotals, elapsed_s: float) -> int:
        """Print the outcome, write the JSON document, and return the exit code."""
        options, verb = self._options, self._options.verb
        bad = tuple(
            BadNode(rank, self._host(conductor, rank), why)
            for rank, why in sorted(conductor.bad.items())
        )
        for node in bad:
            self._say(f"node {node.host}: {node.why}")
        if conductor.reason:
            self._say(conductor.reason)
        if not options.quiet:
            for kind, count in sorted(totals.skipped.items()):
                self._say(f"{plural(count, kind, kind + 's')} skipped")
        if options.verbose:
            for rank in conductor.good:
                self._say(f"node {self._host(conductor, rank)}: {_DONE[verb]}")
        ranks = tuple(
            NodeTime(rank, self._host(conductor, rank), conductor.times_s.get(rank))
            for rank in conductor.good
        )
        if options.stats:
            for line in _table(ranks, conductor.stream_bytes).splitlines():
                self._out.line(line)
        if not options.quiet or conductor.code:
            self._say(self._summary(conductor, totals, elapsed_s))
        if conductor.code in _SIGNALLED:
            self._say(f"to try again, run: {command('fbcast', options.words)}")
        document = BroadcastReport(
            schema=1,
            tool="fbcast",
            version=__version__,
            exit_code=conductor.code,
            action=verb,
            shown=conductor.decided,
            nodes=len(conductor.good),
            entries=totals.entries,
            bytes=totals.bytes,
            sent_bytes=conductor.sent_bytes,
            chunks=conductor.chunks,
            way=conductor.way,
            elapsed_s=round(elapsed_s, 3),
            reason=conductor.reason,
            bad_nodes=bad,
            ranks=ranks,
        )
        self._results.document(document)
        return worst((conductor.code, self._results.code))

    def _host(self, conductor: Conductor, rank: int) -> str:
        host = conductor.hosts.get(rank, "")
        names = list(conductor.hosts.values())
        if not host:
            return f"of rank {rank}"
        return f"{host} (rank {rank})" if names.count(host) > 1 else host

    def _summary(self, conductor: Conductor, totals: BroadcastTotals, elapsed_s: float) -> str:
        verb, where = self._options.verb, show(self._options.target)
        good = plural(len(conductor.good), "node", "nodes")
        if conductor.completed:
            return f"completed the work of an earlier run on {good}; nothing was sent"
        if verb == "check":
            differ = plural(len(conductor.bad), "node differs", "nodes differ or failed")
            return f"{good} identical to the source" + (f"; {differ}" if conductor.bad else "")
        if conductor.decided is None:
            return f"it is not known whether {where} was changed"
        if not conductor.decided:
            return f"nothing was changed in {where} on any node"
        took = format_duration(elapsed_s)
        if verb == "remove":
            return f"removed from {where} on {good} in {took}"
        rate = format_rate(totals.bytes / max(elapsed_s, 1e-6))
        entries = plural(totals.entries, "entry", "entries")
        size = format_size(totals.bytes)
        return f"{entries}, {size} to {where} on {good} in {took}, {rate} each"

    def _say(self, text: str) -> None:
        self._out.line(f"fbcast: {text}")


def _table(ranks: Sequence[NodeTime], stream_bytes: int) -> str:
    """Return a table of the nodes: the data that each received, its time, and the rate."""
    from pcircle.cli import listing

    rows = []
    for node in ranks:
        elapsed_s = node.elapsed_s
        time = "-" if elapsed_s is None else format_duration(elapsed_s)
        rate = format_rate(stream_bytes / max(elapsed_s or 0, 1e-6)) if stream_bytes else "-"
        rows.append([str(node.rank), node.host, format_size(stream_bytes), time, rate])
    return listing.render(rows, align="rlrrr", header=["rank", "node", "bytes", "time", "rate"])


_DONE = {"copy": "done", "remove": "removed", "check": "identical to the source"}
