"""File systems that fail: errors by fault maps and, for real, by a FUSE file system and a tmpfs.

For each error the exit code is correct, every affected entry is reported with the error's text, and
everything else is copied; where the destination is full, the run stops with exit code 4. The errors
of the real file systems come from the kernel, with all their side effects.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ...conftest import SOAK
from ...fusefs.fixture import Mount
from ...fusefs.rules import Rule
from . import verdict
from .running import Finished, Launcher, Run, document, launchers, run_fcp
from .trees import MIB, content, make_directory, set_times, write_file

CHUNKS = "--chunksize=4M"
fault_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2]))
pytestmark = pytest.mark.faults


class Fault(NamedTuple):
    """An error at some entries: rules by source and target, and the expected reports."""

    error: str
    at_source: bool
    paths: tuple[str, ...]
    calls: tuple[str, ...]  # functions of os
    ops: tuple[str, ...]  # operations of FUSE
    failed: frozenset[bytes]
    options: tuple[str, ...] = ()


READS = ("read", "readv", "preadv", "pread", "copy_file_range", "sendfile")
WRITES = ("write", "pwrite", "copy_file_range", "sendfile")
SMALL, LARGE = "a/1", "a/large"
BOTH = frozenset({b"a/1", b"a/large"})

FAULTS = {
    "EIO on read": Fault("EIO", True, (SMALL, LARGE), READS, ("read",), BOTH),
    "EIO on write": Fault("EIO", False, (SMALL,), WRITES, ("write",), frozenset({b"a/1"})),
    "EIO on fsync": Fault(
        "EIO", False, (SMALL,), ("fsync",), ("fsync",), frozenset({b"a/1"}), ("--fsync",)
    ),
    "EACCES on open": Fault("EACCES", True, (SMALL, LARGE), ("open",), ("open",), BOTH),
    "EACCES on a directory": Fault(
        "EACCES", True, ("b",), ("open",), ("opendir",), frozenset({b"b"})
    ),
    "ESTALE on open": Fault("ESTALE", True, (SMALL, LARGE), ("open",), ("open",), BOTH),
    "EIO on scan": Fault(
        "EIO", True, ("b",), ("scandir",), ("readdir", "readdirplus"), frozenset({b"b"})
    ),
    "EIO on mkdir": Fault("EIO", False, ("b",), ("mkdir",), ("mkdir",), frozenset({b"b"})),
    "EDQUOT on one file": Fault("EDQUOT", False, (SMALL,), WRITES, ("write",), frozenset({b"a/1"})),
    "ENOSPC on one file": Fault("ENOSPC", False, (SMALL,), WRITES, ("write",), frozenset({b"a/1"})),
    "EIO on attributes": Fault(
        "EIO", False, (SMALL,), ("utime", "chmod", "chown"), ("setattr",), frozenset({b"a/1"})
    ),
}
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))


def _build(root: bytes) -> bytes:
    for name in (b"a", b"b", b"b/below"):
        make_directory(root, name)
    for number in range(10):
        write_file(root + b"/a/%d" % number, content(number, 700 * number))
        write_file(root + b"/b/below/%d" % number, content(-number, 90 * number))
    write_file(root + b"/a/large", content("large", 9 * MIB + 9))
    write_file(root + b"/a/middle", content("middle", MIB + 1))
    os.symlink(b"a/large", root + b"/link")
    set_times(root)
    return root


def _mapped(
    place: bytes, launcher: Launcher, rules: Sequence[Rule], *arguments: str | bytes
) -> Finished:
    """Run fcp under a fault map."""
    path = os.path.join(place, b"map")
    with open(path, "x") as stream:
        json.dump([rule._asdict() for rule in rules], stream)
    program = ("tests.tools.fcp.faulty", os.fsdecode(path))
    with Run(launcher, *arguments, program=program) as run:
        return run.finish()


def _assert_reported(
    finished: Finished, fault: Fault, place: bytes, source: bytes, target: bytes
) -> None:
    """Check the exit code, and the names and errors in the log and the report."""
    text = os.strerror(getattr(errno, fault.error))
    assert finished.code == 1, finished.said
    assert "Traceback" not in finished.said
    lines = verdict.logged(place + b"/log")
    assert verdict.named(place + b"/log") == fault.failed, finished.said
    assert {line["error"] for line in lines} == {fault.error}
    for entry in fault.failed:
        path = os.fsdecode(os.path.join(_refusing(fault, source, target), entry))
        assert f"'{path}': {text}" in finished.said
    assert document(place + b"/result")["failed"] == len(fault.failed)


def _refusing(fault: Fault, source: bytes, target: bytes) -> bytes:
    """Return the reported side: the source for errors that both reads and writes may return."""
    unclear = fault.error == "EIO" and fault.ops == ("write",)
    return source if fault.at_source or unclear else target


def _assert_others_are_copied(source: bytes, target: bytes, fault: Fault) -> None:
    differing = verdict.differing(source, target, preserved=True)
    assert verdict.unexplained(differing, set(fault.failed)) == []
    assert verdict.leftovers(target) == []
    assert differing, "nothing went wrong"


def _logs(place: bytes) -> tuple[str | bytes, ...]:
    return ("-p", CHUNKS, "--error-log", place + b"/log", "--json", place + b"/result")


@fault_launchers
@every_fault
def test_fault_maps(fault: Fault, launcher: Launcher, place: bytes) -> None:
    source, target = _build(place + b"/source"), place + b"/target"
    side = os.fsdecode(source if fault.at_source else target)
    rules = [Rule(fault.calls, f"{side}/{path}", errno=fault.error) for path in fault.paths]
    arguments = (*_logs(place), *fault.options, source, target)
    finished = _mapped(place, launcher, rules, *arguments)
    _assert_reported(finished, fault, place, source, target)
    _assert_others_are_copied(source, target, fault)


@pytest.mark.parametrize("launcher", launchers([1, 3] if SOAK else [3], [2] if SOAK else []))
@every_fault
def test_a_file_system_that_fails(
    fault: Fault, launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """The error comes from the kernel: the failing side is a FUSE file system."""
    mount = fuse()
    if fault.at_source:
        source, target = _build(mount.path + b"/source"), place + b"/target"
        side = "source"
    else:
        source, target = _build(place + b"/source"), mount.path + b"/target"
        side = "target"
    mount.rules(*(Rule(fault.ops, f"{side}/{path}", errno=fault.error) for path in fault.paths))
    finished = run_fcp(launcher, *_logs(place), *fault.options, source, target)
    mount.rules()
    _assert_reported(finished, fault, place, source, target)
    _assert_others_are_copied(source, target, fault)


@fault_launchers
@pytest.mark.parametrize("error", ["EDQUOT", "ENOSPC", "EROFS"])
def test_a_full_file_system_stops_the_run(
    error: str, launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """When nothing more can be written, the remaining entries are skipped."""
    mount = fuse()
    source, target = _build(place + b"/source"), mount.path + b"/target"
    mount.rules(Rule(("write",), skip=4, errno=error), Rule(("create",), skip=12, errno=error))
    finished = run_fcp(launcher, *_logs(place), source, target)
    assert finished.code == 4, finished.said
    reason = os.strerror(getattr(errno, error))
    assert re.search(f"cannot (write|create).* '.*/target/.*': {reason}\n", finished.said)
    assert error in Path(os.fsdecode(place), "log").read_text()
    assert "Traceback" not in finished.said
    assert document(place + b"/result")["exit_code"] == 4
    mount.rules()
    whole = [e for e in verdict.entries(target) if os.path.isfile(os.path.join(target, e))]
    differing = verdict.differing(source, target, preserved=False)
    assert not set(whole) & set(differing)
    again = run_fcp(launcher, *_logs(place), "--resume", source, target)
    assert again.code == 0, again.said
    assert verdict.differing(source, target, preserved=True) == []


@fault_launchers
def test_short_reads_and_writes_of_the_kernel(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """A kernel that transfers less than requested costs time, and nothing else."""
    mount = fuse(direct=True)
    source, target = _build(place + b"/source"), mount.path + b"/target"
    mount.rules(Rule(("write",), at_most_bytes=100_000), Rule(("write",), "*/7", at_most_bytes=7))
    finished = run_fcp(launcher, *_logs(place), source, target)
    assert finished.code == 0, finished.said
    mount.rules()
    assert verdict.differing(source, target, preserved=True) == []


@pytest.mark.parametrize("launcher", launchers([3], [3]))
def test_a_stuck_rank_does_not_silence_others(
    launcher: Launcher, place: bytes, fuse: Mount
) -> None:
    """One rank waits in an operation; progress is printed, and the remaining work completes."""
    mount = fuse()
    source, target = _build(mount.path + b"/source"), place + b"/target"
    mount.rules(Rule(("read",), "source/b/below/9", delay_s=3600.0))
    with Run(launcher, "-p", "--interval=0.1", source, target) as run:
        assert run.process.stderr is not None
        try:
            lines = []
            while mount.state().delayed == 0 or _content_differs(source + b"/a", target + b"/a"):
                lines.append(run.process.stderr.readline())
            # The same number again while only that operation is left.
            lines += [run.process.stderr.readline() for _ in range(5)]
            assert mount.state().delayed == 1
            assert run.process.poll() is None
        finally:
            mount.rules()
            mount.release()  # the waiting process can't be killed
        finished = run.finish()
    assert all(b"%" in line for line in lines), lines
    assert finished.code == 0, finished.said
    assert verdict.differing(source, target, preserved=True) == []


def _content_differs(source: bytes, target: bytes) -> bool:
    return bool(verdict.differing(source, target, preserved=False))


@fault_launchers
def test_a_full_tmpfs_that_is_enlarged(
    launcher: Launcher, place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """It stops when the file system is full, with no incomplete file; a rerun completes it."""
    full = mount_tmpfs("size=5m")
    source, target = _build(place + b"/source"), full + b"/target"
    finished = run_fcp(launcher, *_logs(place), source, target)
    assert finished.code == 4, finished.said
    assert os.strerror(errno.ENOSPC) in finished.said
    torn = set(verdict.differing(source, target, preserved=False)) & set(verdict.entries(target))
    assert torn == set()
    subprocess.run(["mount", "-o", "remount,size=64m", full], check=True)
    again = run_fcp(launcher, *_logs(place), "--resume", source, target)
    assert again.code == 0, again.said
    assert verdict.differing(source, target, preserved=True) == []


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_vanished_directory_costs_its_entries(side: str, place: bytes) -> None:
    """Any look-up may fail, as in a directory that an NFS server has dropped."""
    source = _build(place + b"/source")
    for skip in range(5):
        target = place + b"/target %d" % skip
        above = os.fsdecode(source if side == "source" else target)
        rules = [Rule(("fstat",), f"{above}/a", errno="ESTALE", skip=skip)]
        rules.append(Rule(("open", "stat"), f"{above}/a/*", errno="ESTALE"))
        finished = _mapped(place, Launcher(jobs=1), rules, "-a", source, target)
        os.unlink(place + b"/map")
        assert finished.code == 1, finished.said
        assert "Traceback" not in finished.said
