"""Interrupted copies: refusals, continuations, and no repeated work.

`kills` searches for defects after kills; a few of its rounds are played here, and hundreds by ``tox
-e soak``.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from pcircle.ops.checkpoint.journal import (
    COMMIT,
    JournalFrame,
    NamesRecord,
    RecordKeys,
    SubtreeRecord,
    read_frames,
    read_records,
)
from pcircle.ops.checkpoint.store import Checkpoint
from tests.conftest import SOAK
from tests.programs import required
from tests.tools.fcp import kills
from tests.tools.fcp.interrupts import (
    SLOWLY,
    checkpoints,
    committed,
    interrupt,
    is_committed,
    temporary_in,
)
from tests.tools.fcp.judge import CONTENT, differences
from tests.tools.fcp.running import (
    FOUR,
    ONE,
    TWO,
    Finished,
    Launcher,
    Run,
    copy,
    document,
    every_launcher,
    launchers,
    run_fcp,
)
from tests.tools.fcp.trees import MIB, build_flat_tree, content, make_directory, write_file


@pytest.fixture(scope="session")
def sources(shared_place: bytes) -> tuple[bytes, bytes]:
    return kills.build_sources(make_directory(shared_place, b"kills"))


@pytest.fixture(scope="session")
def flat(shared_place: bytes) -> bytes:
    return build_flat_tree(shared_place + b"/flat", 8, 250, 1000)


@pytest.mark.parametrize("seed", range(6 if SOAK else 4))
def test_killed_and_resumed(seed: int, sources: tuple[bytes, bytes], place: bytes) -> None:
    kills.play(place, sources, 1000 + seed, kills.LOCAL)


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(4 if SOAK else 2))
def test_killed_and_resumed_under_mpi(
    seed: int, sources: tuple[bytes, bytes], place: bytes
) -> None:
    kills.play(place, sources, 2000 + seed, kills.LAUNCHERS[-2:])


@pytest.mark.parametrize("seed", range(12 if SOAK else 5))
def test_continues_without_killed_ranks(
    seed: int, sources: tuple[bytes, bytes], place: bytes
) -> None:
    kills.play_lost(place, sources, 3000 + seed)


# ---- refusals -----------------------------------------------------------------------------------


def test_a_checkpoint_is_neither_ignored_nor_overwritten(flat: bytes, place: bytes) -> None:
    checkpoint = interrupt(TWO, place, flat, place + b"/copy")
    before = sorted(os.listdir(checkpoint))
    refused = run_fcp(TWO, flat, place + b"/copy")
    assert refused.code == 2
    assert "to continue, add --resume; to start over, --restart" in refused.said
    assert " entries, " in refused.said, "it says how far it got"
    assert [name for name in sorted(os.listdir(checkpoint)) if name != b"lock"] == [
        name for name in before if name != b"lock"
    ]
    assert not os.path.exists(place + b"/copy/flat"), "DST means what it meant"
    copy(TWO, "--resume", flat, place + b"/copy")
    assert differences(flat, place + b"/copy", CONTENT) == []
    assert checkpoints(place) == []


def test_restart_ignores_the_checkpoint(flat: bytes, place: bytes) -> None:
    interrupt(TWO, place, flat, place + b"/copy")
    copy(TWO, "--restart", "--json", place + b"/report", flat, place + b"/copy")
    assert document(place + b"/report")["resumed"] == 0
    assert differences(flat, place + b"/copy", CONTENT) == []
    assert sorted(os.listdir(place)) == [b"copy", b"report"]


def test_resume_without_a_checkpoint_begins(flat: bytes, place: bytes) -> None:
    copy(TWO, "--resume", flat, place + b"/copy")
    assert differences(flat, place + b"/copy", CONTENT) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["-p"], "-p"),
        (["-n"], "--no-clobber"),
        (["--exclude=x"], "filters"),
        (["-L"], "--dereference"),
        (["-x"], "-x"),
        (["--sparse=never"], "--sparse"),
    ],
)
def test_other_options_are_refused(
    options: list[str], named: str, flat: bytes, place: bytes
) -> None:
    interrupt(ONE, place, flat, place + b"/copy")
    refused = run_fcp(ONE, *options, "--resume", flat, place + b"/copy")
    assert refused.code == 2
    assert named in refused.said
    copy(ONE, *options, "--restart", flat, place + b"/copy")


def test_another_umask_is_refused_unless_modes_are_preserved(flat: bytes, place: bytes) -> None:
    """Otherwise the modes of the copies would depend on the run that has created them."""
    target = place + b"/copy"
    for options, code in (([], 2), (["-p"], 0)):
        interrupt(ONE, place, *options, flat, target)
        finished = run_fcp(ONE, *options, "--resume", flat, target, umask=0o077)
        assert finished.code == code, finished.said
        assert ("created with different options (your umask)" in finished.said) == bool(code)
        if code:
            copy(ONE, "--resume", flat, target, umask=0o022)
            subprocess.run(["rm", "-r", target], check=True)


def test_another_source_of_the_same_name_is_refused(place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 4, 250, 1000)
    interrupt(ONE, place, source, place + b"/copy")
    os.rename(source, place + b"/was")
    build_flat_tree(source, 4, 250, 900)
    refused = run_fcp(ONE, "--resume", source, place + b"/copy")
    assert refused.code == 2
    assert "belongs to a source other than" in refused.said
    copy(ONE, "--restart", source, place + b"/copy")
    assert differences(source, place + b"/copy", CONTENT) == []


def test_the_checkpoint_of_another_copy_is_not_used(flat: bytes, place: bytes) -> None:
    """The checkpoint is copied to the path of this copy's checkpoint."""
    mine = interrupt(ONE, place, flat, place + b"/copy")
    other = build_flat_tree(place + b"/other", 4, 250, 10)
    subprocess.run(["cp", "-a", mine, place + b"/kept"], check=True)
    with Run(ONE, *SLOWLY, other, place + b"/second") as run:
        while len(checkpoints(place)) < 2:
            assert run.process.poll() is None
            time.sleep(0.005)
        run.kill()
        run.finish()
    (second,) = [path for path in checkpoints(place) if path != mine]
    subprocess.run(["rm", "-r", second], check=True)
    os.rename(place + b"/kept", second)
    refused = run_fcp(ONE, "--resume", other, place + b"/second")
    assert refused.code == 2
    assert "belongs to a source other than" in refused.said


