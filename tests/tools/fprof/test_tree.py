"""The largest directories: their selection, as a table, in files, and on a terminal."""

from __future__ import annotations

import csv
import heapq
import os
import random
import re
import subprocess
import tracemalloc
from collections import defaultdict
from typing import Any

import pytest

from pcircle.cli.listing import cell_width
from pcircle.cli.output import Terminal, terminal_of
from pcircle.core.encoding import show
from pcircle.tools.fprof.profile.collect import Collector
from pcircle.tools.fprof.profile.model import MAX_DIRECTORIES, DirectoryRow, by_bytes, merge
from pcircle.tools.fprof.reports.tree import FEWEST_ROWS, lines_of, render
from tests import terminal
from tests.conftest import ROOT, SOAK
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, command
from tests.tools.fprof.running import FPROF, profiled, run_fprof, some_launchers
from tests.tools.fprof.test_saved import empty

ROW = re.compile(r"^ *[\d.]+ [KMG]?i?B  ")


def fill(path: bytes, size: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)


@pytest.fixture(scope="module")
def tree(shared_place: bytes) -> bytes:
    """Create directories of many sizes, with odd names, a huge one and a deep one."""
    root = os.path.join(shared_place, b"directories")
    dice = random.Random(3)
    folders = [root]
    for number in range(120):
        folders.append(os.path.join(dice.choice(folders), b"d%d" % number))
        os.makedirs(folders[-1])
        for file_number in range(dice.randrange(3)):
            fill(folders[-1] + b"/f%d" % file_number, dice.randrange(1 << 22))
    fill(root + b"/huge", 5 << 30)
    fill(
        root + "/日本語の長い名前のディレクトリ日本語の長い名前のディレクトリ/x".encode(), 900 << 20
    )
    fill(root + "/e\u0301combining/x".encode(), 800 << 20)
    fill(root + b"/\x1b[31mred\n\xff/x", 700 << 20)
    fill(root + b"/" + b"long" * 50 + b"/x", 600 << 20)
    fill(root + b"/" + b"/".join([b"deep"] * 60) + b"/x", 500 << 20)
    fill(root + b"/twice", 1 << 20)
    os.link(root + b"/twice", root + b"/d0/linked")
    return root


def sums_of(tree: bytes) -> dict[bytes, tuple[int, int]]:
    """Return each directory's bytes and entries including subtrees, by an independent walk."""
    sums: dict[bytes, tuple[int, int]] = {}
    for folder, below, names in os.walk(tree, topdown=False):
        size, entries = 0, 1
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            size += status.st_size // status.st_nlink
            entries += 1
        for name in below:
            inner = sums[os.path.join(folder, name)]
            size, entries = size + inner[0], entries + inner[1]
        sums[folder] = size, entries
    return sums


@some_launchers
@pytest.mark.parametrize("depth", [0, 1, 3, 300])
def test_all_directories_of_some_levels(launcher: Launcher, tree: bytes, depth: int) -> None:
    found = profiled(launcher, "--depth", str(depth), tree)["tree"]
    sums = sums_of(tree)
    listed_rows = {row["path"]: row for row in found["directories"]}
    wanted = {
        show(path): sums[path] for path in sums if path.count(b"/") - tree.count(b"/") <= depth
    }
    assert {path: (row["bytes"], row["entries"]) for path, row in listed_rows.items()} == wanted
    assert found["complete"]
    assert found["omitted_bytes"] == 0
    total = sums[tree][0]
    paths = [row["path"] for row in found["directories"]]
    last: defaultdict[str, float] = defaultdict(lambda: float("inf"))
    for place, path in enumerate(paths):
        row = listed_rows[path]
        above = path.rpartition("/")[0]
        assert row["share"] == pytest.approx(row["bytes"] / total, abs=1e-6)
        assert place == 0 or above in paths[:place]
        assert row["bytes"] <= last[above]  # the largest first
        last[above] = row["bytes"]


@pytest.mark.parametrize(("options", "levels"), [(["-d2"], range(1, 3)), ([], range(1, 100))])
def test_no_directories_above_a_level(tree: bytes, options: list[str], levels: range) -> None:
    """The rows are the directories that `find -mindepth` finds, with unchanged sums and shares."""
    found = profiled(ONE, *options, "--min-depth=1", tree)["tree"]["directories"]
    both = profiled(ONE, "-d99", tree)["tree"]["directories"]
    assert found == [row for row in both if row["depth"] in levels]
    limits = ["-mindepth", "1", *(["-maxdepth", "2"] if options else [])]
    command: list[str | bytes] = ["find", tree, *limits, "-type", "d", "-print0"]
    paths = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")[:-1]
    assert {row["path"] for row in found} == set(map(show, paths))


