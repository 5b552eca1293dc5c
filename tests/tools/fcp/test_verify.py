"""``--verify``: bytes that the destination corrupts are found, and repaired where possible.

The destination is a FUSE file system of the tests, which flips a byte on its disk after a write.
The kernel's cache is correct, so only a read from disk can detect it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pcircle.ops.copy.entry.content_hash import RangeHasher, digest_of

from ...fusefs.fixture import Mount
from ...fusefs.mounting import Mounted
from ...fusefs.rules import Rule
from ...fusefs.server import flip
from . import kills
from .judge import differences, hole_differences, rsync_differences
from .running import (
    ONE,
    TWO,
    Launcher,
    Run,
    copy,
    document,
    launchers,
    run_fcp,
    without_rights,
)
from .trees import content, make_directory, write_file

three_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2]))

VICTIM = b"victim"
# By size: a file that is read at once, one that is not, and one that is copied in chunks.
SIZES = pytest.mark.parametrize("size", [12_000, 300_000, 9 << 20])
CHUNKS = ("--chunksize", "4M")
AGAIN = "failed verification; copied again"


def sources(place: bytes, size: int) -> bytes:
    """Create a directory with one file of more than 5,000 bytes, and many others."""
    source = make_directory(place, b"source")
    write_file(os.path.join(source, VICTIM), content(1, size))
    for number in range(150):
        folder = os.path.join(source, b"d%d" % (number % 3))
        os.makedirs(folder, exist_ok=True)
        write_file(os.path.join(folder, b"f%d" % number), content(number, number * 20))
    os.symlink(b"victim", os.path.join(source, b"link"))
    return source


def flips(size: int, times: int) -> Rule:
    """Return a rule that flips a byte that no other file has, a number of times."""
    return Rule(ops=("write",), flip=5000 if size < 5 << 20 else 5 << 20, times=times)


def on_disk(mount: Mounted, *path: bytes) -> bytes:
    """Return the content on the disk of a mount."""
    return Path(os.fsdecode(os.path.join(mount.backing, *path))).read_bytes()


@SIZES
@three_launchers
def test_a_flipped_byte_is_repaired(
    launcher: Launcher, size: int, place: bytes, fuse: Mount
) -> None:
    source, mount = sources(place, size), fuse(keep=True, attributes_s=60.0)
    mount.rules(flips(size, 1))
    arguments = ("-p", "--verify", *CHUNKS, source, mount.path + b"/copy")
    finished = copy(launcher, *arguments)
    assert mount.state().hits == [1]
    assert f"{VICTIM.decode()}' {AGAIN}" in finished.said
    assert differences(source, mount.backing + b"/copy") == []


@SIZES
@three_launchers
def test_a_byte_that_flips_again_is_reported(
    launcher: Launcher, size: int, place: bytes, fuse: Mount
) -> None:
    source, mount, report = (
        sources(place, size),
        fuse(keep=True, attributes_s=60.0),
        place + b"/report",
    )
    mount.rules(flips(size, 99))
    options = ("-p", "--verify", "--no-checkpoint", *CHUNKS, "--json", report)
    finished = run_fcp(launcher, *options, source, mount.path + b"/copy")
    assert finished.code == 3, finished.said
    assert mount.state().hits == [2]
    path = os.fsdecode(os.path.join(source, VICTIM))
    assert f"fcp: cannot verify '{path}': verification mismatch" in finished.said
    result = document(report)
    assert (result["exit_code"], result["failed"], result["files"]) == (3, 1, 150)
    assert [failure["doing"] for failure in result["failures"]] == ["verify"]
    os.unlink(os.path.join(source, VICTIM))
    assert differences(source, mount.backing + b"/copy", frozenset()) == []


def test_the_cache_does_not_reveal_corruption(place: bytes, fuse: Mount) -> None:
    """The other tests depend on this: the kernel's pages are correct, and the disk is not."""
    source, mount = sources(place, 12_000), fuse(keep=True, attributes_s=60.0)
    mount.rules(flips(12_000, 1))
    copy(ONE, "--reflink=never", source, mount.path + b"/copy")
    expected = content(1, 12_000)
    assert on_disk(mount, b"copy", VICTIM) != expected
    assert Path(os.fsdecode(mount.path + b"/copy/" + VICTIM)).read_bytes() == expected


