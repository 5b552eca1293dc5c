"""Small directories that are read several at a time give the same results as find."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher, Run, launchers, without_rights
from tests.tools.ffind.calling import find

from .running import FFIND, by_find, found

FIELDS = "-printf '%p|%P|%h|%f|%H|%d|%y|%m|%s|%n|%T@|%i\\n'"
SEARCHES = [
    FIELDS,
    f"-type f {FIELDS}",
    f"-type d {FIELDS}",
    f"-mindepth 2 {FIELDS}",
    f"-mindepth 3 {FIELDS}",
    f"-maxdepth 1 {FIELDS}",
    f"-maxdepth 2 -mtime -1 {FIELDS}",
    f"-name 'd1*' -prune -o {FIELDS}",
    f"-size +3c {FIELDS} -o -name 'f2*' -printf '%P\\n'",
    f"-xdev -links -2 {FIELDS}",
    f"! -name 'd*' ! -path '*/d5/*' -mmin -600 {FIELDS}",
    f"-type d -size +0 -o -size -5c {FIELDS}",
    "-type f -size -5c",
    "-type d -size -500c",
    "-size +1c -printf 'no name\\n'",
]
OLD_NS = 1_600_000_000_123_456_789
# Runs with a given number of descriptors and the search that follows.
LIMITED = """
import resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)), hard))
from pcircle.tools.ffind.cli import main
sys.exit(main())
"""


def grow(directory: bytes, count: int, size: int) -> None:
    os.makedirs(directory)
    for number in range(count):
        with open(directory + b"/f%d" % number, "xb") as file:
            file.write(b"x" * size)


def build(top: bytes) -> None:
    """Build directories of few files, of none, of more than a batch, and of other types."""
    for number in range(120):
        grow(top + b"/d%d" % number, number % 7, number % 9)
    for count in (200, 255, 256, 257, 300):
        grow(top + b"/of%d" % count, count, 1)
    for number in range(0, 118, 9):
        os.symlink("f0", top + b"/d%d/link" % number)
        os.mkfifo(top + b"/d%d/fifo" % (number + 1))
        grow(top + b"/d%d/below" % (number + 2), 2, 4)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = os.fsencode(tmp_path_factory.mktemp("several"))
    build(place + b"/tree")
    for directory, _, _ in os.walk(place):
        os.chmod(directory, 0o755)
    return place


def test_results_equal_those_of_find(wide: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.fsdecode(wide))
    for search in SEARCHES:
        words = ["tree", *shlex.split(search)]
        done = find(*words, jobs=1, threads=1)
        assert done.report.exit_code == 0
        assert sorted(done.text.split(b"\n")[:-1]) == by_find(*words, cwd=wide), search


@pytest.mark.parametrize("launcher", launchers([2, 4], [3]), ids=str)
def test_by_every_launcher(wide: bytes, launcher: Launcher) -> None:
    words = ["tree", *shlex.split(FIELDS)]
    assert found(*words, launcher=launcher, cwd=wide) == by_find(*words, cwd=wide)


def test_a_directory_is_printed_with_its_old_access_time(tmp_path: Path) -> None:
    """Reading a directory changes its access time, for most that are older than a day."""
    top = os.fsencode(tmp_path) + b"/tree"
    for number in range(20):
        grow(top + b"/%d" % number, 3, 1)
        os.utime(top + b"/%d" % number, ns=(OLD_NS, OLD_NS))
    used = found(top, "-mindepth", "1", "-type", "d", "-atime", "+1", "-printf", "%A@\\n")
    assert used == [b"%d.%09d0" % divmod(OLD_NS, 10**9)] * 20


def test_each_action_uses_the_old_access_time_of_a_directory(tmp_path: Path) -> None:
    """Reading it, or another one of the batch, changes its access time."""
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "file").touch()
    for path in (*tmp_path.iterdir(), tmp_path):
        os.utime(path, ns=(OLD_NS, OLD_NS))
    words = ("-type", "d", "-amin", "+1000", "-exec", "echo", "{}", ";")
    assert len(found(os.fsencode(tmp_path), *words)) == 6


@pytest.mark.parametrize("most", [1024, 128, 40])
def test_few_descriptors_are_enough(wide: bytes, most: int) -> None:
    words = ["tree", *shlex.split(FIELDS)]
    command = [sys.executable, "-c", LIMITED, str(most), "-j1", "--threads=16", *words]
    done = subprocess.run(command, cwd=wide, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split(b"\n")[:-1]) == by_find(*words, cwd=wide)


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_failures_are_named_and_everything_else_is_found(wide: bytes, launcher: Launcher) -> None:
    """One directory can be read and not searched, another one can't be read."""
    words = ["tree", *shlex.split(FIELDS)]
    drop = without_rights("dac_override", "dac_read_search")
    try:
        os.chmod(wide + b"/tree/d5", 0o444)
        os.chmod(wide + b"/tree/d6", 0o311)
        want = subprocess.run([*drop, "find", *words], cwd=wide, capture_output=True, check=False)
        run = Run(launcher, *words, cwd=wide, prefix=drop, program=FFIND)
        with run:
            done = run.finish()
    finally:
        os.chmod(wide + b"/tree/d5", 0o755)
        os.chmod(wide + b"/tree/d6", 0o755)
    assert done.code == want.returncode == 1
    assert sorted(done.out.split(b"\n")) == sorted(want.stdout.split(b"\n"))
    assert done.said.count("': Permission denied") == want.stderr.count(b": Permission denied") == 6
