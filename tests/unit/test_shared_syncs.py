"""Flushes that ranks of a node share: which flush a rank may count as its own."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from pcircle.core.errors import require
from pcircle.ops.checkpoint.file_system_sync import FileSystemSync, SharedSync
from pcircle.ops.checkpoint.shared_board import SharedBoard

DEVICE, OTHER = "7", "8"
FLUSH_S = 0.1
HANG_S = 60.0
PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture
def token() -> bytes:
    return b"test-%d-%d" % (os.getpid(), time.monotonic_ns())


def _come(folder: Path) -> None:
    """Record that this process has reached a step."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()


def _wait(folder: Path, count: int) -> None:
    """Wait until *count* processes have reached a step, however busy the machine is."""
    hangs_s = time.monotonic() + HANG_S
    while len(os.listdir(folder)) < count:
        assert time.monotonic() < hangs_s
        time.sleep(0.001)


def _rank(token: bytes, place: Path, count: int, log: Path, late_s: float) -> None:
    """Run a rank that syncs several times like the others; log its calls and flushes."""
    shared = SharedSync(token, DEVICE)
    lines = []

    def flush() -> None:
        begin_s = time.monotonic()
        _wait(calling, count)
        time.sleep(FLUSH_S)
        lines.append(f"flush {begin_s} {time.monotonic()}")

    for number in range(3):
        between, calling = place / f"between {number}", place / f"calling {number}"
        _come(between)
        _wait(between, count)
        time.sleep(late_s)
        begin_s = time.monotonic()
        _come(calling)
        shared.sync(flush)
        lines.append(f"call {begin_s} {time.monotonic()}")
    log.write_text("\n".join(lines))
    shared.close()


@pytest.mark.parametrize("late_s", [0.0, 0.004])
def test_each_call_includes_a_flush_and_few_are_made(
    token: bytes, tmp_path: Path, late_s: float
) -> None:
    count = 8
    place, logs = tmp_path / "place", tmp_path / "logs"
    place.mkdir()
    logs.mkdir()
    ranks = [
        PROCESSES.Process(target=_rank, args=(token, place, count, logs / str(rank), rank * late_s))
        for rank in range(count)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0] * count
    rows = [line.split() for file in logs.iterdir() for line in file.read_text().splitlines()]
    calls = [(float(row[1]), float(row[2])) for row in rows if row[0] == "call"]
    flushes = [(float(row[1]), float(row[2])) for row in rows if row[0] == "flush"]
    assert len(calls) == 3 * count
    for begin_s, end_s in calls:
        assert any(begin_s <= first and last <= end_s for first, last in flushes)
    assert len(flushes) < len(calls) / 2


def _die(token: bytes) -> None:
    SharedSync(token, DEVICE).sync(lambda: os._exit(9))


def test_an_unfinished_flush_of_a_dead_rank_does_not_count(token: bytes) -> None:
    shared, flushes = SharedSync(token, DEVICE), []
    rank = PROCESSES.Process(target=_die, args=(token,))
    rank.start()
    rank.join(60)
    assert rank.exitcode == 9
    shared.sync(lambda: flushes.append(1))
    shared.sync(lambda: flushes.append(2))
    assert flushes == [1, 2]  # nor does a flush that ended before the call
    shared.close()


def test_a_flush_that_failed_does_not_count(token: bytes) -> None:
    one, other, flushes = SharedSync(token, DEVICE), SharedSync(token, DEVICE), []

    def fail() -> None:
        late.start()
        time.sleep(FLUSH_S)
        raise OSError("no")

    late = threading.Thread(target=other.sync, args=(lambda: flushes.append(1),))
    with pytest.raises(OSError, match="no"):
        one.sync(fail)
    late.join()
    assert flushes == [1]
    one.close()
    other.close()


def test_ranks_find_each_other_in_any_order_of_ends(token: bytes) -> None:
    flushes: list[int] = []
    first, second = SharedSync(token, DEVICE), SharedSync(token, DEVICE)
    other = SharedSync(token, OTHER)
    for number, shared in enumerate((first, second, other)):
        shared.sync(partial(flushes.append, number))
    assert [shared.counts for shared in (first, second, other)] == [
        (2, 2, 2),
        (2, 2, 2),
        (1, 1, 1),
    ]
    first.close()  # created the file
    third, fourth = SharedSync(token, DEVICE), SharedSync(token, DEVICE)
    assert (third.counts, fourth.counts, second.counts) == ((0, 0, 2), (0, 0, 2), (2, 2, 2))
    for shared in (second, third, fourth, other):
        shared.close()


def test_another_users_socket_is_not_trusted(token: bytes, tmp_path: Path) -> None:
    """A rank then flushes by itself."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    device = os.stat(tmp_path).st_dev
    own = SharedBoard(token, f"{device:x}", 3)
    address = require(own.address)
    own.close()
    program = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.bind(bytes.fromhex(sys.argv[1]))\n"
        "s.listen()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    line = [sys.executable, "-c", program, address.hex()]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(PermissionError):
            SharedSync(token, f"{device:x}")
        disk = FileSystemSync(None, token)
        fd = os.open(tmp_path, os.O_RDONLY)
        disk.add_directory(fd, os.fstat(fd))
        disk.sync()
        assert disk._shared == {device: None}
        disk.close()
        os.close(fd)
        process.communicate(b"", timeout=60)
