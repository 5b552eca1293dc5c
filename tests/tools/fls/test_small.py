"""Small directories with only files are listed as by ls, with few calls."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import counts, strace
from tests.tools.fcp.running import TWO, without_rights

from .running import ls, many, run_fls

OPTIONS = [
    *("-R", "-rR", "-AR", "-aR", "-1R", "-R --exclude=nothing", "-UR"),
    *("-lR", "-rlR", "-AlR", "-islR", "-sR", "-FR", "-SlR", "-lUR"),
]
JOBS = [1, 2, 4]


def _files(top: Path, names: list[str]) -> None:
    top.mkdir(parents=True)
    for name in names:
        (top / name).touch()


def wide(top: Path) -> None:
    """Create many small adjacent directories, some of them empty."""
    for number in range(300):
        _files(
            top / f"d{number}", [f"{number * 7919 % 11}-{letter}" for letter in range(number % 7)]
        )


def deep(top: Path) -> None:
    """Create a small directory on each of many levels."""
    for level in range(60):
        _files(top / "/".join(["in"] * level) / "small", ["b", "a", f"level {level}"])


def mixed(top: Path) -> None:
    """Create large and unusual directories among small plain ones."""
    for number in range(100):
        inner = top / f"d{number}"
        _files(inner, ["file", ".hidden file"])
        if number % 5 == 0:
            (inner / "link").symlink_to("file")
        if number % 7 == 0:
            (inner / "to directory").symlink_to("..")
        if number % 11 == 0:
            os.mkfifo(inner / "fifo")
        if number % 13 == 0:
            _files(inner / "below", ["1", "2"])
        if number % 17 == 0:
            _files(inner / ".below", ["1", ".2"])
    top.joinpath(".hidden directory").mkdir()


def long(top: Path) -> None:
    """Create batches of the maximum size, one more, and too many names for one batch."""
    for count in (255, 256, 257, 1000, 4096, 4097):
        _files(top / f"of {count}", [f"{name:05d}" for name in range(count)])
        _files(top / f"beside {count}", ["only"])
    _files(top / "names", [f"{letter * 255}" for letter in "abcdefghijklmnopqrstuvwxyz"])


def odd(top: Path) -> None:
    """Create names of every byte, and directories of these names."""
    top.mkdir()
    for byte in range(1, 256):
        if byte == ord("/"):
            continue
        inner = os.path.join(bytes(top), b"d" + bytes([byte]))
        os.mkdir(inner)
        os.mknod(inner + b"/f" + bytes([byte]))
        os.mknod(inner + b"/\xff\n" + bytes([byte]))


@pytest.mark.parametrize("build", [wide, deep, mixed, long, odd], ids=lambda item: item.__name__)
def test_small_directories_are_listed_as_ls_does(
    tmp_path: Path, build: Callable[[Path], None]
) -> None:
    top = tmp_path / "tree"
    build(top)
    here = bytes(tmp_path)
    lines = [[f"-j{jobs}", *shlex.split(item), "tree"] for jobs in JOBS for item in OPTIONS]
    for line, text in zip(lines, many(lines, here, here), strict=True):
        words = [word for word in line[1:] if not word.startswith("--")]
        want = ls(*[word.replace("U", "") for word in words], cwd=here)
        if "U" in words[0]:  # in any order; a large directory may be listed in parts
            assert build is long or sorted(text.split()) == sorted(want.split()), line
        else:
            assert text == want, line


def test_unreadable_entries_are_named_and_others_listed(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    wide(top)
    for number in (3, 4, 77):
        (top / f"d{number}").chmod(0)
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)
    drop = without_rights("dac_override", "dac_read_search")
    command = [*drop, "ls", "-R", str(top)]
    want = subprocess.run(command, env={**os.environ, "LC_ALL": "C"}, capture_output=True)
    found = run_fls(TWO, "-R", bytes(top), prefix=drop)
    assert found.code == 1
    assert found.said.count("': Permission denied") == want.stderr.count(b": Perm") == 3
    assert found.out == want.stdout


@pytest.mark.counts
@pytest.mark.parametrize("options", ["-R", "-lR"])
def test_calls_for_a_directory_of_four_files(tmp_path: Path, options: str) -> None:
    """One listing has a hundred directories more than the other.

    They are opened, read and closed; a listing in the format of -l also looks up each entry.
    """
    few, many = tmp_path / "few", tmp_path / "many"
    for top, directories in (few, 20), (many, 120):
        for number in range(directories):
            _files(top / f"{number}", list("abcd"))

    def calls(top: Path) -> int:
        command = [*counts.steady("fls"), "-qj1", "--threads=1", options, str(top)]
        return counts.total(counts.by_name(strace.trace(command, tmp_path / "calls")))

    counts.check(
        f"fls {options} (directories of four files)",
        lambda: {
            "calls for 100 directories": counts.growth(lambda: calls(few), lambda: calls(many))
        },
    )


# After names of several directories were listed, some of them are replaced.
LATE = """
import itertools, os, sys, types
from pcircle.fs import stats
from pcircle.walk import walker
ticks = itertools.count()
walker.time = types.SimpleNamespace(monotonic=lambda: next(ticks) * 1e-6)
look, done = stats.Stats.look, []
def late(self, fds, names):
    if isinstance(fds, list) and len(set(fds)) > 2 and not done:
        done.append(1)
        os.remove("a", dir_fd=fds[0])
        for name, make in CHANGES.items():
            fd = fds[names.index(name)]
            os.remove(name, dir_fd=fd)
            make(name, fd)
    return look(self, fds, names)
CHANGES = {
    b"b": lambda name, fd: os.symlink("nowhere", name, dir_fd=fd),
    b"c": lambda name, fd: os.mkdir(name, dir_fd=fd),
    b"d": lambda name, fd: os.mknod(name, 0o10600, dir_fd=fd),
}
stats.Stats.look = late
stats.Stats.is_slow = property(lambda self: True)  # look-ups overlap
from pcircle.tools.fls.cli import main
code = main()
sys.exit(code or (0 if done else 9))
"""


def test_replaced_entries_are_listed_with_their_new_type(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    for number in range(40):
        _files(top / f"{number}", list("abcd"))
    done = subprocess.run(
        [sys.executable, "-c", LATE, "-q", "-j1", "--threads=1", "-lR", "tree"],
        cwd=tmp_path,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    want = ls("-lR", "tree", cwd=bytes(tmp_path))
    # The directory itself was looked up earlier.
    found, wanted = (
        [line for line in text.split(b"\n") if line[:1] != b"d"] for text in (done.stdout, want)
    )
    assert found == wanted
