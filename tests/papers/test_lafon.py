"""LaFon's walks lose nothing, count exactly, and match the paper's findings where possible."""

from __future__ import annotations

import csv
from collections import deque
from pathlib import Path
from random import Random

import msgspec
import pytest

from examples.papers import output
from examples.papers.command import main
from examples.papers.lafon import FIGURES
from examples.papers.lafon_analysis import bound, exponent, fits, flat, requests_of
from examples.papers.lafon_central import traffic_of, walk_centrally
from examples.papers.lafon_cost import Costs, Result
from examples.papers.lafon_paper import MESSAGES_OVER_DISTRIBUTED, TIME_OVER_DISTRIBUTED
from examples.papers.lafon_runs import DISTRIBUTED, EVERY, play
from examples.papers.lafon_steal import DEQS, DRQS, H_DRQS, PA_DRQS, Scheme, _mix, _taken, walk
from examples.papers.lafon_steal import _victims as victims
from examples.papers.lafon_tree import Tree, grow

CORES = 40
SIZE = 250_000
MAX_PLOT_BYTES = 60_000


@pytest.fixture(scope="module")
def tree() -> Tree:
    return grow(SIZE, 1)


@pytest.fixture(scope="module")
def runs(tree: Tree) -> dict[str, Result]:
    return {name: play(name, tree, CORES, 1) for name in EVERY}


@pytest.mark.parametrize(("elements", "huge"), [(1, 0.0), (19, 0.0), (20_000, 0.0), (20_000, 0.1)])
def test_a_tree_has_the_requested_number_of_elements(elements: int, huge: float) -> None:
    tree = grow(elements, 3, huge)
    assert tree.elements == elements
    below = sorted(element for row in tree.subdirectories for element in row)
    assert below == list(range(1, tree.directories))
    assert min(tree.files) >= 0
    assert max(tree.files) >= huge * sum(tree.files)


SCHEMES = {
    "DRQS": DRQS,
    "DEQS": DEQS,
    "PA-DRQS": PA_DRQS,
    "H-DRQS": H_DRQS,
    "newest": Scheme(give_newest=True),
    "files": Scheme(order="files"),
    "directories": Scheme(order="directories", per_node=1, threads=3),
    "late": Scheme(probe_directories=True),
    "in place": Scheme(in_place=True),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 10])
