"""Changes between an interruption and the next run, which must not mislead that run.

The copy is removed or changed by its owner, inodes are reused, the source changes twice: the
records of an earlier run count only where they are still true.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.mpi import mpirun_prefix
from tests.programs import needs_mount_namespace
from tests.tools.fcp.interrupts import checkpoints, committed, interrupt, temporary_in
from tests.tools.fcp.judge import CONTENT, differences
from tests.tools.fcp.running import (
    FOUR,
    ONE,
    TWO,
    Launcher,
    Run,
    clean_environment,
    copy,
    document,
    run_fcp,
    without_rights,
)
from tests.tools.fcp.trees import MIB, build_flat_tree, content, make_directory, write_file

OLD_NS = 10**18


def committed_in(place: bytes, run: int, least: int = 2) -> Callable[[], bool]:
    """Return whether all ranks of a run have a number of commits in `place`.

    The commits must contain work: that of a rank whose worker waits for a processor may be empty.
    """

    def is_committed() -> bool:
        for checkpoint in checkpoints(place):
            for path in Path(os.fsdecode(checkpoint)).glob(f"journal-{run:04d}-*"):
                if path.read_bytes().count(b"fcpC") >= least:
                    return any(committed(place))
        return False

    return is_committed


def slow(place: bytes, run: int, *options: str | bytes) -> None:
    """Run a copy that is killed after a part of it was committed."""
    interrupt(ONE, place, "--ops-limit", "400", *options, when=committed_in(place, run))


@pytest.mark.parametrize("options", [(), ("-a", "-s", "--verify")], ids=["plain", "signed"])
def test_records_of_a_removed_copy_are_not_used(options: tuple[str, ...], place: bytes) -> None:
    """The second run creates new directories; records of the first refer to the old ones."""
    source, target = build_flat_tree(place + b"/flat", 6, 150, 20), place + b"/copy"
    slow(place, 1, *options, source, target)
    shutil.rmtree(target)
    slow(place, 2, *options, "--resume", source, target)
    copy(ONE, *options, "--resume", source, target)
    assert differences(source, target, CONTENT) == []


def test_one_directory_that_was_removed(place: bytes) -> None:
    source, target = build_flat_tree(place + b"/flat", 6, 150, 20), place + b"/copy"
    slow(place, 1, source, target)
    for name in os.listdir(source):
        shutil.rmtree(os.path.join(target, name), ignore_errors=True)
        os.mkdir(os.path.join(target, name))
    copy(ONE, "--resume", source, target)
    assert differences(source, target, CONTENT) == []


@pytest.mark.parametrize("option", ["-n", "-u"])
def test_protected_files_of_other_users_stay_protected(
    option: str, place: bytes, mount: Callable[..., bytes]
) -> None:
    if os.geteuid() != 0 or shutil.which("chattr") is None:
        pytest.skip("inode flags need root and chattr")
    image = mount("ext4", 64 * MIB)
    source, target = make_directory(image, b"source"), make_directory(image, b"target")
    immutable = []
    for number in range(600):
        path = write_file(source + b"/%d" % number, b"new")
        os.utime(path, ns=(OLD_NS, OLD_NS))
        if number % 3 == 0:
            immutable.append(write_file(target + b"/%d" % number, b"mine"))
    inner = make_directory(target, b"inner")
    write_file(make_directory(source, b"inner") + b"/file", b"new")
    try:
        subprocess.run(["chattr", "+i", *immutable], check=True)
        subprocess.run(["chattr", "+a", inner], check=True)
        slow(image, 1, "-a", option, "-T", source, target)
        finished = run_fcp(ONE, "-a", option, "-T", "--resume", source, target)
        assert finished.code == 1
        assert "2 failures: 2 EPERM" in finished.said, "in the directory that is only added to"
        for path in immutable:
            assert Path(os.fsdecode(path)).read_bytes() == b"mine"
        listed = subprocess.run(["lsattr", target], check=True, capture_output=True).stdout
        flags = [line.split()[0] for line in listed.splitlines()]
        assert sum(b"i" in letters for letters in flags) == len(immutable)
        assert sum(b"a" in letters for letters in flags) == 1
    finally:
        subprocess.run(["chattr", "-R", "-i", "-a", image], check=True)


def test_newer_files_stay_when_other_names_are_linked(place: bytes) -> None:
    """One of the names of an inode is newer in the copy: it is neither replaced nor linked to.

    A link to it would look like a change by fcp, which the next run would attribute to itself.
    """
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for number in range(400):
        first = write_file(source + b"/a%d" % number, b"new %d" % number)
        os.utime(first, ns=(OLD_NS, OLD_NS))
        for letter in (b"b", b"c"):
            os.link(first, source + b"/%c%d" % (letter, number))
        write_file(target + b"/%c%d" % (b"abc"[number % 3 : number % 3 + 1], number), b"mine")
    slow(place, 1, "-a", "-u", "-T", source, target)
    copy(ONE, "-a", "-u", "-T", "--resume", source, target)
    for number in range(400):
        names = [target + b"/%c%d" % (letter, number) for letter in (b"a", b"b", b"c")]
        found = [Path(os.fsdecode(name)).read_bytes() for name in names]
        assert found.pop(number % 3) == b"mine"
        assert found == [b"new %d" % number] * 2
        del names[number % 3]
        assert os.path.samefile(*names)


def test_a_large_file_in_place_that_changes_between_two_interruptions(place: bytes) -> None:
    source = make_directory(place, b"source")
    large = write_file(source + b"/large", content("A", 64 * MIB))
    target = place + b"/copy"
    options = "--inplace", "--chunksize", "4M", "--bwlimit", "16M"
    interrupt(ONE, place, *options, source, target, when=committed_in(place, 1, 4))
    with open(large, "r+b") as stream:  # the same inode and size, another time
        stream.write(content("B", 64 * MIB))
    interrupt(ONE, place, *options, "--resume", source, target, when=committed_in(place, 2, 4))
    copy(TWO, "--inplace", "--resume", source, target)
    assert differences(source, target, CONTENT) == []


def test_a_single_file_in_place_is_continued(place: bytes) -> None:
    """Its copy has another name."""
    source, target = write_file(place + b"/one", content("A", 64 * MIB)), place + b"/other"
    options = "--inplace", "--chunksize", "4M", "--bwlimit", "16M"
    interrupt(ONE, place, *options, source, target, when=committed_in(place, 1, 4))
    copy(ONE, "--inplace", "--resume", "--json", place + b"/report", source, target)
    assert document(place + b"/report")["resumed_bytes"] > 0
    assert Path(os.fsdecode(target)).read_bytes() == content("A", 64 * MIB)


def test_read_only_files_in_place_are_replaced(place: bytes) -> None:
    """A user's own file that has its final mode from the earlier run, but is not in the journal."""
    source, target = make_directory(place, b"source"), place + b"/copy"
    for number in range(600):
        write_file(source + b"/%d" % number, b"content", 0o444)
    slow(place, 1, "-p", "--inplace", source, target)
    prefix = without_rights("dac_override", "dac_read_search")
    finished = run_fcp(ONE, "-p", "--inplace", "--resume", source, target, prefix=prefix)
    assert finished.code == 0, finished.said
    assert differences(source, target) == []