def test_levels_that_exclude_each_other_are_refused(tree: bytes) -> None:
    finished = run_fprof(ONE, "-d1", "--min-depth=2", tree)
    assert (finished.code, "--min-depth is larger than --depth" in finished.said) == (2, True)


def test_the_text_and_the_table_have_the_same_rows(tree: bytes, place: bytes) -> None:
    document = profiled(TWO, "-d2", "--csv", place + b"/tables", tree)
    rows = document["tree"]["directories"]
    with open(place + b"/tables/tree.csv", encoding="utf-8", newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == [row["path"] for row in rows]
    text = run_fprof(TWO, "-d2", tree).out.decode()
    lines = text.split("\n\n")[3].splitlines()
    assert lines[0].split() == ["size", "share", "entries", "directory,", "including",
                                "subdirectories"]  # fmt: skip
    assert [line.split("  ")[-1] for line in lines[1:]] == [row["path"] for row in rows]


def test_without_a_terminal_only_requested_sums_are_computed(tree: bytes) -> None:
    document = profiled(ONE, tree)
    assert document["tree"] is None
    assert run_fprof(ONE, tree).out.decode().startswith("   ")
    assert b"directory," not in run_fprof(ONE, tree).out


def test_saved_profiles_contain_the_tree(tree: bytes, place: bytes) -> None:
    saved = place + b"/kept"
    now = profiled(TWO, "-d", "2", "--save", saved, tree)
    merged = profiled(None, "--merge", "-d", "2", saved)
    assert merged["tree"] == now["tree"]


def test_several_paths_each_begin_a_tree(tree: bytes) -> None:
    paths = [tree + name for name in (b"/d0", b"/deep", b"/" + b"long" * 50)]
    rows = profiled(TWO, "-d0", *paths)["tree"]["directories"]
    sums = sums_of(tree)
    assert [row["bytes"] for row in rows] == sorted((sums[p][0] for p in paths), reverse=True)


@pytest.mark.parametrize("value", ["-1", "x", "1.5", ""])
def test_other_depths_are_refused(tree: bytes, value: str) -> None:
    finished = run_fprof(ONE, f"--depth={value}", tree)
    assert finished.code == 2
    assert f"--depth: invalid value '{value}': must be 0 or a positive integer" in finished.said


@some_launchers
def test_the_largest_of_too_many_directories_are_kept(launcher: Launcher, place: bytes) -> None:
    """Several ranks walk more directories than a profile keeps: the others are bounded."""
    dice = random.Random(8)
    for number in range(MAX_DIRECTORIES + 700):
        os.makedirs(place + b"/wide/%d/%d" % (number % 60, number))
        fill(place + b"/wide/%d/%d/x" % (number % 60, number), dice.randrange(1 << 30))
    found = profiled(launcher, "-d", "9", place + b"/wide")["tree"]
    sizes = sorted((size for size, _ in sums_of(place + b"/wide").values()), reverse=True)
    listed_sizes = sorted((row["bytes"] for row in found["directories"]), reverse=True)
    assert listed_sizes == sizes[:MAX_DIRECTORIES]
    assert not found["complete"]
    assert sizes[MAX_DIRECTORIES] <= found["omitted_bytes"] == sizes[MAX_DIRECTORIES - 1]
    text = run_fprof(launcher, "-d9", place + b"/wide").out.decode()
    assert re.search(r"^Directories of at most [\d.]+ MiB may be missing\.$", text, re.MULTILINE)


def test_more_directories_use_no_more_memory() -> None:
    """Two ranks' tables stay exact; in a soak with a million directories."""
    dice = random.Random(4)
    ranks = [Collector(("tree",), 1) for _ in range(2)]
    best: list[DirectoryRow] = []
    tracemalloc.start()
    try:
        for block in range(100 if SOAK else 12):
            rows = [
                DirectoryRow(0, b"%d/%d" % (block, row_number), 2, 2, dice.randrange(1 << 40), 1, 0)
                for row_number in range(10_000)
            ]
            best = heapq.nsmallest(MAX_DIRECTORIES, [*best, *rows], key=by_bytes)
            for row in rows:
                ranks[dice.randrange(2)].directory(row)
            del rows
            if block == 5:
                before, _ = tracemalloc.get_traced_memory()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after < 1.5 * before
    first, second = (rank.end((b"/r",)) for rank in ranks)
    assert merge(first, second).weights == best


def made(*rows: tuple[bytes, int, int]) -> Any:
    """Make a profile of directories: path, bytes, and bytes of direct entries."""
    profile = empty()
    profile.roots = (b"/r",)
    profile.weights = sorted(
        (
            DirectoryRow(0, path, path.count(b"/") + 1 if path else 0, 3, size, 2, own)
            for path, size, own in rows
        ),
        key=by_bytes,
    )
    profile.kinds["directory"][0] = len(rows)
    return profile


def names_of(text: str) -> list[str]:
    return [line.split("  ", 1)[1] for line in text.splitlines() if ROW.match(line)]


def test_directories_with_one_inside_share_a_row_and_files_have_one() -> None:
    profile = made((b"", 100, 0), (b"a", 100, 0), (b"a/b", 100, 40), (b"a/b/c", 60, 60))
    text = render(profile, Terminal(24, 40), 0, unicode=True)
    assert names_of(text) == ["/r/a/b", "├─ c", "└─ (files in it)"]
    assert "smaller" not in text


@pytest.mark.parametrize("most", [10, 11, 17, 40])
def test_the_table_fills_the_terminal(most: int) -> None:
    rows = [(b"", 5000, 900), *((b"%d" % child, 100 - child, 100 - child) for child in range(60))]
    text = render(made(*rows), Terminal(most, 120), 0, unicode=False)
    names = names_of(text)
    assert len(names) == max(most, FEWEST_ROWS)
    assert names[1].endswith("|- (files in it)")
    shown = sum(1 for name in names if "files" not in name)
    omitted = 100 - (shown - 1)  # the size of the next one
    assert text.splitlines()[-1] == f"and {61 - shown} smaller directories of at most {omitted} B"


def test_one_smaller_directory_has_a_row() -> None:
    """Its row takes the line on which it would only be counted."""
    rows = [(b"", 5000, 900), *((b"%d" % child, 100 - child, 100 - child) for child in range(60))]
    text = render(made(*rows), Terminal(61, 120), 0, unicode=False)
    assert "smaller" not in text
    assert "and 2 smaller" in render(made(*rows), Terminal(60, 120), 0, unicode=False)


@pytest.mark.parametrize("columns", [8, 20, 40, 59, 60, 71, 72, 80, 200])
@pytest.mark.parametrize("depth", [1, 9, 200])
def test_output_fits_the_terminal(columns: int, depth: int) -> None:
    """This holds for deep branches and for long or wide names."""
    rows = [(b"", 10**9, 0)]
    path = b""
    for level in range(depth):
        path = path + b"/" * bool(path) + (b"x" * 70 if level % 7 else "漢字".encode() * 20)
        rows += [(path, 10**8 - level, 1), (path + b"'", 100, 100)]
    for unicode in (True, False):
        text = render(made(*rows), Terminal(50, columns), 0, unicode=unicode)
        room = max(columns, len("size") + 2 + 6 + 8)
        lines = text.splitlines()
        assert max(cell_width(line) for line in lines if ROW.match(line)) <= max(room, 24)
        assert unicode or not any(mark in text for mark in "├└│…█")


def test_empty_trees_and_other_streams() -> None:
    assert render(made(), Terminal(24, 80), 0, unicode=True) == ""
    assert terminal_of(None) is None
    with open(os.devnull, encoding="utf-8") as stream:
        assert terminal_of(stream) is None
    with open(os.devnull, encoding="utf-8") as stream:
        pass
    assert terminal_of(stream) is None
    assert lines_of(["a\nb\n", "c" * 25 + "\n"], Terminal(24, 10)) == 3 + 2 + 1 + 3 + 1


# ---- a real terminal -----------------------------------------------------------


def fprof(*arguments: str | bytes) -> list[str | bytes]:
    return command(ONE, arguments, FPROF)


@pytest.mark.parametrize(("columns", "lines"), [(100, 60), (72, 45), (60, 75), (80, 24)])
def test_the_report_on_a_terminal_ends_with_the_largest_directories(
    tree: bytes, columns: int, lines: int
) -> None:
    with terminal.Terminal(columns, lines) as window:
        assert window.run(fprof("--progress=never", tree)) == 0
        screen = window.screen().splitlines()
        whole = window.screen(joined=True).splitlines()
    first = next(place for place, line in enumerate(screen) if line.endswith("directory"))
    assert screen[first].split()[0] == "size"
    assert screen[first + 1].split()[-1].endswith("directories")  # the PATH
    assert "(files in it)" in screen[first + 2]
    names = [line for line in screen[first:] if ROW.match(line)]
    assert len(names) >= FEWEST_ROWS
    assert any(r"\x1b[31mred\x0a\xff" in line for line in names)
    assert whole[-2].startswith("and ")
    assert "smaller" in whole[-2]
    assert screen[-1].startswith("ready>")
    above = "\n".join(screen[:first])
    assert re.search(r"^files .*\n(.*\n)*^all .*\n(.*\n)*^largest directory", above, re.MULTILINE)
    assert lines == 24 or "size up to" in above  # nothing has scrolled off a larger screen


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_bars_and_tables_fit_the_terminal(place: bytes, columns: int) -> None:
    for size in (1, 5000, 20_000, 1 << 30):
        fill(place + b"/d/f%d" % size, size)
    with terminal.Terminal(columns, 60) as window:
        words = ["sh", "-c", 'cd "$0"; exec "$@"', place, *fprof("--progress=never", "d")]
        assert window.run(words) == 0
        screen = window.screen()
        assert screen.split() == window.screen(joined=True).split()  # no line is wrapped
    histogram = screen.partition("size up to")[2].partition("\n\n")[0].splitlines()
    assert all(line.count("█") + line.count("▏") for line in histogram[1:] if " 0 " not in line)
    assert ("%" in "".join(histogram)) == (columns > 40)


def test_a_narrow_terminal_shows_sizes_and_names(tree: bytes) -> None:
    with terminal.Terminal(40, 60) as window:
        assert window.run(fprof("--progress=never", tree)) == 0
        lines = window.screen(joined=True).splitlines()
    head = lines.index("     size  directory")
    assert re.fullmatch(r" *5\.0 GiB  ├─ \(files in it\)", lines[head + 2])
    assert max(map(len, lines[head : head + FEWEST_ROWS])) <= 40


@pytest.mark.parametrize(
    ("environment", "marks"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "|- "),
        ({"NO_COLOR": "1", "TERM": "dumb"}, "├─ "),
    ],
    ids=["ascii", "dumb"],
)
def test_other_terminals(tree: bytes, environment: dict[str, str | None], marks: str) -> None:
    if "PYTHONUTF8" in environment:
        environment = {**environment, "PYTHONIOENCODING": None}
    with terminal.Terminal(90, 60, environment) as window:
        assert window.run(fprof("--progress=never", tree)) == 0
        screen = window.screen()
        assert window.screen(colored=True).count("\x1b[") == 0
    assert f"{marks}(files in it)" in screen


