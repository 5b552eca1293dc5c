"""`pcircle.tools.fmirror.mirror` in a program, also with threads; then ranks are interpreters."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pcircle import mirror
from tests.tools.fcp.trees import write_file
from tests.tools.fsum.running import run_fsum

from .running import as_root, differences, needs_rsync

_TICKS_S = 0.1  # of the clock of change times: changes at the start of a run are uncertain

pytestmark = [as_root, needs_rsync]


@pytest.fixture
def beside() -> Iterator[None]:
    """Run another thread in this process."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.fixture
def sides(place: bytes) -> tuple[str, str]:
    """Create ten files, of which one was changed, one added, one moved and one removed."""
    source, target = place + b"/a", place + b"/b"
    for side in (source, target):
        os.makedirs(side + b"/inner")
        for number in range(10):
            path = write_file(side + b"/inner/%d" % number, b"%d " % number * 1000)
            os.utime(path, (number, number))
    os.rename(source + b"/inner/1", source + b"/moved")
    os.unlink(source + b"/inner/2")
    os.truncate(source + b"/inner/3", 5)
    write_file(source + b"/new", b"new")
    time.sleep(_TICKS_S)
    return os.fsdecode(source), os.fsdecode(target)


def _judged(sides: tuple[str, str]) -> str:
    return differences(os.fsencode(sides[0]), os.fsencode(sides[1]))


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("more", ["", "moved", "backup_dir"])
def test_in_a_process_with_threads(
    sides: tuple[str, str], place: bytes, more: str, jobs: int
) -> None:
    options: dict[str, Any] = {"delete": True, "jobs": jobs}
    if more:
        options[more] = True if more == "moved" else os.fsdecode(place) + "/kept"
    report = mirror(sides[0], sides[1], **options)
    assert (report.exit_code, report.removed > 0) == (0, True)
    assert report.moved == (more == "moved")
    assert _judged(sides) == ""


@pytest.mark.usefixtures("beside")
def test_a_plan_in_a_process_with_threads(sides: tuple[str, str], place: bytes) -> None:
    plan = os.fsdecode(place) + "/plan"
    mirror(*sides, delete=True, plan=plan, jobs=2)
    assert _judged(sides) != ""
    report = mirror(apply=plan, jobs=2)
    assert (report.exit_code, report.removed > 0) == (0, True)
    assert _judged(sides) == ""


@pytest.mark.usefixtures("beside")
def test_snapshots_in_a_process_with_threads(sides: tuple[str, str], place: bytes) -> None:
    source, snapshots = sides[0], os.fsdecode(place) + "/snapshots"
    for day in (1, 2, 3):
        report = mirror(source, snapshots, snapshot=f"2026-11-0{day}", keep="2d", jobs=2)
        assert report.exit_code == 0
    assert sorted(os.listdir(snapshots)) == ["2026-11-02", "2026-11-03", "latest"]


@pytest.mark.usefixtures("beside")
def test_a_manifest_and_a_list_in_a_process_with_threads(
    sides: tuple[str, str], place: bytes
) -> None:
    """A separate job finds the entries to check, or they are read from a file."""
    source, target = sides
    manifest, listed = os.fsdecode(place) + "/manifest", os.fsdecode(place) + "/listed"
    mirror(source, target, delete=True, jobs=2)
    run_fsum(None, "-q", "--force", "-o", manifest, target)
    os.unlink(source + "/new")
    os.truncate(source + "/inner/4", 1)
    since: dict[str, Any] = {
        "since_manifest": manifest,
        "new_manifest": manifest,
        "delete": True,
        "jobs": 2,
    }
    report = mirror(source, target, **since)
    assert (report.exit_code, report.removed, report.files) == (0, 1, 1)
    assert _judged(sides) == ""
    os.truncate(source + "/inner/4", 2)
    report = mirror(source, target, **since)
    assert (report.exit_code, report.files) == (0, 1)
    run_fsum(None, "-q", "-o", manifest + " judge", target)
    with open(manifest, "rb") as found, open(manifest + " judge", "rb") as expected:
        assert found.read() == expected.read()
    os.unlink(source + "/inner/5")
    write_file(os.fsencode(listed), b"inner/5\n")
    report = mirror(source, target, delete=True, changed_from=listed, jobs=2)
    assert (report.exit_code, report.removed) == (0, 1)
    assert _judged(sides) == ""