@pytest.mark.parametrize("options", [(), ("-s",)], ids=["plain", "signed"])
def test_reused_inodes(options: tuple[str, ...], place: bytes, mount: Callable[..., bytes]) -> None:
    """Other files have the numbers of those that were copied; ext4 reuses the lowest number."""
    image = mount("ext4", 64 * MIB)
    source, target = make_directory(image, b"source"), image + b"/copy"
    for number in range(300):
        first = write_file(source + b"/a%d" % number, b"old %d" % number)
        os.link(first, source + b"/b%d" % number)
    slow(image, 1, "-a", *options, source, target)
    before = {os.stat(source + b"/a%d" % number).st_ino for number in range(300)}
    for name in os.listdir(source):
        os.unlink(os.path.join(source, name))
    os.sync()
    for number in range(300):
        first = write_file(source + b"/c%d" % number, b"new %d" % number)
        os.link(first, source + b"/d%d" % number)
    after = {os.stat(source + b"/c%d" % number).st_ino for number in range(300)}
    if not before & after:
        pytest.skip("this ext4 gives no number of an inode again")
    copy(ONE, "-a", "--resume", *options, source, target)
    for number in range(300):
        for letter in (b"c", b"d"):
            path = os.fsdecode(target + b"/%c%d" % (letter, number))
            assert Path(path).read_bytes() == b"new %d" % number


