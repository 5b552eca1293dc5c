"""After any run rsync has nothing to do, and neither has a second run."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle import mirror
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher

from .edits import Tree, cleared, copy_of
from .judge import case_of, has_ordinary, judged
from .running import (
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
    searched,
)

pytestmark = [as_root, needs_rsync]
CHANGING = (
    "mkdirat,mkdir,mknodat,symlinkat,linkat,unlinkat,unlink,rmdir,renameat,renameat2,rename,"
    "fchmod,fchmodat,chmod,fchown,fchownat,chown,lchown,utimensat,setxattr,fsetxattr,lsetxattr,"
    "removexattr,fremovexattr,ftruncate,copy_file_range,sendfile,write,pwrite64"
)
_DRAWN = 8  # seeds of random options


def pair(place: bytes, seed: int) -> tuple[bytes, bytes]:
    """Create a tree and a target: none, an unrelated one, or the tree before its edits."""
    source, target = cleared(place)
    tree = Tree(source, seed)
    how = tree.random.randrange(4)
    if how == 0:
        Tree(target, ~seed)
    elif how > 1:
        copy_of(source, target)
        for _ in range(tree.random.randrange(1, 10)):
            tree.edit()
    return source, target


def state(top: bytes) -> bytes:
    """Return the attributes in which any change is visible."""
    line: list[str | bytes] = ["find", top, "-printf", r"%P %i %C@ %T@\n"]
    found = subprocess.run(line, capture_output=True, check=True).stdout
    return b"\n".join(sorted(found.splitlines()))


@pytest.fixture(scope="module")
def shared() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield os.fsencode(path)


@searched(60, soak=2000)
@given(seed=st.integers(0, 2**40))
def test_no_differences_remain(shared: bytes, seed: int) -> None:
    source, target = pair(shared, seed)
    wanted: dict[str, Any] = {
        "delete": "after",
        "allow_empty": True,
        "allow_foreign": True,
        "jobs": 1,
    }
    report = mirror(source, target, **wanted)
    assert (report.exit_code, report.failed) == (0, 0)
    assert differences(source, target) == ""
    before = state(target)
    again = mirror(source, target, **wanted)
    assert again.exit_code == 0
    assert state(target) == before
    assert (again.files, again.links, again.touched, again.removed) == (0, 0, 0, 0)


@every_launcher
@pytest.mark.parametrize("seed", [11, 22, 33])
def test_every_launcher_does_the_same(place: bytes, launcher: Launcher, seed: int) -> None:
    source, target = pair(place, seed)
    mirrored(launcher, "--delete", "--allow-empty", source, target)
    assert differences(source, target) == ""
    before = state(target)
    mirrored(launcher, "--delete", "--allow-empty", source, target)
    assert state(target) == before


@needs_strace
def test_no_call_of_a_second_run_changes_anything(place: bytes, tmp_path: Path) -> None:
    """No call of the second run changes the target, as seen by the kernel."""
    source, target = pair(place, 7)
    for number in range(300):
        with open(source + b"/file %d" % number, "xb") as stream:
            stream.write(b"%d" % number)
    mirrored(None, "-j1", "--delete", source, target)
    log = tmp_path / "calls"
    prefix = ["strace", "-f", "-y", "-o", str(log), "-e", f"trace={CHANGING},openat"]
    finished = run_fmirror(None, "-q", "-j1", "--delete", source, target, prefix=prefix)
    assert finished.code == 0, finished.said
    calls = [call for call in read_calls(log) if os.fsdecode(target) + "/" in call.text]
    calls = [call for call in calls if not call.result.startswith("-1 E")]
    reads = [call for call in calls if call.name == "openat" and "O_CREAT" not in call.text]
    reads = [call for call in reads if not re.search("O_WRONLY|O_RDWR", call.text)]
    assert len(reads) > 0
    assert [call for call in calls if call not in reads] == []


def test_random_options(shared: bytes) -> None:
    """The result equals rsync's; each run has other seeds, which a failure prints."""
    ordinary, wrong = has_ordinary(), []
    os.chmod(shared, 0o755)  # an ordinary user reaches the trees
    first = secrets.randbelow(10**9)
    print(
        f"python -m tests.tools.fmirror.judge --launchers j1 j2 --seeds {first}..{first + _DRAWN}"
    )
    for seed in range(first, first + _DRAWN):
        case = case_of(seed, [ONE, TWO], ordinary=ordinary)
        found = judged(case, Path(os.fsdecode(shared)))
        if found:
            wrong.append(f"{case}: {found}")
    assert wrong == []


@pytest.mark.mpi
def test_random_options_and_kinds_under_mpi(shared: bytes) -> None:
    first, ordinary = secrets.randbelow(10**9), has_ordinary()
    os.chmod(shared, 0o755)
    print(f"python -m tests.tools.fmirror.judge --launchers np3 --seeds {first}..{first + 2}")
    for seed in range(first, first + 2):
        case = case_of(seed, [Launcher(ranks=3)], ordinary=ordinary)
        assert judged(case, Path(os.fsdecode(shared))) == "", str(case)
