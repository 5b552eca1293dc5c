"""Limits on bytes and on operations, shared by all ranks: a copy takes at least its time.

The tests set no upper bound, which would be a race with the machine. `tests/unit/test_throttle.py`
proves that the sum never exceeds the limit; these tests check that every way of copying, on every
rank, uses the limiter.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from .judge import differences
from .running import FOUR, ONE, TWO, Launcher, Run, copy, run_fcp, some_launchers
from .trees import build_flat_tree, make_directory, write_file

SUBSTANCE: frozenset[str] = frozenset()
BURST_S = 0.1


def _timed(launcher: Launcher, *arguments: str | bytes) -> float:
    began_s = time.monotonic()
    copy(launcher, *arguments)
    return time.monotonic() - began_s


def _small(place: bytes) -> bytes:
    return build_flat_tree(place + b"/source", 4, 128, 4096)  # 2 MiB


def _middling(place: bytes) -> bytes:
    for number in range(4):
        write_file(make_directory(place, b"source") + b"/file", b"")
        os.rename(place + b"/source", place + b"/%d" % number)
    source = make_directory(place, b"source")
    for number in range(4):
        os.rename(place + b"/%d" % number, source + b"/%d" % number)
        write_file(source + b"/%d/half" % number, b"x" * (1 << 19))
    return source


def _large(place: bytes) -> bytes:
    source = make_directory(place, b"source")
    write_file(source + b"/large", b"x" * (9 << 20))
    return source


def _sparse(place: bytes) -> bytes:
    source = make_directory(place, b"source")
    write_file(source + b"/sparse", b"x" * (2 << 20))
    os.truncate(source + b"/sparse", 1 << 40)
    return source


BYTES = {"small": (_small, 2), "middling": (_middling, 2), "large": (_large, 9)}


@some_launchers
@pytest.mark.parametrize("kind", BYTES)
def test_bytes(launcher: Launcher, kind: str, place: bytes) -> None:
    build, size_mib = BYTES[kind]
    source = build(place)
    took_s = _timed(launcher, f"--bwlimit={size_mib}M", source, place + b"/copy")
    assert took_s >= 1 - BURST_S
    assert not differences(source, place + b"/copy", SUBSTANCE)


def test_holes_are_free(place: bytes) -> None:
    source = _sparse(place)
    assert _timed(TWO, "--bwlimit=2M", source, place + b"/copy") >= 1 - BURST_S
    assert os.path.getsize(place + b"/copy/sparse") == 1 << 40


def test_replaced_files_are_counted_as_well(place: bytes) -> None:
    source = _small(place)
    copy(FOUR, source, place + b"/copy")
    assert _timed(FOUR, "--bwlimit=2M", "-T", source, place + b"/copy") >= 1 - BURST_S


@some_launchers
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_operations(launcher: Launcher, dry: list[str], place: bytes) -> None:
    """There are at least two per file: one on each side."""
    source = build_flat_tree(place + b"/source", 4, 100, 1)
    assert _timed(launcher, "--ops-limit=800", *dry, source, place + b"/copy") >= 1 - BURST_S
    if not dry:
        assert not differences(source, place + b"/copy", SUBSTANCE)


def test_links_and_directories_are_operations(place: bytes) -> None:
    source = make_directory(place, b"source")
    for number in range(100):
        os.mkdir(source + b"/d%d" % number)
        os.symlink(b"nowhere", source + b"/l%d" % number)
    assert _timed(FOUR, "--ops-limit=400", source, place + b"/copy") >= 1 - BURST_S


def test_names_of_hard_links_are_operations(place: bytes) -> None:
    """Each name is looked up, and then linked by the claim: without the latter it takes 2.2 s."""
    source = make_directory(place, b"source")
    write_file(source + b"/first", b"")
    for number in range(99):
        os.link(source + b"/first", source + b"/%d" % number)
    assert _timed(ONE, "-a", "--ops-limit=800", source, place + b"/copy") >= 2.9 - BURST_S


@some_launchers
@pytest.mark.parametrize("limit", ["--bwlimit=1", "--ops-limit=10"])
def test_a_copy_that_would_take_years_can_be_stopped(
    launcher: Launcher, limit: str, place: bytes
) -> None:
    source = build_flat_tree(place + b"/source", 4, 600, 10)
    write_file(source + b"/large", b"x" * (5 << 20))
    with Run(launcher, limit, source, place + b"/copy") as run:
        assert run.wait_for(place + b"/copy")
        run.signal(signal.SIGINT)
        assert run.finish().code in (130, -signal.SIGINT)
        assert not run.wait_until_gone()


WRONG = {"--bwlimit": ("0", "fast"), "--ops-limit": ("0", "-1", "inf", "nan", "many")}


@pytest.mark.parametrize(
    "option", [f"{name}={x}" for name, values in WRONG.items() for x in values]
)
def test_invalid_limits_are_refused(option: str, place: bytes) -> None:
    source = make_directory(place, b"source")
    finished = run_fcp(ONE, option, source, place + b"/copy")
    assert finished.code == 2
    assert option.partition("=")[0] in finished.said
    assert not os.path.exists(place + b"/copy")