def test_the_first_name_of_a_file_has_vanished(place: bytes) -> None:
    source, target = make_directory(place, b"source"), place + b"/copy"
    folders = [make_directory(source, b"d%d" % number) for number in range(8)]
    for number in range(60):
        first = write_file(source + b"/%d" % number, b"content %d" % number)
        for folder in folders:
            os.link(first, folder + b"/%d" % number)
    slow(place, 1, "-a", source, target)
    for path in Path(os.fsdecode(target)).rglob("*"):
        if path.is_file():
            path.unlink()
    copy(ONE, "-a", "--resume", source, target)
    assert differences(source, target, CONTENT) == []
    for number in range(60):
        assert os.stat(target + b"/%d" % number).st_nlink == 9


def test_a_foreign_temporary_file_is_not_continued(
    place: bytes, mount: Callable[..., bytes]
) -> None:
    """Another user owns the destination, and has reused the number of the inode."""
    if os.geteuid() != 0:
        pytest.skip("only root copies into a directory that is another's")
    image = mount("ext4", 200 * MIB)
    source, target = make_directory(place, b"source"), make_directory(image, b"copy")
    write_file(source + b"/secret", content("secret", 48 * MIB), 0o600)
    os.chown(target, 12345, 12345)
    options = "-p", "--chunksize", "4M", "--bwlimit", "16M", "-T"
    interrupt(ONE, image, *options, source, target, when=committed_in(image, 1, 4))
    (name,) = temporary_in(target)
    path = target + b"/" + name
    was = os.stat(path)
    os.unlink(path)
    os.sync()
    spy = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    os.fchown(spy, 12345, 12345)
    os.truncate(path, was.st_size)
    try:
        if os.stat(path).st_ino != was.st_ino:
            pytest.skip("this ext4 gives no number of an inode again")
        copy(ONE, "-p", "--resume", "-T", source, target)
        assert os.stat(target + b"/secret").st_uid == os.geteuid()
        assert os.pread(spy, 64, 0) == bytes(64)
        assert differences(source, target, CONTENT) == []
    finally:
        os.close(spy)


# ---- the checkpoint itself -------------------------------------------------------------


def test_a_damaged_header_is_neither_used_nor_ignored(place: bytes) -> None:
    source, target = build_flat_tree(place + b"/flat", 6, 150, 20), place + b"/copy"
    slow(place, 1, source, target)
    (checkpoint,) = checkpoints(place)
    header = Path(os.fsdecode(checkpoint)) / "header"
    data = header.read_bytes()
    header.write_bytes(data[:30] + b"X" + data[31:])
    refused = run_fcp(ONE, source, target)
    assert refused.code == 2
    assert "its header cannot be read; to start over, add --resume or --restart" in refused.said
    finished = copy(ONE, "--resume", "--json", place + b"/report", "-T", source, target)
    assert "is damaged and cannot be resumed" in finished.said
    assert document(place + b"/report")["resumed"] == 0
    assert differences(source, target, CONTENT) == []
    assert checkpoints(place) == []


def test_leftovers_of_a_run_that_ended_at_its_start(place: bytes) -> None:
    source, target = build_flat_tree(place + b"/flat", 6, 150, 20), place + b"/copy"
    slow(place, 1, source, target)
    (checkpoint,) = checkpoints(place)
    write_file(checkpoint + b"/now.new", b"")
    write_file(checkpoint + b"/header.new", b"cut")
    copy(ONE, "--resume", source, target)
    assert differences(source, target, CONTENT) == []
    assert checkpoints(place) == []


def test_a_path_too_long_for_a_checkpoint_is_copied_without(place: bytes) -> None:
    source = build_flat_tree(place + b"/flat", 1, 3, 20)
    folder = os.path.join(place, *[b"x" * 255] * 15)
    folder += b"/" + b"y" * (4085 - len(folder) - 1)
    os.makedirs(folder)
    finished = run_fcp(ONE, source, b"copy", cwd=folder)
    assert finished.code == 0, finished.said
    assert os.path.isdir(folder + b"/copy")


