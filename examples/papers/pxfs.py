"""The figures of PXFS (Snyder 2013; Yang and others 2014), measured by ``fbench papers``.

PXFS offers programs asynchronous operations on a parallel file system, and `pcircle.aio` follows
its design. The thesis measures one client and one server: its cases 1 to 3, a sweep of
computations, operations on names, the time of submissions and the cost of continuations. The
evaluation in the paper has two workloads of 1 to 24 clients on 2 to 16 servers. All of these are
cases of fbench (`pcircle.tools.fbench.cases`). Here they run on a FUSE file system that is as slow
as that of the papers; `examples.papers.pxfs_mount` states which of its parameters are fitted.
Blocking calls correspond to the papers' synchronous ones.

The papers' numbers are in `examples.papers.pxfs_paper`. We chose a fixed number of threads
(`_THREADS`, `_CLIENT_THREADS`), because the search for it would take most of these short runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from examples.papers.command import Figure, main
from examples.papers.measured import Surroundings
from examples.papers.output import Cell, Scale, Series, bar_plot, line_plot, write_table
from examples.papers.pxfs_mount import KIB, NAMES, THESIS, Values, measured, mount
from examples.papers.pxfs_mount import servers as servers_rule
from examples.papers.pxfs_paper import (
    ASYNCHRONOUS_MS,
    BLOCK_BYTES,
    BLOCKS,
    CLIENTS,
    FILES,
    LOST,
    SERVERS,
    SYNCHRONOUS_MS,
    WORKLOADS,
)
from tests.fusefs.rules import Rule

ROUNDS = 3
_THREADS, _CLIENT_THREADS = 8, 32
SYNCHRONOUS, ASYNCHRONOUS = "blocking", "threads"

# Five files of large blocks would have 12 GB.
_FILES = {"small": FILES.value, "large": 1}
# Blocks of a small file, by servers: 100 would take more than ten minutes; blocking calls wait in
# any case.
_BLOCKS_BY_SERVERS = {SYNCHRONOUS: 4, ASYNCHRONOUS: 60}

Row = list[Cell]
_HEADER = ("what", "synchronous", "synchronous min", "synchronous max", "asynchronous",
           "asynchronous min", "asynchronous max", "ratio")  # fmt: skip


class Case(msgspec.Struct, frozen=True):
    """A case of the thesis: its blocks at full scale, its unit, and the paper's values.

    *per_unit* divides fbench's values. *paper* returns the synchronous and asynchronous values of
    the paper, and *source* is where it states them.
    """

    title: str
    unit: str
    per_unit: float
    blocks: int
    duration_s: float
    rules: tuple[Rule, ...] = (THESIS,)
    paper: Callable[[str], tuple[Cell, Cell]] = lambda what: ("", "")
    source: str = ""
    attributes_s: float = 60.0
    scale: Scale = "linear"


def _paper_lost(what: str) -> tuple[Cell, Cell]:
    operation, _, size = what.partition(", ")
    column = ("read", "write").index(operation)
    stated = LOST.value[size]
    return stated[column], stated[2 + column]


def _paper_names(what: str) -> tuple[Cell, Cell]:
    return SYNCHRONOUS_MS.value[what], ASYNCHRONOUS_MS.value[what]


CASES = {
    "case1": Case("random blocks of 512 KiB by threads that wait", "MB/s", 1e6, 32, 45.0),
    "case2": Case("one file, all blocks submitted at once", "MB/s", 1e6, 64, 40.0),
    "case3": Case("throughput lost to computing 5 ms a block", "%", 1.0, 64, 110.0,
                  paper=_paper_lost, source=LOST.source),
    "sweep": Case("waiting for 1 MiB, by the concurrent computation", "ms", 1e3, 32, 45.0),
    "latency": Case("operations on names, one after the other", "ms", 1e3, 1, 25.0,
                    (THESIS, *NAMES), _paper_names, SYNCHRONOUS_MS.source, 0.0),
    "submission": Case("how long a submission blocks its caller", "us", 1.0, 1, 75.0, scale="log"),
    "continuation": Case("throughput by the computation that follows", "MB/s", 1e6, 32, 40.0),
}  # fmt: skip


def _rows(case: Case, values: tuple[Values, Values, Values]) -> Iterator[Row]:
    """Yield a row for each measured quantity, with synchronous next to asynchronous values."""
    middle, low, high = values
    for name, what in dict.fromkeys((name, what) for name, what, _ in middle):
        row: Row = [what]
        for backend in (SYNCHRONOUS, ASYNCHRONOUS):
            key = name, what, backend
            if key in middle:
                row += [each[key] / case.per_unit for each in (middle, low, high)]
            else:
                row += ["", "", ""]
        synchronous, asynchronous = (
            middle.get((name, what, b)) for b in (SYNCHRONOUS, ASYNCHRONOUS)
        )
        row.append(asynchronous / synchronous if synchronous and asynchronous else "")
        yield [*row, *case.paper(what)]


def thesis(name: str, out: Path, small: bool) -> list[Path]:
    """Measure a case of the thesis; write the table, and bars side by side."""
    case, before = CASES[name], Surroundings.now()
    options = ["--case", name, "--threads", str(_THREADS), "--files", "4"]
    options += ["--blocks", "1" if small else str(case.blocks)]
    with mount(case.rules, small, case.attributes_s) as place:
        rows = list(_rows(case, measured(place, options, 1 if small else ROUNDS)))
    header = (*_HEADER, "paper synchronous", "paper asynchronous")
    source = f"; paper: {case.source}" if case.source else ""
    note = before.note(f"{case.unit}; threads that wait for files count in the load{source}")
    table = write_table(out / f"pxfs-{name}.csv", header, rows, note)
    series = [
        Series(label, [_number(row[column]) for row in rows])
        for label, column in (
            ("synchronous", 1), ("asynchronous", 4),
            ("paper, synchronous", 8), ("paper, asynchronous", 9),
        )
        if any(row[column] != "" for row in rows)
    ]  # fmt: skip
    groups = [str(row[0]).replace(", ", "\n") for row in rows]
    size = max(6.0, 0.6 * len(groups)), 4.0
    plot = bar_plot(out / f"pxfs-{name}.svg", groups, series, title=case.title,
                    labels=("", case.unit), size=size, scale=case.scale)  # fmt: skip
    return [table, *plot]


def _number(cell: Cell) -> float:
    return 0.0 if cell == "" else float(cell)


# ---- the paper --------------------------------------------------------------------------------


def _workload(case: str, servers: int, blocks: dict[str, int], small: bool) -> Iterator[Row]:
    """Measure a workload once; yield a row for each quantity, with MB/s of all clients together."""
    clients = 2 if small else CLIENTS.value
    print(f"{servers} servers, {clients} clients, {case}", file=sys.stderr)
    options = ["--case", case, "--threads", str(_CLIENT_THREADS), "-j", str(clients)]
    options += ["--files", str(_FILES[case])]
    values: Values = {}
    with mount([servers_rule(servers, BLOCK_BYTES.value[case])], small) as place:
        for backend, number in blocks.items():
            size = ["--backend", backend, "--blocks", "1" if small else str(number)]
            values |= measured(place, [*options, *size], 1)[0]
    for row in _rows(Case("", "MB/s", 1e6, 0, 0.0), (values, values, values)):
        yield [case, servers, clients, *row[:8]]


_WORKLOAD_HEADER = ("workload", "servers", "clients", *_HEADER)


def workload(case: str, out: Path, small: bool) -> list[Path]:
    """Measure a workload with 24 clients and 16 servers, by the number of threads of a client."""
    before, rows = Surroundings.now(), list[Row]()
    servers, blocks = SERVERS.value[-1], dict.fromkeys(_BLOCKS_BY_SERVERS, BLOCKS.value)
    for row in _workload(case, servers, blocks, small):
        operation, _, threads = str(row[3]).partition(", ")
        paper: Cell = WORKLOADS.value[case, operation] if threads == "1 thread" else ""
        rows.append([*row, paper])
    setup = "MB/s; threads that wait for files count in the load"
    note = before.note(f"{setup}; paper: {WORKLOADS.source}")
    header = (*_WORKLOAD_HEADER, "paper ratio")
    table = write_table(out / f"pxfs-{case}.csv", header, rows, note)
    groups = [str(row[3]).replace(", ", "\n") for row in rows]
    series = [Series("paper", [_number(row[-1]) for row in rows]),
              Series("ours", [_number(row[-2]) for row in rows])]  # fmt: skip
    plot = bar_plot(out / f"pxfs-{case}.svg", groups, series,
                    title=f"asynchronous over synchronous, {BLOCK_BYTES.value[case] // KIB} KiB, "
                    f"{CLIENTS.value} clients, {servers} servers",
                    labels=("", "times"))  # fmt: skip
    return [table, *plot]


def by_servers(out: Path, small: bool) -> list[Path]:
    """Measure the workload of small blocks on 2 to 16 servers, with one thread of each client."""
    before, rows = Surroundings.now(), list[Row]()
    numbers = SERVERS.value[-2:] if small else SERVERS.value
    for number in numbers:
        found = _workload("small", number, _BLOCKS_BY_SERVERS, small)
        rows += [row for row in found if str(row[3]).endswith(", 1 thread")]
    note = before.note("MB/s; threads that wait for files count in the load")
    table = write_table(out / "pxfs-servers.csv", _WORKLOAD_HEADER, rows, note)
    series = [
        Series(f"{operation}, {label}",
               [_number(row[column]) for row in rows if row[3] == f"{operation}, 1 thread"],
               style=style)
        for operation, style in (("read", "-o"), ("write", "--s"))
        for label, column in (("asynchronous", 7), ("synchronous", 4))
    ]  # fmt: skip
    plot = line_plot(out / "pxfs-servers.svg", numbers, series, title="64 KiB, 24 clients",
                     labels=("servers", "MB/s"))  # fmt: skip
    return [table, *plot]


def _figures() -> Sequence[Figure]:
    figures = [
        Figure(name, case.title, case.duration_s, partial(thesis, name))
        for name, case in CASES.items()
    ]
    return [
        *figures,
        Figure("small", "blocks of 64 KiB, 24 clients, 16 servers", 520.0,
               partial(workload, "small")),
        Figure("large", "blocks of 1 MiB, 24 clients, 16 servers", 200.0,
               partial(workload, "large")),
        Figure("servers", "blocks of 64 KiB, 24 clients, 2 to 16 servers", 460.0, by_servers),
    ]  # fmt: skip


FIGURES = _figures()

if __name__ == "__main__":
    sys.exit(main("pxfs", FIGURES))
