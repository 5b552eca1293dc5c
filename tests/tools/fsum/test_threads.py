"""Several worker threads per rank: the digests are the same, and their number adapts.

Each thread reads and hashes separately; sorted runs of directories, the manifest and the account
belong to the rank.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, document
from tests.tools.fcp.trees import build_flat_tree, make_directory

from .running import FSUM, run_fsum, signed, some_launchers

MANY = ("--threads", "8")


@some_launchers
def test_signatures_are_the_same(launcher: Launcher, odd_tree: bytes) -> None:
    options = ("--chunksize", "4M")
    once = signed(launcher, *options, "--threads", "1", odd_tree)
    assert signed(launcher, *options, *MANY, odd_tree) == once


@some_launchers
def test_digests_of_whole_files_are_the_same(launcher: Launcher, odd_tree: bytes) -> None:
    options = ("--format", "coreutils", odd_tree)
    once = run_fsum(launcher, "--threads", "1", *options)
    many = run_fsum(launcher, *MANY, *options)
    assert (many.code, many.said) == (once.code, once.said)
    assert many.out == once.out != b""


@some_launchers
def test_manifests_are_written_and_compared(
    launcher: Launcher, place: bytes, tmp_path: Path
) -> None:
    """Many directories end at once; each is written in one piece."""
    tree = build_flat_tree(place + b"/flat", 150, 40, 100)
    manifests = [tmp_path / "once", tmp_path / "many"]
    for path, options in zip(manifests, (("--threads", "1"), MANY), strict=True):
        assert run_fsum(launcher, *options, "-o", str(path), tree).code == 0
    assert manifests[0].read_bytes() == manifests[1].read_bytes()
    os.unlink(tree + b"/000007/0000003")
    with open(tree + b"/000149/0000039", "ab") as file:
        file.write(b"more")
    for mode in (("--check", str(manifests[1])), ("--check", str(manifests[1]), "--quick")):
        finished = run_fsum(launcher, *MANY, *mode, tree)
        assert finished.code == 3, finished.said
        output = finished.out.decode()
        assert "missing" in output
        assert "000007/0000003" in output
        assert "000149/0000039" in output
        assert "1 changed, 1 missing" in output + finished.said
    assert run_fsum(launcher, *MANY, "--update", str(manifests[1]), tree).code == 0
    assert run_fsum(launcher, *MANY, "--check", str(manifests[1]), tree).code == 0


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_waiting_overlaps_on_a_slow_file_system(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """No option is needed; the number of waiting requests in the file system is checked."""
    mounted = fuse()
    source = build_flat_tree(mounted.backing + b"/source", 50, 30, 1000)
    expected = signed(ONE, source)
    mounted.rules(Rule(delay_s=0.002))
    result = place + b"/result"
    slow = mounted.path + b"/source"
    with Run(launcher, "--json", result, slow, program=FSUM) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert finished.out.split(b"  ")[0].decode() == expected[0]
    ranks = document(result)["ranks"]
    # The final number depends on the capacity of the test's server.
    tried = {int(number) for rank in ranks for number in rank["work_per_s"].get("metadata", ())}
    assert max(tried) >= 8
    assert max(rank["threads"] for rank in ranks) > 1
    assert mounted.state().max_delayed >= 8


@pytest.mark.parametrize("launcher", [ONE, TWO, Launcher(jobs=8)], ids=str)
def test_a_fast_file_system_gets_one(launcher: Launcher, place: bytes) -> None:
    source = build_flat_tree(place + b"/flat", 100, 500, 100)
    assert run_fsum(launcher, "--json", place + b"/result", source).code == 0
    assert {rank["threads"] for rank in document(place + b"/result")["ranks"]} == {1}


def test_few_descriptors_are_enough(place: bytes) -> None:
    source = build_flat_tree(place + b"/flat", 200, 10, 10)
    prefix = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    finished = run_fsum(ONE, "--threads", "64", source, prefix=prefix)
    assert (finished.code, finished.said) == (0, "")
    assert finished.out == run_fsum(ONE, "--threads", "1", source).out


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0", "must be a positive integer"),
        ("1025", "must be at most 1,024"),
        ("many", "must be a positive integer"),
    ],
)
def test_invalid_options_are_refused(number: str, expected: str, place: bytes) -> None:
    finished = run_fsum(ONE, "--threads", number, place)
    assert finished.code == 2
    assert f"--threads: invalid value '{number}': {expected}" in finished.said


def test_an_interrupt_before_the_work_leaves_nothing(place: bytes, fuse: Mount) -> None:
    """A slow file system delays it: the temporary manifest exists by then."""
    mounted = fuse()
    make_directory(mounted.backing, b"tree")
    mounted.rules(Rule(delay_s=1.0))
    output = make_directory(place, b"output")
    with Run(TWO, "-o", output + b"/m", mounted.path + b"/tree", program=FSUM) as run:
        assert run.wait_for(output)
        run.signal(signal.SIGINT)
        finished = run.finish()
    assert finished.code == 130, finished.said
    assert os.listdir(output) == []
