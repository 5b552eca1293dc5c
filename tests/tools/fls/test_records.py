"""Output of fls for other programs, and its limits on rate and time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher, Run
from tests.tools.frm.running import FRM, grow, paths

from .running import every_launcher, listed, rows, run_fls
from .test_rows import path_of


def _found(top: bytes) -> set[bytes]:
    """Return the entries of a tree with their types."""
    words = ["find", os.fsdecode(top), "-mindepth", "1", "-printf", r"%y %P\0"]
    return set(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.split(b"\0")[:-1])


def _plant(place: bytes) -> bytes:
    """Create long names, many files in one directory and many directories in another."""
    top = place + b"/tree"
    grow(top, [f"wide/{number}" for number in range(3000)])
    grow(top, [f"wide/d{number}/" for number in range(1200)])
    grow(top, ["a", "\udcff", "line\nbreak", "# no comment", ".hidden/x"])
    os.symlink("nowhere", top + b"/link")
    os.mkfifo(top + b"/fifo")
    return top


@every_launcher
def test_each_entry_is_recorded_once(place: bytes, launcher: Launcher) -> None:
    top = _plant(place)
    lines, names = place + b"/lines", place + b"/names"
    shown = listed(launcher, "-AR", "-0", "--json-lines", lines, "--list-out", names, top)
    with open(lines, "rb") as file:
        actions = [json.loads(line) for line in file]
    kinds = []
    for action in actions:
        assert (action["tool"], action["action"], action["state"]) == ("fls", "list", "done")
        assert (action["root"], action["errno"]) == (0, None)
        if "path" in action:
            kinds.append(os.fsencode(f"{action['kind']} {action['path']}"))
    found = _found(top)
    assert len(actions) == len(found)
    assert sorted(kinds) == sorted(name for name in found if b"\xff" not in name)
    with open(names, "rb") as file:
        paths_told = file.read().split(b"\0")[:-1]
    assert sorted(paths_told) == sorted(name.partition(b" ")[2] for name in found)
    assert shown == listed(ONE, "-AR", "-0", top)


def test_a_list_is_input_for_other_tools(place: bytes) -> None:
    """It contains only entries that filters select and that are not hidden."""
    top = grow(place + b"/tree", ["a.log", "b", "d/c.log", "d/e", "d/.f.log"])
    names = place + b"/names"
    rules = ("--kind=f", "--include=*/", "--include=*.log", "--exclude=*")
    listed(TWO, "-R", *rules, "--list-out", names, top)
    with Run(ONE, "-q", "--kind=f", "--files-from", names, top, program=FRM) as started:
        assert started.finish().code == 0
    assert paths(top) == [b"b", b"d", b"d/.f.log", b"d/e"]


def test_one_directory_and_a_file_as_path(place: bytes) -> None:
    top, lines = grow(place + b"/tree", ["a", "d/b"]), place + b"/lines"
    listed(ONE, "--json-lines", lines, top, top + b"/d/b")
    with open(lines, "rb") as file:
        actions = {(line["root"], line["path"], line["kind"]) for line in map(json.loads, file)}
    paths_told = {path for _, path, _ in actions}
    assert paths_told == {"a", "d", "."}
    assert {kind for _, path, kind in actions if path == "d"} == {"d"}


def test_mount_points_are_not_entered_with_x(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """They are listed, and not entered, as with find -xdev."""
    inner = grow(mount_tmpfs("size=1m"), ["a", "d/b"])
    grow(place, ["here/x"])
    words = ["find", os.fsdecode(place), "-mindepth", "1", "-xdev", "-printf", r"%P\0"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    expected = sorted(done.stdout.split(b"\0")[:-1])
    for launcher in (ONE, TWO):
        for options, is_crossed in ((["-x"], False), ([], True)):
            found = [path_of(row) for row in rows(launcher, "-AR", *options, place)]
            below = sorted(os.path.relpath(path, place) for path in found)
            assert (below == expected) is not is_crossed
            assert (inner + b"/d/b" in found) is is_crossed


def test_entries_per_second_are_limited(place: bytes) -> None:
    """Four hundred entries at a thousand a second take a measurable time."""
    top = grow(place + b"/tree", [f"{number}/x" for number in range(200)])
    began_s = time.monotonic()
    listed(ONE, "-lR", "--ops-limit", "1000", top)
    assert time.monotonic() - began_s >= (400 - 100) / 1000


@pytest.mark.parametrize("options", [["-lR"], ["-U", "-R"], ["-R", "--json", "-"]], ids=" ".join)
def test_a_time_limit_stops_cleanly(place: bytes, options: list[str]) -> None:
    """Entries listed by then are printed, and nothing twice."""
    top = grow(place + b"/tree", [f"{number}/{number}" for number in range(500)])
    for limit_s in (0.8, 5, 30):  # a busy machine may list nothing in a short time
        limits = (f"--ops-limit={160 / limit_s}", f"--stop-after={limit_s}")
        done = run_fls(ONE, *options, *limits, top)
        assert done.code == 4
        assert "fls: time limit reached (--stop-after " in done.said
        if "--json" in options:
            document = json.loads(done.out)
            assert document["exit_code"] == 4
            found = [entry["path"] for entry in document["entries"]]
            assert len(found) == len(set(found))
        else:
            found = [line.decode() for line in done.out.splitlines() if b"/tree" in line]
        if found:
            break
    assert 0 < len(found) < 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--list-out=-", "--list-out: standard output is used for the listing"),
        ("--list-out=x tree tree/d", "--list-out requires one PATH, a directory"),
        ("--list-out=x tree/a", "--list-out requires one PATH, a directory"),
        ("--list-out=x --json-lines=x", "'x' is used by two options"),
        ("--list-out=x --csv=x", "'x' is used by two options"),
        ("--total --list-out=x", "--total cannot be combined with --list-out"),
        ("--total --json-lines=x", "--total cannot be combined with --json-lines"),
        ("--ops-limit=0", "--ops-limit: invalid value '0'"),
        ("--stop-after=1 --stop-at=23:00", "--stop-after cannot be combined with --stop-at"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, words: str, said: str) -> None:
    top = grow(os.fsencode(tmp_path), ["tree/a", "tree/d/b"])
    done = run_fls(ONE, *words.split(), cwd=top)
    assert (done.code, done.said.startswith(f"fls: {said}")) == (2, True), done.said
    assert sorted(os.listdir(tmp_path)) == ["tree"]
