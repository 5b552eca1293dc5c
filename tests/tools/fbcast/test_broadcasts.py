"""Broadcasts to directories that represent nodes, verified by an independent walker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pcircle.tools.fbcast.stream import FileListComparer, Operand, SourceReader, TreeWriter
from tests import strace
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.judge import differences
from tests.tools.fcp.running import Launcher, without_rights
from tests.tools.fcp.trees import MIB, build_deep_tree, content, make_directory, write_file

from .running import broadcast, every_launcher, left_over, run_fbcast, start, target, targets

FOUR = Launcher(jobs=4)


def _build(root: bytes) -> bytes:
    """Create a small tree with links of both kinds, holes, modes and times."""
    make_directory(root, b"inner/closed")
    write_file(root + b"/large", content(1, 5 * MIB + 7))
    for number in range(50):
        write_file(root + b"/inner/%d" % number, content(number, 100 * number), 0o640)
    write_file(root + b"/inner/closed/\xff\n", b"odd name")
    os.link(root + b"/inner/3", root + b"/inner/closed/three")
    os.symlink(b"../nowhere", root + b"/inner/link")
    with open(root + b"/hole", "wb") as file:
        file.truncate(3 * MIB)
        file.seek(2 * MIB)
        file.write(b"in the middle")
        file.truncate(4 * MIB)
    os.utime(root + b"/inner/7", ns=(1_000_000_007, 2_000_000_009))
    os.utime(root + b"/inner", ns=(3_000_000_007, 4_000_000_009))
    os.chmod(root + b"/inner/closed", 0o550)
    return root


def _write(path: bytes, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


@every_launcher
def test_a_tree_and_a_file_are_the_same_on_all_nodes(launcher: Launcher, place: bytes) -> None:
    tree = _build(place + b"/tree")
    single = write_file(place + b"/file", content(9, 3 * MIB), 0o751)
    nodes = targets(place, launcher.size)
    broadcast(launcher, place, "-q", tree, single, target(place))
    for node in nodes:
        assert differences(tree, node + b"/tree") == []
        assert differences(single, node + b"/file") == []
        first = os.stat(node + b"/tree/inner/3")
        assert first.st_ino == os.stat(node + b"/tree/inner/closed/three").st_ino
        assert os.stat(node + b"/tree/hole").st_blocks * 512 < 2 * MIB
    assert left_over(place) == []


def test_everything_rare(odd_tree: bytes, place: bytes) -> None:
    nodes = targets(place, 3)
    finished = broadcast(Launcher(jobs=3), place, odd_tree, target(place))
    for node in nodes:
        assert differences(odd_tree, node + b"/odd") == []
    assert "3 nodes" in finished.said


def test_stats_show_the_time_of_each_node(place: bytes) -> None:
    """Each node received the whole stream; a check or removal sends nothing."""
    tree = _build(place + b"/tree")
    targets(place, 3)
    words = ("--stats", "--json", "-", tree, target(place))
    finished = broadcast(Launcher(jobs=3), place, *words)
    document = json.loads(finished.out)
    assert [node["rank"] for node in document["ranks"]] == [0, 1, 2]
    assert all(0 < node["elapsed_s"] <= document["elapsed_s"] for node in document["ranks"])
    lines = finished.said.splitlines()
    header = next(at for at, line in enumerate(lines) if line.split()[:2] == ["rank", "node"])
    rows = [line.split() for line in lines[header + 1 : header + 4]]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    for action in ("--check", "--remove"):
        said = broadcast(Launcher(jobs=3), place, "--stats", action, tree, target(place)).said
        assert said.count(" 0 B") == 3


def test_many_nodes_exchange_small_data(place: bytes) -> None:
    """The model chooses an exchange for small data, and a chain for large data."""
    small = write_file(place + b"/small", content(3, 70_000))
    large = write_file(place + b"/large", content(4, 8 * MIB))
    nodes = targets(place, 9)
    result = place + b"/result"
    launcher = Launcher(jobs=9)
    for path, way in ((small, "exchange"), (large, "chain")):
        broadcast(launcher, place, "--json", result, path, target(place))
        assert json.loads(Path(os.fsdecode(result)).read_bytes())["way"] == way
        name = os.path.basename(path)
        assert [differences(path, os.path.join(node, name)) for node in nodes] == [[]] * 9


def test_one_process_of_a_node_acts_for_it(place: bytes) -> None:
    tree = _build(place + b"/tree")
    node = make_directory(place, b"node")
    finished = broadcast(FOUR, place, tree, node)
    assert differences(tree, node + b"/tree") == []
    assert "on 1 node in" in finished.said


def test_processes_with_a_shared_directory_are_detected(place: bytes) -> None:
    tree = _build(place + b"/tree")
    make_directory(place, b"shared")
    for rank in range(3):
        os.symlink(b"shared", place + b"/node%d" % rank)
    finished = run_fbcast(Launcher(jobs=3), place, tree, target(place))
    assert finished.code == 2, finished.said
    assert "other nodes use the same directory" in finished.said
    assert os.listdir(place + b"/shared") == []


def test_existing_destinations(place: bytes) -> None:
    """A file is replaced, as by cp; a directory only on request."""
    tree = _build(place + b"/tree")
    single = write_file(place + b"/file", b"new")
    nodes = targets(place, 4)
    write_file(nodes[1] + b"/file", b"old")
    assert run_fbcast(FOUR, place, "-n", single, target(place)).code == 2
    assert os.listdir(nodes[0]) == []
    broadcast(FOUR, place, single, target(place))
    assert all(Path(os.fsdecode(n + b"/file")).read_bytes() == b"new" for n in nodes)

    write_file(make_directory(nodes[2], b"tree") + b"/old", b"old")
    finished = run_fbcast(FOUR, place, tree, target(place))
    assert finished.code == 2
    assert "add --update to update it, or --force to replace it" in finished.said
    assert [os.path.exists(node + b"/tree") for node in nodes] == [False, False, True, False]
    broadcast(FOUR, place, "--force", tree, target(place))
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 4
    broadcast(FOUR, place, "--force", tree, target(place))
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 4
    assert left_over(place) == []


def test_update_sends_differences(place: bytes) -> None:
    tree = _build(place + b"/tree")
    nodes = targets(place, 4)
    broadcast(FOUR, place, tree, target(place))
    _write(nodes[2] + b"/tree/inner/9", b"damaged")
    os.unlink(nodes[3] + b"/tree/inner/8")
    write_file(nodes[1] + b"/tree/more", b"to be removed")
    _write(tree + b"/inner/10", b"changed")
    result = place + b"/result"
    broadcast(FOUR, place, "--update", "--json", result, tree, target(place))
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 4
    assert json.loads(Path(os.fsdecode(result)).read_bytes())["sent_bytes"] < 60_000
    assert left_over(place) == []


@pytest.mark.parametrize("changed", ["node", "source"])
def test_changes_after_the_comparison_are_not_kept(place: bytes, changed: str) -> None:
    """The change is on the node, or at the source, where it renumbers the files."""
    for root in (b"tree", b"old/tree"):
        make_directory(place, root)
        for number in range(4):
            write_file(place + b"/%b/%d" % (root, number), content(number, 1000))
    new = os.open(make_directory(place, b"new"), os.O_RDONLY | os.O_DIRECTORY)
    old = os.open(place + b"/old", os.O_RDONLY | os.O_DIRECTORY)
    reader = SourceReader([Operand(place + b"/tree", b"tree")])
    try:
        reader.begin(2, False, None)
        compared = FileListComparer(old, lambda: None)
        compared.write(reader.read()[0])
        assert compared.complete() == b"\0"
        if changed == "node":
            _write(place + b"/old/tree/2", content(9, 1000))
        else:
            for number in range(4):
                os.rename(place + b"/tree/%d" % number, place + b"/tree/%d" % (number + 4))
        reader.begin(2, True, b"\0")
        written = TreeWriter(new, old, lambda: None)
        with pytest.raises(OSError, match="since it was compared"):
            written.write(reader.read()[0])
        written.close()
    finally:
        reader.close()
        os.close(new)
        os.close(old)


@pytest.mark.parametrize("entry", ["link", "loop", "hole", "hard links"])
def test_the_estimate_is_the_size_of_the_stream(place: bytes, entry: str) -> None:
    """Entries that look large are not counted unless their content is sent."""
    tree = make_directory(place, b"tree")
    if entry == "loop":
        os.symlink(b".", tree + b"/loop")
    elif entry == "hard links":
        path = write_file(tree + b"/0", content(1, 400_000))
        for number in range(1, 200):
            os.link(path, tree + b"/%d" % number)
    else:
        path = write_file((place if entry == "link" else tree) + b"/large", b"x")
        os.truncate(path, 1 << 40)
        if entry == "link":
            os.symlink(path, tree + b"/link")
    reader = SourceReader([Operand(tree, b"tree")])
    try:
        assert reader.begin(64, True, None) == "exchange"
        sent, is_last = reader.read()
        while not is_last:
            more, is_last = reader.read()
            sent += more
    finally:
        reader.close()
    assert len(sent) < 500_000
    enough = 1 << 50
    estimate = reader._size_up_to(enough)
    assert abs(estimate - len(sent)) < 64 * reader.totals.entries + 4096


def test_check_names_the_nodes_that_differ(place: bytes) -> None:
    tree = _build(place + b"/tree")
    nodes = targets(place, 4)
    broadcast(FOUR, place, tree, target(place))
    broadcast(FOUR, place, "--check", tree, target(place))
    with open(nodes[2] + b"/tree/large", "r+b") as file:
        file.seek(4 * MIB)
        file.write(b"!")
    finished = run_fbcast(FOUR, place, "--check", tree, target(place))
    assert finished.code == 3
    assert "(rank 2): differs from the source" in finished.said
    assert finished.said.count("differs from") == 1


def test_remove(place: bytes) -> None:
    tree = _build(place + b"/tree")
    nodes = targets(place, 4)
    broadcast(FOUR, place, tree, target(place))
    write_file(nodes[0] + b"/other", b"stays")
    os.rename(nodes[3] + b"/tree", nodes[3] + b"/moved")
    broadcast(FOUR, place, "--remove", tree, target(place))
    assert [os.listdir(node) for node in nodes] == [[b"other"], [], [], [b"moved"]]
    assert left_over(place) == []


@pytest.mark.parametrize("partial", [False, True])
def test_a_full_disk_on_one_node(place: bytes, fuse: Mount, partial: bool) -> None:
    """A full disk is named; the data is visible on no node, or on all others."""
    tree = _build(place + b"/tree")
    nodes = targets(place, 4)
    mounted = fuse()
    mounted.rules(Rule(("write",), path="*large", errno="ENOSPC"))
    os.rmdir(nodes[2])
    os.symlink(mounted.path, nodes[2])
    options = ["--partial"] if partial else []
    finished = run_fbcast(FOUR, place, *options, tree, target(place))
    assert finished.code == (1 if partial else 4), finished.said
    path = os.fsdecode(nodes[2] + b"/tree/")
    assert re.search(f"[(]rank 2[)]: cannot write '{path}.*large': No space left", finished.said)
    for number, node in enumerate(nodes):
        shown = partial and number != 2
        assert os.listdir(node) == ([b"tree"] if shown else []), number
        assert not shown or differences(tree, node + b"/tree") == []
    assert left_over(place) == []


@pytest.mark.parametrize("partial", [False, True])
def test_a_disk_that_does_not_answer(place: bytes, fuse: Mount, partial: bool) -> None:
    """The other nodes wait for it no longer than the given time."""
    tree = _build(place + b"/tree")
    nodes = targets(place, 3)
    mounted = fuse()
    mounted.rules(Rule(("write",), path="*large", delay_s=6.0, times=1))
    os.rmdir(nodes[1])
    os.symlink(mounted.path, nodes[1])
    options = ["--timeout", "1", *(["--partial"] if partial else [])]
    finished = run_fbcast(Launcher(jobs=3), place, *options, tree, target(place))
    assert finished.code == (1 if partial else 4), finished.said
    assert "(rank 1): no response from the file system within 1 s" in finished.said
    for node in (nodes[0], nodes[2]):
        assert os.listdir(node) == ([b"tree"] if partial else [])
    mounted.rules()
    broadcast(Launcher(jobs=3), place, "--update", tree, target(place))
    assert [differences(tree, node + b"/tree") for node in nodes] == [[]] * 3
    assert left_over(place) == []


@pytest.mark.parametrize("partial", [False, True])
def test_a_node_without_the_directory(place: bytes, partial: bool) -> None:
    tree = _build(place + b"/tree")
    nodes = targets(place, 4)
    os.rmdir(nodes[0])
    options = ["--partial"] if partial else []
    finished = run_fbcast(FOUR, place, *options, tree, target(place))
    assert finished.code == (1 if partial else 2)
    assert "(rank 0): " in finished.said
    assert "/node0: No such file or directory" in finished.said
    for node in nodes[1:]:
        assert os.listdir(node) == ([b"tree"] if partial else [])


def test_unwritable_destinations(place: bytes) -> None:
    prefix = without_rights("dac_override", "dac_read_search")
    tree = _build(place + b"/tree")
    nodes = targets(place, 2)
    os.chmod(nodes[1], 0o555)
    program = [*prefix, sys.executable, "-m", "pcircle.tools.fbcast", "-j2"]
    line: list[str | bytes] = [*program, "--record-dir", place, tree]
    done = subprocess.run([*line, target(place)], capture_output=True, check=False)
    assert done.returncode == 2, done.stderr
    assert b"(rank 1): " in done.stderr
    assert b"/node1: Permission denied" in done.stderr
    assert os.listdir(nodes[0]) == []


@pytest.mark.parametrize("launcher", [Launcher(jobs=3), Launcher(jobs=1)], ids=str)
def test_unreadable_sources(launcher: Launcher, place: bytes) -> None:
    nodes = targets(place, 3)
    for source, said in (
        (place + b"/none", b"/none: No such file or directory"),
        (b"/", b"'/' has no base name"),
        (b"/dev/null", b"/dev/null: not a regular file or directory"),
    ):
        finished = run_fbcast(launcher, place, source, target(place))
        assert finished.code == 2, finished.said
        assert said in finished.err
    assert [os.listdir(node) for node in nodes] == [[]] * 3


def test_special_files_are_skipped_and_named(place: bytes) -> None:
    tree = make_directory(place, b"tree")
    write_file(tree + b"/file", b"")
    os.mkfifo(tree + b"/fifo")
    nodes = targets(place, 2)
    finished = broadcast(Launcher(jobs=2), place, tree, target(place))
    assert "1 FIFO skipped" in finished.said
    assert os.listdir(nodes[1] + b"/tree") == [b"file"]
    broadcast(Launcher(jobs=2), place, "--check", tree, target(place))


def test_a_directory_of_records_that_is_not_shared(place: bytes) -> None:
    tree = _build(place + b"/tree")
    targets(place, 2)
    write_file(place + b"/records", b"")
    finished = run_fbcast(Launcher(jobs=2), place, tree, target(place))
    assert finished.code == 2
    assert "use --record-dir to specify a directory that all nodes share" in finished.said


def test_a_tree_is_not_copied_into_itself(place: bytes) -> None:
    tree = _build(place + b"/tree")
    for operand in (tree, tree + b"/inner", tree + b"/inner/{host}", tree + b"/{rank}"):
        finished = run_fbcast(Launcher(jobs=2), place, tree, operand)
        assert finished.code == 2, finished.said
        assert "cannot copy '" in finished.said
        assert "into itself" in finished.said
    assert len(os.listdir(tree)) == 3


def test_a_deep_tree_is_broadcast_and_removed(place: bytes) -> None:
    deep = build_deep_tree(place + b"/deep", 1500)
    nodes = targets(place, 2)
    launcher = Launcher(jobs=2)
    broadcast(launcher, place, deep, target(place))
    assert differences(deep, nodes[1] + b"/deep") == []
    broadcast(launcher, place, "--check", deep, target(place))
    broadcast(launcher, place, "--remove", deep, target(place))
    assert [os.listdir(node) for node in nodes] == [[], []]


def test_a_name_that_is_missing_differs(place: bytes) -> None:
    tree = _build(place + b"/tree")
    nodes = targets(place, 2)
    broadcast(Launcher(jobs=2), place, tree, target(place))
    os.rename(nodes[1] + b"/tree", nodes[1] + b"/other")
    finished = run_fbcast(Launcher(jobs=2), place, "--check", tree, target(place))
    assert finished.code == 3, finished.said
    assert "(rank 1): differs from the source" in finished.said


@pytest.mark.parametrize("option", ["--check", "--update"])
def test_slow_progress_is_no_timeout(place: bytes, fuse: Mount, option: str) -> None:
    tree = _build(place + b"/tree")
    nodes = targets(place, 2)
    mounted = fuse()
    os.rmdir(nodes[1])
    os.symlink(mounted.path, nodes[1])
    launcher = Launcher(jobs=2)
    broadcast(launcher, place, tree, target(place))
    mounted.rules(Rule(("read",), delay_s=0.05))
    broadcast(launcher, place, option, "--timeout", "1", tree, target(place))


def test_flushed_to_disk(place: bytes) -> None:
    """The whole file system is flushed before the vote."""
    tree = _build(place + b"/tree")
    targets(place, 2)
    line: list[str | bytes] = [sys.executable, "-m", "pcircle.tools.fbcast", "-j2", "--fsync"]
    line += ["--record-dir", place + b"/records", tree, target(place)]
    calls = strace.trace(line, place + b"/trace", ["-e", "trace=syncfs,renameat"])
    flushed = max(call.end for call in calls if call.name == "syncfs")
    assert flushed < min(call.begin for call in calls if '"new/tree"' in call.text)


def test_the_source_is_opened_by_one_process(place: bytes) -> None:
    """This holds for any number of processes."""
    tree = _build(place + b"/tree")
    targets(place, 4)
    line: list[str | bytes] = [sys.executable, "-m", "pcircle.tools.fbcast", "-j4"]
    line += ["--record-dir", place + b"/records", tree, target(place)]
    opened = strace.trace(line, place + b"/trace", ["-e", "trace=openat,open,openat2"])
    of_source = [call for call in opened if '"large"' in call.text and "O_CREAT" not in call.text]
    assert len({call.process for call in of_source}) == 1


def _read_all(reader: SourceReader) -> None:
    while not reader.read()[1]:
        pass


def test_a_file_that_changes_during_the_read(place: bytes) -> None:
    """Half of it has old content, so no node may keep it."""
    path = write_file(place + b"/file", content(1, 4 * MIB))
    for change in (b"", content(2, 5 * MIB)):
        reader = SourceReader([Operand(path, b"file")])
        reader.begin(2, True, None)
        assert not reader.read()[1]
        _write(path, change)
        with pytest.raises(OSError, match="/file: it changed while it was read"):
            _read_all(reader)
        reader.close()
        _write(path, content(1, 4 * MIB))


def test_names_in_a_locale_that_knows_none_of_them(odd_tree: bytes, place: bytes) -> None:
    nodes = targets(place, 2)
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with start(Launcher(jobs=2), place, odd_tree, target(place), environment=environment) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert differences(odd_tree, nodes[1] + b"/odd") == []
