"""The policies of LaFon et al. 2012 on pcircle's engine, with real ranks and delayed messages.

The simulated figures (`examples.papers.lafon_figures`) use the paper's algorithms. Here the engine
itself walks a tree of files, with the policies that are closest to DRQS, DEQS and PA-DRQS, and with
its own (`examples.papers.lafon_ranks`). It runs on 2 to 64 local processes, where the transport
delays each message. It also runs on 4 to 16 processes under MPI. Their nodes are network namespaces
that are connected by a switch, which delays each packet (`tests.benchmarks.links`; requires root
and MPICH).

The time of an element and the delays are 100 times as long as in `examples.papers.lafon_cost`, so
that two cores can run 64 ranks. A job of 64 ranks takes over two seconds of processor time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from examples.papers.command import Figure
from examples.papers.lafon_plots import heat_maps
from examples.papers.lafon_ranks import NEAR_PART, Job, Run
from examples.papers.lafon_tree import Tree, grow
from examples.papers.measured import Surroundings, in_turns, scratch
from examples.papers.output import Cell, draw, write_table

POLICIES: Mapping[str, str] = {
    "DRQS": "steal=random,split=random,end=ring",
    "DEQS": "steal=random,split=half,end=ring",
    "PA-DRQS": "steal=near,split=random,end=ring",
    "pcircle": "",
}
RANKS, HOSTS_RANKS, SMALL_RANKS = (2, 4, 8, 16, 32, 64), (4, 8, 16), (2, 4)
PER_NODE = 2
ELEMENTS, SMALL_ELEMENTS = 1800, 60
ELEMENT_S, SMALL_ELEMENT_S = 0.05, 0.002
ROUNDS, SINGLE_ROUND_BELOW = 3, 16  # runs with few ranks take longer and vary less
DELAY_S = 0.001
RATE_BYTES_S = 100e6  # of a node's link to the switch
_HEADER = ("policies", "ranks", "seconds", "min s", "max s", "speed-up", "idle %", "messages",
           "bytes", "requests", "busiest pair, bytes", "span % of ideal")  # fmt: skip


def build(tree: Tree, root: Path) -> None:
    """Create the directories and the empty files of a tree."""
    paths = {0: root}
    for directory in range(tree.directories):  # a directory follows its parent
        path = paths[directory]
        path.mkdir()
        for number in range(tree.files[directory]):
            (path / f"file-{number}").touch()
        for below in tree.subdirectories[directory]:
            paths[below] = path / f"directory-{below}"


def walked(job: Job, launcher: Sequence[str] = ()) -> Run:
    """Walk a tree in separate processes."""
    command = [sys.executable, "-m", "examples.papers.lafon_ranks"]
    words = [*launcher, *command, msgspec.json.encode(job).decode()]
    environment: Mapping[str, str] = os.environ
    if launcher:
        from tests.hosts import environment_of_ranks

        environment = environment_of_ranks(environment)
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=environment)
    return msgspec.json.decode(done.stdout, type=Run)


def obstacle() -> str:
    """Return why nodes cannot be network namespaces here, or an empty string if they can."""
    from tests.hosts import hosts_are_possible  # requires pytest

    if reason := hosts_are_possible():
        return reason
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return "" if shutil.which("mpiexec.hydra") else "MPICH is not installed"


@contextmanager
def _launcher(ranks: int, delay_s: float, place: Path, *, hosts: bool) -> Iterator[list[str]]:
    """Yield the command that starts a program on each node, or an empty list without hosts."""
    if not hosts:
        yield []
        return
    from tests.benchmarks.links import SlowHosts

    nodes = ranks // PER_NODE
    found = SlowHosts(place, nodes, RATE_BYTES_S, delay_s)
    try:
        found.build()
        yield found.mpirun([1] * nodes)
    finally:
        found.remove()


def figure(out: Path, small: bool, delay_s: float, *, hosts: bool) -> list[Path]:
    """Walk with all policies and all numbers of ranks; write the tables, curves and heat maps."""
    how = f"within {delay_s * NEAR_PART * 1000:g} ms, added by the transport"
    if hosts:
        how = f"added by a switch between network namespaces; {RATE_BYTES_S / 1e6:g} MB/s"
        if reason := obstacle():
            print(f"not measured: {reason}", file=sys.stderr)
            return []
    how = f"messages between nodes {delay_s * 1000:g} ms, {how}"
    print(how, file=sys.stderr)
    before = Surroundings.now()
    elements, element_s = (SMALL_ELEMENTS, SMALL_ELEMENT_S) if small else (ELEMENTS, ELEMENT_S)
    ranks = SMALL_RANKS if small else HOSTS_RANKS if hosts else RANKS
    runs: dict[tuple[str, int], list[Run]] = {}
    with tempfile.TemporaryDirectory(prefix="pcircle-", dir=scratch()) as place:
        root = Path(place, "tree")
        tree = grow(elements, 1)
        build(tree, root)
        for number in ranks:
            print(f"{number} ranks", file=sys.stderr)
            with _launcher(number, delay_s, Path(place), hosts=hosts) as launcher:

                def walk(name: str, number: int = number, line: Sequence[str] = launcher) -> Run:
                    policies = POLICIES[name]
                    job = Job(str(root), number, PER_NODE, policies, delay_s, element_s, hosts)
                    run = walked(job, line)
                    if sum(run.elements) != tree.elements:
                        raise RuntimeError(f"{sum(run.elements)} of {tree.elements} elements")
                    return run

                rounds = 1 if small or hosts or number < SINGLE_ROUND_BELOW else ROUNDS
                found = in_turns(list(POLICIES), rounds, walk, dropped=0)
            runs |= {(name, number): found[name] for name in POLICIES}
    text = f"{time.strftime('%Y-%m-%d')}; {tree.elements} elements of {element_s * 1000:g} ms"
    note = before.note(f"{text}; {how}; {PER_NODE} ranks a node")
    name = "lafon-hosts" if hosts else "lafon-real"
    table = write_table(out / f"{name}.csv", _HEADER, _rows(runs, element_s), note)
    most = {title: _middle(runs[title, ranks[-1]]) for title in POLICIES}
    pairs = _pair_table(out / f"{name}-pairs.csv", most, note)
    return [table, pairs, *_plots(out, name, runs, ranks, element_s, most)]


def _middle(runs: Sequence[Run]) -> Run:
    """Return the run with the median time."""
    return sorted(runs, key=lambda run: run.time_s)[(len(runs) - 1) // 2]


def _speed_up(run: Run, element_s: float) -> float:
    """Return the speed-up compared with one rank that never waits."""
    return sum(run.elements) * element_s / run.time_s


def _rows(runs: Mapping[tuple[str, int], Sequence[Run]], element_s: float) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for (name, ranks), all_runs in runs.items():
        run = _middle(all_runs)
        times_s = [one.time_s for one in all_runs]
        row: list[Cell] = [name, ranks, run.time_s, min(times_s), max(times_s)]
        row += [_speed_up(run, element_s), 100 * run.idle]
        row += [round(median(sum(map(sum, one.pair_messages)) for one in all_runs))]
        row += [round(median(sum(map(sum, one.pair_bytes)) for one in all_runs))]
        row += [round(median(one.requests for one in all_runs))]
        row += [round(median(max(map(max, one.pair_bytes)) for one in all_runs))]
        span = median(max(one.elements) - min(one.elements) for one in all_runs)
        row += [100 * span * ranks / sum(run.elements)]
        rows.append(row)
    return rows


def _pair_table(path: Path, runs: Mapping[str, Run], note: str) -> Path:
    rows = [
        (name, source, dest, messages, run.pair_bytes[source][dest])
        for name, run in runs.items()
        for source, row in enumerate(run.pair_messages)
        for dest, messages in enumerate(row)
        if messages
    ]
    header = ["policies", "from", "to", "messages", "bytes"]
    return write_table(path, header, rows, note)


def _plots(
    out: Path,
    name: str,
    runs: Mapping[tuple[str, int], Sequence[Run]],
    ranks: Sequence[int],
    element_s: float,
    most: Mapping[str, Run],
) -> list[Path]:
    def paint(picture: Any) -> None:
        panels = picture.subplots(1, 3)
        for policies in POLICIES:
            middles = [_middle(runs[policies, number]) for number in ranks]
            curves = (
                [run.time_s for run in middles],
                [_speed_up(run, element_s) for run in middles],
                [100 * run.idle for run in middles],
            )
            for axes, curve in zip(panels, curves, strict=True):
                axes.plot(ranks, curve, "-o", label=policies, markersize=3)
        panels[0].set(ylabel="seconds", yscale="log")
        panels[1].set(ylabel="speed-up", yscale="log")
        panels[1].plot(ranks, ranks, ":", color="grey", label="ideal")
        panels[2].set(ylabel="idle, % of the time of all ranks", ylim=(0, None))
        for axes in panels:
            axes.set(xscale="log", xlabel="ranks")
            axes.set_xticks(ranks, [str(number) for number in ranks])
            axes.grid(alpha=0.3)
        panels[1].legend()
        picture.suptitle("the engine with the policies of LaFon et al., measured")

    drawn = draw(out / f"{name}.svg", paint, size=(9.0, 3.6))
    for label in ("messages", "bytes"):
        maps = [(title, getattr(run, f"pair_{label}")) for title, run in most.items()]
        drawn += heat_maps(out / f"{name}-{label}.svg", maps, label)
    return drawn


TITLE = "the engine with the policies of DRQS, DEQS and PA-DRQS, measured: "
REAL = Figure("real", TITLE + "2 to 64 local ranks", 480.0, partial(figure, hosts=False), DELAY_S)
HOSTS = Figure("hosts", TITLE + "namespaces as nodes", 240.0, partial(figure, hosts=True), DELAY_S)