def test_every_element_is_visited_once(name: str, ranks: int) -> None:
    tree, scheme, costs = grow(3_000, ranks), SCHEMES[name], Costs()
    result = walk(tree, ranks, scheme, 5)
    assert sum(result.elements) == tree.elements
    assert sum(result.lstat_s) == pytest.approx(tree.elements * costs.lstat_s)
    reading_s = tree.directories * costs.readdir_s + (tree.elements - 1) * costs.entry_s
    assert sum(result.readdir_s) == pytest.approx(reading_s)
    for rank in range(ranks):  # the times of a rank's threads add up to the time of the job
        work_s = result.lstat_s[rank] + result.readdir_s[rank] + result.barrier_s[rank]
        other_s = result.serve_s[rank] + result.idle_s[rank]
        # In a run of files all threads work: the remainder of a step is the only rounding.
        assert work_s / scheme.threads + other_s == pytest.approx(result.time_s, rel=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    tree = grow(3_000, 1)
    assert play(name, tree, 8, 2) == play(name, grow(3_000, 1), 8, 2)
    assert sum(play(name, tree, 8, 2).elements) == tree.elements


@pytest.mark.parametrize("newest", [False, True])
def test_a_share_is_taken_from_one_end_and_runs_are_split(newest: bool) -> None:
    queue = deque([7, -5, 8, -2])  # 9 elements
    taken = _taken(queue, 4, newest)
    if newest:
        assert (list(queue), list(taken)) == ([7, -4], [-1, 8, -2])
    else:
        assert (list(queue), list(taken)) == ([-2, 8, -2], [7, -3])


def test_mixed_children_are_complete() -> None:
    rng = Random(1)
    for files in range(1, 9):
        queue: deque[int] = deque([99])
        _mix(queue, files, [3, 4, 5], rng)
        assert [element for element in queue if element >= 0] == [99, 3, 4, 5]
        assert sum(-element for element in queue if element < 0) == files


def test_requests_prefer_ranks_of_the_same_node() -> None:
    nodes = [0, 0, 0, 1, 1, 1]
    assert victims(1, nodes, aware=True) == [0, 2]
    assert victims(3, nodes, aware=True) == [0, 1, 2, 4, 5]
    assert victims(0, nodes, aware=True) == [3, 4, 5, 1, 2]
    assert sorted(victims(4, nodes, aware=False)) == [0, 1, 2, 3, 5]


def test_a_rank_answers_after_the_current_element() -> None:
    """For two ranks and one directory of ten files the time of rank 1's share can be computed."""
    costs = Costs()
    tree = Tree([10], [()])
    result = walk(tree, 2, DEQS, 1, costs)
    assert sum(result.elements) == 11
    read_s = costs.lstat_s + costs.readdir_s + 10 * costs.entry_s
    # Rank 1 sent its request during the read of the root; the answer, half of the files, follows
    # it.
    assert result.elements[1] == 5
    sent_bytes = costs.word_bytes * 7 + costs.path_bytes * 5
    got_s = read_s + 3 * costs.serve_s + 2 * costs.near_s + sent_bytes * costs.byte_s
    assert result.idle_s[1] >= got_s
    assert result.time_s >= got_s + 5 * costs.lstat_s


@pytest.mark.parametrize("ranks", [3, 8, 30])
def test_messages_of_cp_can_be_computed(ranks: int) -> None:
    tree, costs = grow(20_000, 1), Costs()
    result = walk_centrally(tree, ranks)
    sent = (result.messages, result.total_bytes)
    assert sent == traffic_of(tree.elements, tree.directories, ranks)
    # Fig. 1: no messages between workers; the brightest pair is the reader's.
    for source, row in enumerate(result.pair_bytes):
        for dest, sent_bytes in enumerate(row):
            assert (sent_bytes > 0) == ((source == 0) != (dest == 0))
    paths = (tree.elements - 1) * costs.path_bytes
    assert result.busiest_bytes == result.pair_bytes[1][0]
    assert result.busiest_bytes == pytest.approx(paths, rel=0.01)


def test_a_centralised_walk_needs_a_reader_and_a_worker() -> None:
    with pytest.raises(ValueError, match="reader"):
        walk_centrally(grow(100, 1), 2)


def test_against_another_implementation(runs: dict[str, Result]) -> None:
    """A first prototype has other trees and details: times in s, messages, MB, busiest MB."""
    known = {
        "CP": (37.5, 512_539, 124.1, 61.6),
        "DRQS": (3.93, 34_852, 39.1, 0.16),
        "DEQS": (3.94, 34_879, 38.0, 0.15),
        "PA-DRQS": (3.92, 98_423, 32.6, 0.77),
        "H-DRQS": (4.30, 14_093, 27.1, 0.31),
    }
    for name, (time_s, messages, megabytes, busiest) in known.items():
        result = runs[name]
        assert result.time_s == pytest.approx(time_s, rel=0.08)
        assert 1 / 2.2 < result.messages / messages < 2.2
        assert 1 / 2.2 < result.total_bytes / megabytes / 1e6 < 2.2
        assert 1 / 2.2 < result.busiest_bytes / busiest / 1e6 < 2.2


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_all_distributed_walks_are_faster_than_cp(runs: dict[str, Result], name: str) -> None:
    assert runs["CP"].time_s / runs[name].time_s > TIME_OVER_DISTRIBUTED.value
    assert runs["CP+"].time_s == pytest.approx(runs["CP"].time_s, rel=0.1)


def test_messages_and_pairs(runs: dict[str, Result]) -> None:
    ratio = runs["CP"].messages / runs["H-DRQS"].messages
    assert ratio > MESSAGES_OVER_DISTRIBUTED.value
    assert runs["CP"].busiest_bytes / runs["DRQS"].busiest_bytes > 10
    assert runs["CP"].busiest_bytes / runs["H-DRQS"].busiest_bytes > 50
    assert runs["pcircle"].messages < runs["H-DRQS"].messages
    assert runs["pcircle"].total_bytes < runs["H-DRQS"].total_bytes / 4


def test_one_rank_is_overloaded_if_it_polls_late() -> None:
    tree = grow(100_000, 1, huge=0.1)
    plain, late, whole = (
        walk(tree, 20, scheme, 1)
        for scheme in (DRQS, Scheme(probe_directories=True), Scheme(in_place=True))
    )
    assert plain.span < late.span
    assert max(whole.shares) > 0.1
    assert whole.span > 5 * plain.span


def test_a_pause_saves_messages() -> None:
    tree = grow(50_000, 1)
    sent = [walk(tree, CORES, PA_DRQS, 1, Costs(pause_s=pause)).messages for pause in (0, 1e-3)]
    assert sent[0] > 2 * sent[1]


def test_neighbours_make_the_hybrid_the_fastest() -> None:
    tree = grow(50_000, 1)
    ratios = [
        walk(tree, CORES // 2, H_DRQS, 1, costs).time_s / walk(tree, CORES, DRQS, 1, costs).time_s
        for costs in (Costs(), Costs(neighbour_s=2e-4))
    ]
    assert ratios[0] > 1 > ratios[1]


def test_a_steal_costs_a_constant_and_a_time_per_byte() -> None:
    costs, files = Costs(), 30_000
    first_s = costs.lstat_s + costs.readdir_s + files * costs.entry_s
    found = fits(requests_of("DRQS", flat(files), CORES, 1), first_s)
    (transfer, _, alpha_s, beta_s), (steal, samples, wait_s, steal_beta_s) = found
    assert (transfer, steal) == ("transfer", "steal")
    assert samples > 100
    assert (alpha_s, beta_s) == pytest.approx((2 * costs.far_s, costs.byte_s), rel=1e-6)
    # The request, half an element of the victim, and the answer.
    expected_s = costs.far_s + costs.lstat_s / 2 + costs.serve_s + 2 * costs.far_s
    assert wait_s == pytest.approx(expected_s, rel=0.1)
    assert steal_beta_s == pytest.approx(costs.byte_s, rel=0.25)


def test_requests_grow_with_the_square_of_the_ranks() -> None:
    files, ranks = 20_000, (8, 16, 32, 64)
    runs = {
        name: [requests_of(name, flat(files), number, 1) for number in ranks]
        for name in ("DRQS", "DEQS", "in turn", "pcircle")
    }
    for number, random, in_turn in zip(ranks, runs["DRQS"], runs["in turn"], strict=True):
        # Random requests find rank 0 after n - 1 on average; in turn it is the first.
        assert random.first_requests == pytest.approx((number - 1) ** 2, rel=0.5)
        assert in_turn.first_requests == number - 1
        assert number**2 / 2 < random.last_requests < 2 * number**2
        assert in_turn.requests <= bound(number, files + 1)
    growth = {
        name: exponent(ranks, [result.requests for result in results])
        for name, results in runs.items()
    }
    assert all(1.6 < growth[name] < 2.2 for name in ("DRQS", "DEQS", "in turn"))
    assert growth["pcircle"] < 1.5


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_every_figure_is_generated(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("lafon", FIGURES, [name, "--small", "--out", str(tmp_path)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    tables = [path for path in written if path.suffix == ".csv"]
    plots = [path for path in written if path.suffix != ".csv"]
    for table in tables:
        with table.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert {len(row) for row in rows} == {len(header)}
    assert len(plots) == output.can_plot()
    assert all(0 < plot.stat().st_size < MAX_PLOT_BYTES for plot in plots)


def test_schemes_are_data() -> None:
    assert msgspec.structs.replace(DRQS, half=True) == DEQS
