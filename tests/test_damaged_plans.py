"""Damaged plans and records are refused before anything is done; a full disk stops a run."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.core.errors import UsageError
from pcircle.jobs.plan_file import read_plan
from pcircle.tools.fchmod.state import check_mark
from tests.tools.fchmod.running import run_tool, snapshot
from tests.tools.fcp.conftest import mount_tmpfs, place
from tests.tools.fcp.running import ONE, TWO, Finished, Launcher
from tests.tools.ffind.running import run_ffind
from tests.tools.fmirror.running import run_fmirror
from tests.tools.frm.running import run_frm

__all__ = ["mount_tmpfs", "place"]

Tool = Callable[[Launcher, str, str], Finished]


def _frm(launcher: Launcher, option: str, plan: str) -> Finished:
    return run_frm(launcher, "-q", *(("-r", "a") if option == "--plan" else ()), option, plan)


def _ffind(launcher: Launcher, option: str, plan: str) -> Finished:
    words = ("a", "-delete") if option == "--plan" else ()
    return run_ffind(launcher, *words, option, plan)


def _fmirror(launcher: Launcher, option: str, plan: str) -> Finished:
    words = ("--delete", "a", "b") if option == "--plan" else ()
    return run_fmirror(launcher, "-q", option, plan, *words)


def _fchmod(launcher: Launcher, option: str, plan: str) -> Finished:
    words = ("-R", "--undo", plan, "700", "a") if option == "--plan" else (option, plan)
    return run_tool("fchmod", launcher, "-q", *words)


TOOLS = {"frm": _frm, "ffind": _ffind, "fmirror": _fmirror, "fchmod": _fchmod}
every_tool = pytest.mark.parametrize("tool", TOOLS)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in ("a/d/f", "a/d/g", "a/e/h", "b/d/f", "b/d/old"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path


def state(top: Path) -> object:
    return snapshot(bytes(top / "a")), snapshot(bytes(top / "b"))


@every_tool
def test_a_damaged_plan_is_refused(tree: Path, tool: str) -> None:
    run, plan = TOOLS[tool], tree / "plan"
    assert run(ONE, "--plan", str(plan)).code == 0
    text, before = plan.read_bytes(), state(tree)
    lines = text.splitlines(keepends=True)
    damaged = [
        text.replace(b'"directory":"', b'"directory":"%zz'),
        text.replace(b'"plan":2', b'"plan":3'),
        b"".join([lines[0], *lines[2:]]),  # a line is missing
        text[: len(text) // 2] + bytes(50) + text[len(text) // 2 + 50 :],
        bytes(len(text)),
        b"",
        random.Random(tool).randbytes(500),
    ]
    for damaged_text in damaged:
        plan.write_bytes(damaged_text)
        done = run(TWO, "--apply", str(plan))
        assert (done.code, done.said.count("\n")) == (2, 1), (damaged_text, done.said)
        assert state(tree) == before


@pytest.mark.parametrize("tool", ["frm", "fchmod"])
def test_any_damage_is_detected(tree: Path, tool: str) -> None:
    """Any flipped bit and any cut is detected; a cut record restores all lines before the cut."""
    plan, is_record = tree / "plan", tool == "fchmod"
    assert TOOLS[tool](ONE, "--plan", str(plan)).code == 0
    text = plan.read_bytes()

    def read(content: bytes) -> bool:
        """Return whether the plan is reported as cut. Raise UsageError if it is refused."""
        plan.write_bytes(content)
        if is_record:
            return read_plan(str(plan), tool, check_mark, may_be_cut=True).cut
        return read_plan(str(plan), tool).cut

    assert not read(text)
    for at in range(len(text) - is_record):  # without its last newline a record is cut
        flipped = bytearray(text)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(UsageError):
            read(bytes(flipped))
        if is_record and at > text.index(b"\n"):
            assert read(text[:at]), at
        else:
            with pytest.raises(UsageError):
                read(text[:at])


@every_tool
@pytest.mark.parametrize("free", [0, 1, 8])
def test_a_full_disk_stops_a_run(
    tree: Path, mount_tmpfs: Callable[[str], bytes], tool: str, free: int
) -> None:
    """A full disk leaves no plan that looks complete, and nothing changes without a record."""
    run, small = TOOLS[tool], Path(os.fsdecode(mount_tmpfs("size=256k")))
    for number in range(2000):
        (tree / "a" / f"file {number}").touch()
    room = os.statvfs(small)
    (small / "filler").write_bytes(bytes((room.f_bfree - free) * room.f_bsize))
    before = state(tree)
    done = run(TWO, "--plan", str(small / "plan"))
    assert (done.code, "No space left on device" in done.said) == (4, True), done.said
    if tool == "fchmod":
        run(ONE, "--apply", str(small / "plan"))
    else:
        assert run(ONE, "--apply", str(small / "plan")).code == 2
    assert state(tree) == before