def test_a_checkpoint_in_a_copy_that_must_not_be_written(place: bytes) -> None:
    """Neither its parent nor, in the end, the copy itself is writable."""
    prefix = without_rights("dac_override", "dac_read_search")
    source = build_flat_tree(place + b"/flat", 2, 10, 20)
    target = make_directory(place, b"parent", b"copy")
    os.chmod(source, 0o555)
    os.chmod(place + b"/parent", 0o555)
    try:
        finished = run_fcp(ONE, "-p", "-T", source, target, prefix=prefix)
        assert finished.code == 0, finished.said
        assert checkpoints(target) == []
        assert os.stat(target).st_mode & 0o777 == 0o555
        assert os.stat(target).st_mtime_ns == os.stat(source).st_mtime_ns
    finally:
        os.chmod(place + b"/parent", 0o755)


def test_restart_takes_the_new_chunk_size(place: bytes) -> None:
    source = make_directory(place, b"source")
    write_file(source + b"/some", content("some", 12 * MIB))
    write_file(source + b"/large", content("large", 64 * MIB))
    target = place + b"/copy"
    interrupt(ONE, place, "--bwlimit", "16M", source, target, when=committed_in(place, 1))
    report = place + b"/report"
    items = []
    for options in (["--restart", source, target], [source, place + b"/other"]):
        copy(ONE, "--chunksize", "4M", "--json", report, *options)
        items.append(document(report)["ranks"][0]["items"])
    assert items[0] == items[1]


def test_a_source_named_like_the_checkpoint_is_copied(place: bytes) -> None:
    """A checkpoint that another copy has left deep in the source is an ordinary directory."""
    source, target = build_flat_tree(place + b"/flat", 6, 150, 20), place + b"/copy"
    slow(place, 1, source, target)
    (checkpoint,) = checkpoints(place)
    inside = make_directory(source, b"deep", os.path.basename(checkpoint))
    write_file(inside + b"/file", b"content")
    copy(ONE, "--resume", source, target)
    assert differences(source, target, CONTENT) == []


@pytest.mark.mpi
@needs_mount_namespace
def test_a_rank_that_does_not_see_the_checkpoint(place: bytes) -> None:
    """A directory that each node has for itself is reported without a traceback."""
    source = build_flat_tree(place + b"/flat", 2, 10, 20)
    elsewhere = make_directory(place, b"elsewhere")
    prefix = mpirun_prefix()
    script = """
        if [ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}" = 1 ]; then
            exec unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$@"
        fi
        shift; exec "$@"
    """
    fcp: list[str | bytes] = [
        sys.executable,
        "-m",
        "pcircle.tools.fcp",
        "--checkpoint-dir",
        elsewhere,
    ]
    finished = subprocess.run(
        [*prefix, "-np", "2", "sh", "-c", script, "sh", elsewhere, *fcp, source, place + b"/copy"],
        check=False,
        capture_output=True,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    said = finished.stderr.decode()
    assert finished.returncode == 4, said
    assert "which must be visible to all ranks" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_no_file_of_a_checkpoint_is_open_when_it_is_removed(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """This includes resumed copies. NFS would keep open files, and the directory with them."""
    source = build_flat_tree(place + b"/flat", 6, 150, 20)
    mounted = fuse()
    target = mounted.path + b"/copy"
    interrupt(ONE, mounted.path, source, target, when=committed_in(mounted.path, 1))
    mounted.rules(Rule(ops=("rmdir",), path=".fcp-checkpoint-*", delay_s=1.0))
    with Run(launcher, "--resume", source, target) as run:
        deadline_s = time.monotonic() + 60
        while not mounted.state().delayed:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        found = [path for pid in run.processes() for path in _open_files(pid)]
        assert [path for path in found if b".fcp-checkpoint-" in path] == []
        assert run.finish().code == 0
    assert checkpoints(mounted.path) == []


def _open_files(pid: int) -> list[bytes]:
    """Return the paths of the regular files that a process has open or mapped."""
    folder = Path(f"/proc/{pid}")
    found = []
    try:
        for entry in folder.joinpath("fd").iterdir():
            with suppress(OSError):
                if stat.S_ISREG(entry.stat().st_mode):
                    found.append(os.fsencode(os.readlink(entry)))
        maps = folder.joinpath("maps").read_bytes()
    except OSError:
        return found  # it has ended
    return found + [line for line in maps.splitlines() if b"/" in line]