def test_the_text_goes_to_standard_error_with_a_document(tree: bytes) -> None:
    """Standard output is a file then, and not a terminal, but standard error is one."""
    words = fprof("--progress=never", "--json", "-", tree)
    with terminal.Terminal(90, 60) as window:
        code = window.run(["sh", "-c", '"$@" >/dev/null', "sh", *words])
        assert code == 0
        assert "├─ (files in it)" in window.screen()


def test_quiet_is_quiet(tree: bytes) -> None:
    with terminal.Terminal(90, 60) as window:
        assert window.run(fprof("-q", tree)) == 0
        assert window.screen().strip() == "ready>"


def test_the_manual_matches_a_terminal(place: bytes) -> None:
    """The example of the manual runs on the tree that it creates."""
    text = (ROOT / "docs" / "fprof.rst").read_text(encoding="utf-8")
    shown = text.partition("    $ fprof tree\n    ...\n")[2].partition("\n\n")[0]
    commands = re.findall(r"^    \$ (fbench make .* tree)$", text, re.MULTILINE)
    assert len(commands) == 1
    with Run(None, *commands[0].split()[1:], program=("pcircle.tools.fbench",), cwd=place) as run:
        assert run.finish().code == 0
    with terminal.Terminal(80, 41) as window:
        words = ["sh", "-c", 'cd "$0"; exec "$@"', place, *fprof("--progress=never", "tree")]
        assert window.run(words) == 0
        screen = window.screen()
    *found, prompt = screen.strip().split("\n\n")[-1].splitlines()
    assert prompt.startswith("ready>")
    assert found == [line.removeprefix("    ") for line in shown.splitlines()]


@pytest.mark.parametrize("seed", range(4))
def test_joint_and_single_ranking_agree(seed: int) -> None:
    """More directories than are kept, of several roots and depths, many of equal size."""
    dice = random.Random(seed)
    facets, top = ("top", "tree", "dirsize"), 3
    together, apart = Collector(facets, top), Collector(facets, top)
    for number in range(1000):
        root, depth = dice.randrange(5), dice.randint(1, 4)
        prefix = b"".join(b"d%d/" % dice.randrange(9) for _ in range(depth - 1))
        names = [b"%d-%d" % (number, item) for item in range(dice.randint(1, 20))]
        counts = [dice.choice((0, 1, 1, 1, 5)) for _ in names]
        sizes = [2 * count for count in counts]
        together.directories(root, prefix, depth, names, counts, sizes)
        for name, count, size in zip(names, counts, sizes, strict=True):
            row = DirectoryRow(root, prefix + name, depth, count + 1, size, count, size)
            apart.directory(row)
    found, wanted = (item.end((b"",) * 5) for item in (together, apart))
    for field in ("weights", "crowds", "heavy", "wide", "directory_sizes"):
        assert getattr(found, field) == getattr(wanted, field), field