@pytest.mark.parametrize("launcher", launchers([1, 3], [2]))
def test_a_living_jobs_checkpoint_is_refused(launcher: Launcher, flat: bytes, place: bytes) -> None:
    with Run(launcher, *SLOWLY, flat, place + b"/copy") as run:
        while not is_committed(place):
            assert run.process.poll() is None
            time.sleep(0.01)
        run.kill(signal.SIGSTOP)  # otherwise it might end before the test continues
        for option in ("--resume", "--restart"):
            refused = run_fcp(ONE, option, flat, place + b"/copy")
            assert refused.code == 2
            assert "another run of this copy is in progress" in refused.said
        run.kill(signal.SIGCONT)
        assert run.finish().code == 0
    assert differences(flat, place + b"/copy", CONTENT) == []


def test_a_checkpoint_writable_for_other_users_is_refused(flat: bytes, place: bytes) -> None:
    checkpoint = interrupt(ONE, place, flat, place + b"/copy")
    os.chmod(checkpoint, 0o777)
    refused = run_fcp(ONE, "--resume", flat, place + b"/copy")
    assert refused.code == 2
    assert "is writable by other users" in refused.said


@pytest.mark.parametrize(
    "options",
    [
        ["--resume", "--restart"],
        ["--no-checkpoint", "--resume"],
        ["--no-checkpoint", "--checkpoint-dir=/tmp"],
        ["--checkpoint-interval=0"],
        ["--checkpoint-interval=soon"],
    ],
)
def test_invalid_options(options: list[str], flat: bytes, place: bytes) -> None:
    assert run_fcp(ONE, *options, flat, place + b"/copy").code == 2
    assert os.listdir(place) == []


# ---- the place of the checkpoint
# ------------------------------------------------------------------


@every_launcher
def test_nothing_is_left_after_success(launcher: Launcher, flat: bytes, place: bytes) -> None:
    os.mkdir(place + b"/parent")
    copy(launcher, "-p", "--checkpoint-interval", "0.02", flat, place + b"/parent/copy")
    assert os.listdir(place + b"/parent") == [b"copy"]
    assert os.stat(place + b"/parent/copy").st_mtime_ns == os.stat(flat).st_mtime_ns