@pytest.mark.parametrize("size", [12_000, 9 << 20])
def test_failed_reads_are_repeated(size: int, place: bytes, fuse: Mount) -> None:
    source, mount = sources(place, size), fuse(direct=True)
    mount.rules(Rule(ops=("read",), start=5000, errno="EIO", times=1))
    finished = copy(ONE, "--verify", *CHUNKS, source, mount.path + b"/copy")
    assert mount.state().hits == [1]
    assert "the first read-back differed, but the second matched" in finished.said
    assert AGAIN not in finished.said
    assert differences(source, mount.backing + b"/copy", frozenset()) == []


@three_launchers
def test_another_name_replaces_a_failed_one(launcher: Launcher, place: bytes, fuse: Mount) -> None:
    source, mount = make_directory(place, b"source"), fuse(keep=True, attributes_s=60.0)
    first = write_file(os.path.join(source, b"one"), content(1, 12_000))
    for name in (b"two", b"three"):
        os.link(first, os.path.join(source, name))
    mount.rules(flips(12_000, 2))
    finished = run_fcp(launcher, "-a", "--verify", source, mount.path + b"/copy")
    assert finished.code == 3, finished.said
    assert finished.said.count("cannot verify") == 1
    left = os.listdir(mount.backing + b"/copy")
    assert len(left) == 2
    inodes = {os.stat(os.path.join(mount.backing, b"copy", name)).st_ino for name in left}
    assert len(inodes) == 1
    assert on_disk(mount, b"copy", left[0]) == content(1, 12_000)


