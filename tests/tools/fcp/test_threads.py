"""Several worker threads per rank: copies are identical, and the number of threads adapts.

Each thread has its own counts, descriptors and temporary names; the registry, journal and epochs
belong to the rank. So the tests cover what these could break: content, links, counts, resumed
copies, descriptors; and that waiting overlaps on a slow file system and nothing changes on a fast
one.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule

from . import kills
from .judge import CONTENT, differences
from .running import (
    FOUR,
    HANG_S,
    ONE,
    TWO,
    Launcher,
    Run,
    copy,
    document,
    launchers,
    run_fcp,
)
from .test_hard_links import assert_same_links, build
from .trees import MIB, build_flat_tree, content, count, make_directory, write_file

MANY = ("--threads", "8")
several = pytest.mark.parametrize("launcher", launchers([1, 3], [2]))


@several
@pytest.mark.parametrize("checkpoint", [(), ("--no-checkpoint",)], ids=["checkpoint", "none"])
def test_identical(
    launcher: Launcher, checkpoint: tuple[str, ...], odd_tree: bytes, place: bytes
) -> None:
    result = place + b"/result"
    copy(launcher, "-p", *MANY, *checkpoint, "--json", result, odd_tree, place + b"/copy")
    assert differences(odd_tree, place + b"/copy") == []
    once = place + b"/once"
    copy(launcher, "-p", "--threads", "1", "--json", once, odd_tree, place + b"/copy 2")
    names = ("entries", "files", "directories", "links", "bytes")
    assert [document(result)[name] for name in names] == [document(once)[name] for name in names]
    assert {rank["threads"] for rank in document(result)["ranks"]} == {8}


@several
def test_hard_links_and_large_files(launcher: Launcher, place: bytes) -> None:
    source = build(place + b"/source")
    for number in range(3):
        write_file(source + b"/large%d" % number, content(number, 30 * MIB))
    copy(launcher, "-a", *MANY, "--chunksize", "4M", source, place + b"/copy")
    assert differences(source, place + b"/copy", CONTENT) == []
    assert_same_links(source, place + b"/copy")


@several
def test_signed_and_verified(launcher: Launcher, odd_tree: bytes, place: bytes) -> None:
    """Digests of entries and files that wait for verification come from all threads."""
    signatures = set()
    ways: list[tuple[str, ...]] = [("--threads", "1"), MANY, (*MANY, "--no-checkpoint")]
    for number, options in enumerate(ways):
        target = place + b"/copy %d" % number
        plain: tuple[str | bytes, ...] = (*options, "-p", "--chunksize", "4M", "-s", "-T", odd_tree)
        signatures.add(copy(launcher, *plain, target).out)
        assert differences(odd_tree, target) == []
        copy(launcher, *plain, "--verify", target + b" verified")
        assert differences(odd_tree, target + b" verified") == []
    texts = {line.split()[0] for line in signatures}
    assert len(texts) == 1, signatures


@several
def test_corruption_is_repaired(launcher: Launcher, place: bytes, fuse: Mount) -> None:
    mounted = fuse(keep=True, attributes_s=60.0)
    source = build_flat_tree(place + b"/flat", 30, 20, 5000)
    mounted.rules(Rule(ops=("write",), path="copy/*", skip=50, times=4, flip=100))
    finished = copy(launcher, *MANY, "--verify", "-T", source, mounted.path + b"/copy")
    assert mounted.state().hits == [4]
    assert finished.said.count("failed verification; copied again") == 4
    assert differences(source, mounted.backing + b"/copy", CONTENT) == []


MORE: list[tuple[str, ...]] = [(), ("-s",), ("--verify",)]


@pytest.mark.parametrize(
    ("seed", "more"),
    list(product(range(4), MORE)) if SOAK else list(zip(range(4), cycle(MORE), strict=False)),
    ids=str,
)
def test_killed_and_resumed(seed: int, more: tuple[str, ...], place: bytes) -> None:
    sources = kills.build_sources(make_directory(place, b"sources"))
    options = ("-a", "--threads", str(2 + 3 * seed), *more)
    kills.play(make_directory(place, b"round"), sources, 3000 + seed, kills.LOCAL, options=options)


def test_failures_are_named_once(place: bytes) -> None:
    source, target = build_flat_tree(place + b"/flat", 20, 30, 10), place + b"/copy"
    for directory in range(20):
        make_directory(target, b"%d" % directory, b"7")
    name = sorted(os.listdir(source))[0]
    make_directory(target, name, sorted(os.listdir(source + b"/" + name))[0])
    finished = run_fcp(TWO, *MANY, "-T", source, target)
    assert finished.code == 1
    named = [line for line in finished.said.splitlines() if "a directory is in the way" in line]
    assert len(named) == len(set(named)) > 0
    assert f"{len(named)} failure" in finished.said


def test_few_descriptors_are_enough(place: bytes) -> None:
    """A process with the usual limit of descriptors runs the maximum number of threads."""
    source = build_flat_tree(place + b"/flat", 200, 10, 10)
    prefix = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    finished = run_fcp(ONE, "--threads", "64", source, place + b"/copy", prefix=prefix)
    assert finished.code == 0, finished.said
    assert count(place + b"/copy") == count(source)


@pytest.mark.parametrize("launcher", [ONE, TWO, Launcher(jobs=8)], ids=str)
def test_a_fast_file_system_gets_one(launcher: Launcher, place: bytes) -> None:
    source = build_flat_tree(place + b"/flat", 100, 300, 100)
    copy(launcher, "-p", "--json", place + b"/result", source, place + b"/copy")
    # Single ranks may try more: on a loaded machine they wait for locks that others hold.
    assert statistics.median(rank["threads"] for rank in document(place + b"/result")["ranks"]) == 1


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_waiting_overlaps_on_a_slow_file_system(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """No option is needed; the number of waiting requests in the file system is checked."""
    mounted = fuse()
    source = build_flat_tree(mounted.backing + b"/source", 50, 20, 1000)
    mounted.rules(Rule(delay_s=0.002))
    arguments: list[str | bytes] = ["-p", "--json", place + b"/result", mounted.path + b"/source"]
    with Run(launcher, *arguments, mounted.path + b"/copy") as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert differences(source, mounted.backing + b"/copy") == []
    ranks = document(place + b"/result")["ranks"]
    # The final number depends on the capacity of the test's server.
    tried = {int(number) for rank in ranks for number in rank["work_per_s"].get("metadata", ())}
    assert max(tried) >= 8
    assert max(rank["threads"] for rank in ranks) > 1
    assert mounted.state().max_delayed >= 8


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_batches_of_slow_files_are_short(launcher: Launcher, place: bytes, fuse: Mount) -> None:
    """A thousand slow files of one directory become hundreds of items, not two."""
    mounted = fuse()
    source = build_flat_tree(mounted.backing + b"/source", 1, 1000, 100)
    mounted.rules(Rule(delay_s=0.002))
    result, slow = place + b"/result", mounted.path + b"/source"
    copy(launcher, "-p", "--json", result, slow, mounted.path + b"/copy")
    assert differences(source, mounted.backing + b"/copy") == []
    assert sum(rank["items"] for rank in document(result)["ranks"]) > 100


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["copy", "dry-run"])
def test_batches_of_slow_operands_are_short(
    options: tuple[str, ...], place: bytes, fuse: Mount
) -> None:
    """The operands are one item until it has taken long; then others can help, or stop the job."""
    mounted = fuse()
    build_flat_tree(mounted.backing + b"/source", 1, 200, 100)
    mounted.rules(Rule(delay_s=0.002))
    operands = [b"%b/source/000000/%07d" % (mounted.path, number) for number in range(200)]
    make_directory(place, b"copy")
    result = place + b"/result"
    copy(TWO, *options, "--json", result, *operands, place + b"/copy")
    assert sum(rank["items"] for rank in document(result)["ranks"]) > 4


@pytest.mark.parametrize(
    ("launcher", "threads"), [(ONE, "4"), (Launcher(jobs=3), "1")], ids=["thread", "rank"]
)
def test_a_hanging_operation_blocks_no_other(
    launcher: Launcher, threads: str, place: bytes, fuse: Mount
) -> None:
    """The other threads of the rank continue, and so do the other ranks.

    The remaining work of the thread is stolen, and progress is printed. The operation hangs until
    all of this was observed.
    """
    mounted = fuse()
    build_flat_tree(mounted.backing + b"/source", 100, 10, 100)
    victim = sorted(os.listdir(mounted.backing + b"/source"))[0]
    rule = Rule(ops=("open",), path=f"source/{os.fsdecode(victim)}/*", times=1, delay_s=3600.0)
    mounted.rules(rule, Rule(ops=("create",), delay_s=0.001))
    target, said = place + b"/copy", Path(os.fsdecode(place), "said")
    arguments: list[str | bytes] = ["--threads", threads, "--json", place + b"/result"]
    arguments += ["--no-checkpoint", "--interval", "0.2", "-T", mounted.path + b"/source"]
    begun_s = time.monotonic()

    def wait_until(happened: Callable[[], bool], why_not: str) -> None:
        while not happened():
            assert time.monotonic() < begun_s + HANG_S, why_not
            time.sleep(0.05)

    def is_rest_done() -> bool:
        # A rank processes one small directory at a time: no more than that waits.
        return sum(len(os.listdir(e.path)) for e in _directories(target)) >= 980

    with open(said, "wb") as file, Run(launcher, *arguments, target, stderr=file.fileno()) as run:
        wait_until(is_rest_done, "the rest waited for it")
        done_s = time.monotonic() - begun_s  # of a clock that started before the run's own
        wait_until(lambda: any(done_s < s for s in _shown_s(said)), "no progress while it hung")
        assert mounted.state().hits[0] == 1, "nothing has hung"
        assert run.process.poll() is None, "it is still held up"
        mounted.release()
        finished = run.finish()
    assert finished.code == 0
    assert count(target) == count(mounted.backing + b"/source")
    shares = document(place + b"/result")["ranks"]
    assert sum(rank["steals_got"] for rank in shares) >= launcher.size - 1


def _shown_s(said: Path) -> list[float]:
    """Return when progress was printed, in seconds since the run began."""
    return [float(after) for after in re.findall(r"after ([0-9.]+)s", said.read_text())]


def _directories(path: bytes) -> list[os.DirEntry[bytes]]:
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as entries:
        return [entry for entry in entries if entry.is_dir()]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--threads", "0"], "invalid value '0': must be a positive integer"),
        (["--threads", "many"], "invalid value 'many': must be a positive integer"),
    ],
)
def test_invalid_options_are_refused(options: list[str], said: str, place: bytes) -> None:
    source = build_flat_tree(place + b"/flat", 1, 1, 1)
    finished = run_fcp(FOUR, *options, source, place + b"/copy")
    assert finished.code == 2
    assert said in finished.said
    assert not os.path.exists(place + b"/copy")