def test_a_directory_of_its_own(flat: bytes, place: bytes) -> None:
    elsewhere = make_directory(place, b"elsewhere")
    where: list[str | bytes] = ["--checkpoint-dir", elsewhere]
    interrupt(ONE, elsewhere, *where, flat, place + b"/copy", when=lambda: is_committed(elsewhere))
    assert checkpoints(place) == []
    copy(ONE, *where, "--resume", flat, place + b"/copy")
    assert os.listdir(elsewhere) == []
    missing = run_fcp(ONE, "--checkpoint-dir", place + b"/none", flat, place + b"/copy 2")
    assert missing.code == 2


def test_the_checkpoint_is_in_the_copy_if_the_parent_is_not_writable(
    flat: bytes, place: bytes
) -> None:
    """Its removal does not change the copy's times."""
    mount = make_directory(place, b"parent", b"copy")
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=True)
    subprocess.run(["mount", "--bind", place + b"/parent", place + b"/parent"], check=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place + b"/parent"], check=True)
        interrupt(ONE, mount, "-p", "-T", flat, mount, when=lambda: is_committed(mount))
        copy(ONE, "-p", "--resume", "-T", flat, mount)
        assert checkpoints(mount) == []
        assert os.stat(mount).st_mtime_ns == os.stat(flat).st_mtime_ns
        assert differences(flat, mount, CONTENT) == []
    finally:
        for path in (mount, place + b"/parent", mount):
            subprocess.run(["umount", path], check=False)


def test_a_stopped_copy_keeps_its_checkpoint_and_reports_it(flat: bytes, place: bytes) -> None:
    """Work since the last epoch is included: a clean stop adds an epoch."""
    with Run(
        TWO, "--ops-limit", "1000", "--checkpoint-interval", "1h", flat, place + b"/copy"
    ) as run:
        while len(files_in(place + b"/copy")) < 400:  # of 2,000: some are certainly done
            assert run.process.poll() is None
            time.sleep(0.01)
        run.signal(signal.SIGTERM)
        finished = run.finish()
    assert finished.code == 143
    (checkpoint,) = checkpoints(place)
    assert checkpoint.decode() in finished.said
    assert finished.said.splitlines()[-1].startswith("fcp: to continue, run: fcp --resume ")
    copy(FOUR, "--resume", "--json", place + b"/report", flat, place + b"/copy")
    assert document(place + b"/report")["resumed"] > 0
    assert differences(flat, place + b"/copy", CONTENT) == []


def files_in(path: bytes) -> list[bytes]:
    """Return the names of the files below a directory, without temporary ones."""
    found = (names for _, _, names in os.walk(path))
    return [name for names in found for name in names if not name.startswith(b".fcp-")]


# ---- no repeated work
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", launchers([1, 3], [2]))
def test_committed_work_is_not_repeated(launcher: Launcher, flat: bytes, place: bytes) -> None:
    """Entries of a trusted record keep their inode and their change time, to the nanosecond."""
    checkpoint = interrupt(launcher, place, flat, place + b"/copy")
    done = claimed(checkpoint, flat)
    assert done
    before = {path: _state(place + b"/copy/" + path) for path in done}
    copy(FOUR, "--resume", flat, place + b"/copy")
    assert {path: _state(place + b"/copy/" + path) for path in done} == before
    assert differences(flat, place + b"/copy", CONTENT) == []


def _state(path: bytes) -> tuple[int, int]:
    status = os.stat(path, follow_symlinks=False)
    return status.st_ino, status.st_ctime_ns