@three_launchers
def test_names_are_linked_to_the_repaired_copy(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    source, mount = make_directory(place, b"source"), fuse(keep=True, attributes_s=60.0)
    first = write_file(os.path.join(source, b"one"), content(1, 12_000), 0o444)
    os.link(first, os.path.join(source, b"two"))
    mount.rules(flips(12_000, 1))
    finished = copy(launcher, "-a", "--verify", source, mount.path + b"/copy")
    assert AGAIN in finished.said
    assert rsync_differences(source, mount.backing + b"/copy", preserved=True, more="H") == []


@three_launchers
def test_a_tree_of_all_types(launcher: Launcher, place: bytes, odd_tree: bytes) -> None:
    target = place + b"/copy"
    finished = copy(launcher, "-a", "--verify", odd_tree, target)
    assert "read-back differed" not in finished.said
    assert AGAIN not in finished.said
    assert rsync_differences(odd_tree, target, preserved=True, more="HAX") == []
    assert hole_differences(odd_tree + b"/holes", target + b"/holes") == []


@pytest.mark.parametrize("sparse", ["auto", "always", "never"])
def test_holes_in_chunks(sparse: str, place: bytes) -> None:
    source, target = make_directory(place, b"source"), place + b"/copy"
    path = source + b"/sparse"
    with open(path, "xb") as stream:
        for at in (5 << 20, 13 << 20, (23 << 20) + 77):
            stream.seek(at)
            stream.write(content(at, 70_000) + bytes(70_000))
        stream.truncate(40 << 20)
    finished = copy(TWO, "--verify", f"--sparse={sparse}", *CHUNKS, source, target)
    assert finished.said == ""
    assert differences(source, target, frozenset()) == []
    if sparse == "auto":
        assert hole_differences(source, target) == []


def test_kept_files_are_not_read(place: bytes) -> None:
    source, target = sources(place, 12_000), place + b"/copy"
    other = write_file(make_directory(target) + b"/" + VICTIM, b"another's")
    copy(TWO, "-n", "-T", "--verify", source, target)
    assert Path(os.fsdecode(other)).read_bytes() == b"another's"


@pytest.mark.parametrize("mode", [0o040, 0o200, 0o000])
def test_copies_that_their_owner_may_not_read(mode: int, place: bytes) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of others")
    prefix = without_rights("dac_override", "dac_read_search") if mode == 0o040 else ()
    path = write_file(make_directory(place, b"source") + b"/closed", content(1, 12_000), mode)
    os.chown(path, 12345, 0)
    finished = run_fcp(ONE, "--verify", place + b"/source", place + b"/copy", prefix=prefix)
    assert (finished.code, finished.said) == (0, "")
    assert os.stat(place + b"/copy/closed").st_mode & 0o777 == mode & ~0o022


def test_no_space_to_copy_again(place: bytes, fuse: Mount) -> None:
    source, mount = sources(place, 12_000), fuse(keep=True, attributes_s=60.0)
    full = Rule(ops=("create",), path="*.fcp-????????-*", errno="ENOSPC")
    mount.rules(flips(12_000, 1), full)
    finished = run_fcp(TWO, "--verify", "-T", source, mount.path)
    assert finished.code == 4, finished.said
    assert "cannot verify" in finished.said
    assert not os.path.lexists(os.path.join(mount.backing, VICTIM))


def test_unverified_files_do_not_count_as_completed(place: bytes, fuse: Mount) -> None:
    source, mount = sources(place, 12_000), fuse(keep=True, attributes_s=60.0)
    mount.rules(Rule(ops=("read",), path=f"*{VICTIM.decode()}", delay_s=600.0))
    arguments = ("-a", "--verify", "--checkpoint-interval", "0.05", "-T", source)
    with Run(TWO, *arguments, mount.path + b"/copy") as run:
        deadline = time.monotonic() + 60
        while not mount.state().delayed:  # it has been on disk for an epoch by then
            assert time.monotonic() < deadline
            assert run.process.poll() is None
            time.sleep(0.01)
        run.kill()
    mount.rules()
    mount.release()
    flip(mount.backing + b"/copy/" + VICTIM, 5000)
    copy(Launcher(jobs=3), "--resume", *arguments, mount.path + b"/copy")
    assert rsync_differences(source, mount.backing + b"/copy", preserved=True) == []


@pytest.fixture(scope="session")
def mixed(shared_place: bytes) -> tuple[bytes, bytes]:
    return kills.build_sources(make_directory(shared_place, b"verified"))


@pytest.mark.parametrize("seed", range(3))
def test_killed_and_resumed(seed: int, mixed: tuple[bytes, bytes], place: bytes) -> None:
    options = ("-a", "--verify") if seed else ("-p", "--verify", "--inplace")
    kills.play(place, mixed, 5000 + seed, kills.LOCAL, options=options)


@pytest.mark.mpi
def test_killed_and_resumed_under_mpi(mixed: tuple[bytes, bytes], place: bytes) -> None:
    kills.play(place, mixed, 12_000, kills.LAUNCHERS[-2:], options=("-a", "--verify"))


def test_a_checkpoint_without_verification_is_refused(place: bytes) -> None:
    source = sources(place, 40 << 20)
    with Run(
        ONE, "--checkpoint-interval", "0.05", "--bwlimit", "8M", source, place + b"/copy"
    ) as run:
        assert run.wait_for(place + b"/copy")
        run.kill()
    finished = run_fcp(ONE, "--resume", "--verify", source, place + b"/copy")
    assert finished.code == 2, finished.said
    assert "--verify" in finished.said


def test_clones_are_not_verified(place: bytes) -> None:
    finished = run_fcp(ONE, "--verify", "--reflink=always", place, place + b"/copy")
    assert finished.code == 2
    assert "--verify" in finished.said


def test_a_digest_has_holes_as_zeros() -> None:
    stream = RangeHasher()
    stream.begin(100)
    stream.see(100, b"abc")
    stream.see(300_000, b"def")
    stream.append(b"g")
    expected = b"abc" + bytes(300_000 - 103) + b"defg" + bytes(600_000)
    assert stream.end(900_004) == digest_of(expected)
