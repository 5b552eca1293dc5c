"""Writes that return 0 without an error, as a file server may: reported as an error at once.

A loop that continued would have no end, and one that stopped would lose data. The file system is
real; each writer of the package is tested.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from pcircle.aio import Files
from pcircle.cli import json_output as jsonout
from pcircle.cli.output import MessageStream
from pcircle.core.writing import WholeFile, write_all, write_at
from pcircle.fs import lists, sorting
from pcircle.fs.data import DataCopier
from pcircle.jobs.failures import LogFile, open_log
from pcircle.ops.checkpoint.journal import CreatedDirectoryRecord, Journal, RecordKeys
from pcircle.ops.checkpoint.store import Checkpoint
from pcircle.ops.digest import get_algorithm
from pcircle.ops.digest.manifest import ManifestEntry, write_manifest
from pcircle.ops.digest.signer import Runs, RunStore, pack_entry
from pcircle.runtime.crash_report import write_report
from pcircle.runtime.loop import SpillFile
from pcircle.walk.segments import SegmentWriter
from tests.conftest import ROOT
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule

_HANGS_S = 20
_MANY = [b"%06d" % number for number in range(3000)]


@contextmanager
def _ending() -> Iterator[None]:
    """End an endless loop."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError("it would never end")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _file(folder: Path) -> Iterator[int]:
    fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _journal(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    journal = Journal(fd, 1, 0, RecordKeys(b"8 bytes!"))
    try:
        journal.add([CreatedDirectoryRecord(b"k" * 16)])
        journal.commit(1, {})
    finally:
        journal.close()
        os.close(fd)


def _checkpoint(folder: Path) -> None:
    checkpoint = Checkpoint.create(os.fsencode(folder / "checkpoint"))
    try:
        checkpoint.write(b"header", [b"some", b"more"])
    finally:
        checkpoint.close()


def _spill(folder: Path) -> None:
    spill = SpillFile()
    try:
        spill.keep(1, b"segment")
    finally:
        spill.close()


def _sorter(folder: Path) -> None:
    list(sorting.sorted_records(_MANY, run_bytes=1000))


def _lists(folder: Path) -> None:
    lists.sort([(0, iter(_MANY))])


def _shelf(folder: Path) -> None:
    chosen = get_algorithm("xxh128")
    shelf = RunStore(chosen, max_memory_bytes=10)
    try:
        shelf.add(Runs((pack_entry(b"name", b"f", bytes(chosen.size)),)), Runs())
    finally:
        shelf.close()


def _manifest_part(folder: Path) -> None:
    part = SegmentWriter(os.fsencode(folder / "part"))
    part.add(b"directory", b"section")
    part.close()


def _manifest(folder: Path) -> None:
    root = ManifestEntry(b"root", b"d", b"digest", 0, 0, 0)
    with io.BufferedWriter(WholeFile(folder / "manifest", "wb")) as stream:
        write_manifest([], stream, "xxh128", root, lambda: 1)
        stream.flush()


def _error_log(folder: Path) -> None:
    log = LogFile(open_log(str(folder / "log")))
    try:
        log.append(b"line\n")
    finally:
        log.close()


def _report(folder: Path) -> None:
    jsonout.put(b"report", str(folder / "report"), durable=True)


def _buffer(folder: Path) -> None:
    with _file(folder) as fd, tempfile.TemporaryFile(dir="/tmp") as source:
        source.write(b"data")
        source.flush()
        DataCopier(ways=()).move(source.fileno(), fd, 0, 4)


def _all(folder: Path) -> None:
    with _file(folder) as fd:
        write_all(fd, memoryview(b"data"))


def _at(folder: Path) -> None:
    with _file(folder) as fd:
        write_at(fd, b"data", 3)


def _operation(folder: Path) -> None:
    with _file(folder) as fd, Files(1) as files:
        files.write(fd, b"data").result()


WRITERS: list[Callable[[Path], None]] = [
    _journal,
    _checkpoint,
    _spill,
    _sorter,
    _lists,
    _shelf,
    _manifest_part,
    _manifest,
    _error_log,
    _report,
    _buffer,
    _all,
    _at,
    _operation,
]


def test_a_write_of_zero_bytes_is_an_error(fuse: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = fuse(direct=True)
    mount.rules(Rule(("write",), at_most_bytes=0))
    messages = {}
    for writer in WRITERS:
        folder = Path(os.fsdecode(mount.path)) / writer.__name__
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with _ending():
            try:
                writer(folder)
            except Exception as error:
                messages[writer.__name__] = str(error)
            else:
                messages[writer.__name__] = "nothing was said"
    wrong = {name: what for name, what in messages.items() if "no more data could be" not in what}
    assert wrong == {}
    monkeypatch.setenv("XDG_STATE_HOME", os.fsdecode(mount.path))
    with _ending():
        assert "no report could be written" in write_report(ValueError("wrong"), "testing")


def test_unwritable_messages_are_dropped(fuse: Mount) -> None:
    mount = fuse(direct=True)
    mount.rules(Rule(("write",), at_most_bytes=0))
    with open(Path(os.fsdecode(mount.path)) / "said", "w") as stream, _ending():
        assert MessageStream(stream).write("words") == 5


def test_no_tool_waits_for_a_blocked_standard_output(fuse: Mount, place: bytes) -> None:
    mount = fuse(direct=True)
    Path(os.fsdecode(mount.backing), "tree").mkdir()
    tree = os.fsdecode(mount.path) + "/tree"
    mount.rules(Rule(("write",), at_most_bytes=0))
    out = os.open(os.path.join(mount.path, b"out"), os.O_WRONLY | os.O_CREAT)
    outcomes = {}
    try:
        for line in (
            ["fsum", "--version"],
            ["fcp", "--help"],
            ["fsum", "-j1", tree],
            ["fprof", "-j1", tree],
            ["fprof", "-j1", "--json", "-", tree],
            ["fcp", "-j1", "-s", tree, os.fsdecode(place) + "/copy"],
        ):
            done = subprocess.run(
                [sys.executable, ROOT / "bin" / line[0], *line[1:]],
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=_HANGS_S,
                check=False,
            )
            outcomes[" ".join(line[:3])] = (done.returncode, b"cannot write" in done.stderr)
    finally:
        os.close(out)
    assert set(outcomes.values()) == {(1, True)}, outcomes