def claimed(checkpoint: bytes, source: bytes) -> list[bytes]:
    """Return the files below `source` that the journals of a checkpoint claim to be copied."""
    found = Checkpoint.find(checkpoint)
    assert found is not None
    assert found.header is not None
    keys = RecordKeys(found.header.secret)
    frames: list[JournalFrame] = []
    for name in os.listdir(checkpoint):
        if name.startswith(b"journal-"):
            fd = os.open(checkpoint + b"/" + name, os.O_RDONLY)
            frames += [found for found in read_frames(fd, keys) if isinstance(found, JournalFrame)]
            os.close(fd)
    committed = max((frame.epoch for frame in frames if frame.magic == COMMIT), default=0)
    whole: set[bytes] = set()
    hashes: set[tuple[bytes, bytes]] = set()
    for frame in frames:
        if frame.magic == COMMIT or frame.epoch > committed:
            continue
        for _, _, record in read_records(frame.payload):
            if isinstance(record, SubtreeRecord):
                whole.add(record.key)
            elif isinstance(record, NamesRecord):
                step = range(0, len(record.hashes), 8)
                hashes.update((record.key, record.hashes[i : i + 8]) for i in step)
    found.close()
    paths = []
    for folder, _, names in os.walk(source):
        path = os.path.relpath(folder, source)
        key = keys.directory(0, b"" if path == b"." else path)
        for name in names:
            if key in whole or (key, keys.names([name])) in hashes:
                paths.append(os.path.normpath(os.path.join(path, name)))
    return paths


def test_a_large_file_is_continued(place: bytes) -> None:
    source = make_directory(place, b"source")
    write_file(source + b"/large", content("large", 64 * MIB))
    target = place + b"/copy"
    interrupt(TWO, place, "--chunksize", "4M", source, target)
    (temporary,) = temporary_in(target)
    inode = os.stat(target + b"/" + temporary).st_ino
    copy(TWO, "--resume", source, target)
    assert os.stat(target + b"/large").st_ino == inode
    assert differences(source, target, CONTENT) == []
    assert os.listdir(target) == [b"large"]


def test_a_large_file_that_changed_is_restarted(place: bytes) -> None:
    source = make_directory(place, b"source")
    write_file(source + b"/large", content("large", 64 * MIB))
    target = place + b"/copy"
    interrupt(TWO, place, "--chunksize", "4M", source, target)
    os.unlink(source + b"/large")
    write_file(source + b"/large", content("other", 64 * MIB))
    copy(TWO, "--resume", source, target)
    assert differences(source, target, CONTENT) == []
    assert os.listdir(target) == [b"large"]


def test_files_removed_from_the_copy_are_copied_again(flat: bytes, place: bytes) -> None:
    interrupt(TWO, place, flat, place + b"/copy")
    subprocess.run(["rm", "-r", place + b"/copy"], check=True)
    copy(TWO, "--resume", flat, place + b"/copy")
    assert differences(flat, place + b"/copy", CONTENT) == []


def test_a_damaged_journal_costs_only_what_it_covers(flat: bytes, place: bytes) -> None:
    def is_more_than_damage() -> bool:
        """Return whether there is more than the first frames, each of which will be damaged."""
        return any(committed(place, skipped=1))

    checkpoint = interrupt(TWO, place, flat, place + b"/copy", when=is_more_than_damage)
    rng = Random(7)
    for name in os.listdir(checkpoint):
        if name.startswith(b"journal-"):
            path = Path(os.fsdecode(checkpoint + b"/" + name))
            data = bytearray(path.read_bytes())
            data[rng.randrange(40)] ^= 0xFF
            path.write_bytes(data)
    finished = run_fcp(TWO, "--resume", "--json", place + b"/report", flat, place + b"/copy")
    assert finished.code == 0, finished.said
    assert "are damaged" in finished.said
    assert document(place + b"/report")["resumed"] > 0
    assert differences(flat, place + b"/copy", CONTENT) == []


def test_a_copy_stopped_by_a_full_disk_can_be_resumed(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    source = build_flat_tree(place + b"/source", 10, 100, 20_000)
    mount = mount_tmpfs("size=12m")
    stopped: Finished = run_fcp(
        TWO, "-p", "--checkpoint-interval", "0.05", source, mount + b"/copy"
    )
    assert stopped.code == 4, stopped.said
    assert len(checkpoints(mount)) == 1
    subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
    copy(TWO, "-p", "--resume", source, mount + b"/copy")
    assert differences(source, mount + b"/copy") == []
    assert os.listdir(mount) == [b"copy"]


MEASURE = """
import sys
from pcircle.ops.checkpoint import journal
from pcircle.tools.fcp import cli
kept = []
begin = journal.Journal.__init__
def beginning(self, *arguments):
    begin(self, *arguments)
    kept.append(self)
journal.Journal.__init__ = beginning
code = cli.main(sys.argv[1:])
for each in kept:
    print("journal", each.bytes + each._pending_bytes)
sys.exit(code)
"""


@pytest.mark.parametrize(("directories", "files"), [(1, 20_000), (200, 100), (4000, 5)])
def test_size_of_the_journal(directories: int, files: int, place: bytes) -> None:
    """Prints its size for a million files: in one directory, a hundred per directory, five."""
    source = build_flat_tree(place + b"/source", directories, files, 0)
    command = [sys.executable, "-c", MEASURE, "-j", "1", "--checkpoint-interval", "0.1"]
    finished = subprocess.run(
        [*command, source, place + b"/copy"], check=True, capture_output=True
    ).stdout
    (line,) = [line for line in finished.splitlines() if line.startswith(b"journal")]
    megabytes = int(line.split()[1]) / (directories * files)
    print(f"{directories} x {files}: {megabytes:.2f} MB for a million files")
    assert megabytes < 9 + 100 / files


def test_a_copy_that_filled_the_disk_keeps_its_destination(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """It has created DST, whose meaning must not change."""
    source = build_flat_tree(place + b"/source", 1, 60, 100_000)
    mount = mount_tmpfs("size=3m")
    stopped = run_fcp(ONE, "--json", place + b"/report", source, mount + b"/copy")
    assert stopped.code == 4, stopped.said
    assert document(place + b"/report")["files"] > 10
    assert len(checkpoints(mount)) == 1
    subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
    copy(ONE, "--resume", source, mount + b"/copy")
    assert differences(source, mount + b"/copy", CONTENT) == []
    assert os.listdir(mount) == [b"copy"]


# ---- power cuts --------------------------------------------------------------------------------


@pytest.fixture
def xfs(place: bytes) -> Iterator[tuple[bytes, Callable[[], None]]]:
    """Mount an XFS on a loop device; yield it with a function that cuts its power."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    for tool in ("mkfs.xfs", "xfs_io"):
        required(tool)
    image, mount = place + b"/image", make_directory(place, b"mount")
    with open(image, "wb") as stream:
        stream.truncate(400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    made = subprocess.run(["mount", "-o", "loop", image, mount], check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"no loop device here: {made.stderr!r}")

    def cut() -> None:
        # A copy, because the mount namespace of another test may still contain the dead one.
        subprocess.run(["umount", mount], check=True)
        subprocess.run(["cp", "--sparse=always", image, image + b".cut"], check=True)
        subprocess.run(["mount", "-o", "loop,nouuid", image + b".cut", mount], check=True)

    yield mount, cut
    subprocess.run(["umount", mount], check=False)


@pytest.mark.parametrize("seed", range(3))
def test_claimed_files_survive_a_power_cut(
    seed: int, xfs: tuple[bytes, Callable[[], None]], place: bytes
) -> None:
    """After a hard shutdown without a flush, files claimed by the journals are complete."""
    mount, cut = xfs
    source = build_flat_tree(place + b"/source", 12, 150, 9000)
    write_file(source + b"/large", content("large", 48 * MIB))
    target = mount + b"/copy"
    with Run(Launcher(jobs=seed + 1), "-p", *SLOWLY, "--chunksize", "4M", source, target) as run:
        while not committed(mount).names:
            assert run.process.poll() is None
            time.sleep(0.01)
        time.sleep(0.2 * Random(seed).random())
        subprocess.run(["xfs_io", "-x", "-c", "shutdown", mount], check=True)
        assert run.finish().code != 0
        assert run.wait_until_gone() == []
    cut()
    (checkpoint,) = checkpoints(mount)
    done = claimed(checkpoint, source)
    assert done, "something was committed before the cut"
    for path in done:
        left, right = Path(os.fsdecode(source + b"/" + path)), os.fsdecode(target + b"/" + path)
        assert left.read_bytes() == Path(right).read_bytes(), path
        assert stat.S_ISREG(os.stat(right).st_mode)
    copy(TWO, "-p", "--resume", source, target)
    assert differences(source, target) == []
