"""fls prints the same as ls, byte for byte: odd trees, every option, each launcher."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights
from tests.tools.frm.test_removal import add_every_byte, add_hard_links

from .running import every_launcher, listed, ls, many, run_fls

__all__ = ["place"]

OPTIONS = [
    "-lR", "-alR", "-AlR --time-style=long-iso", "-1R", "-aR", "-SlR", "-tlR", "-rlR", "-trR",
    "-SrR", "-FR", "-lFR", "-iR", "-lisR", "-sR", "-nR", "-gR", "-oR", "-goR", "-lhR", "-shR",
    "-l", "-la", "-ld",
    "-R --group-directories-first", "-lRr --group-directories-first", "-lZ", "-RZ", "-0lR", "-0R",
    "-lR --time=ctime", "-R --time=ctime", "-ltR --time=ctime", "-lRn --time-style=locale",
    "-lR --time-style=+%s.%N", "-lR --time-style=iso", "-R --full-time", "-l --time-style=full-iso",
]  # fmt: skip
COLORED = ["-lR --color=always", "-RF --color=always", "-lRF --color=always", "-isR --color=always"]
SOME = ["-lR", "-taR", "-Ssr"]


def as_by_ls(options: str) -> list[str]:
    """Return the same options for ls."""
    return [word for word in shlex.split(options.replace("-0", "--zero -")) if word != "-"]


def _add_odd_times(top: bytes) -> None:
    os.mkdir(top + b"/times")
    for number, second in enumerate((-(2**31), -1, 0, 2**31, 2**32 + 5, 1_600_000_000)):
        path = trees.write_file(b"%b/times/%d" % (top, number), b"x" * 10**number)
        os.utime(path, ns=(0, second * 10**9 + 7))
        os.symlink(path, path + b" link")
    os.utime(top + b"/times", ns=(0, 10**18))


def _add_devices(top: bytes) -> None:
    os.mkdir(top + b"/special")
    os.mkfifo(top + b"/special/fifo", 0o4711)
    os.mknod(top + b"/special/socket", stat.S_IFSOCK | 0o600)
    if os.geteuid() == 0:
        for number, (major, minor) in enumerate(((1, 3), (188, 12345), (8, 0))):
            kind = stat.S_IFBLK if number % 2 else stat.S_IFCHR
            os.mknod(b"%b/special/%d" % (top, number), kind | 0o660, os.makedev(major, minor))
        os.chown(top + b"/special/fifo", 3_999_999_991, 77_777)


def build(top: bytes) -> bytes:
    """Build a tree of unusual entries that a listing does not change."""
    os.mkdir(top)
    for add in (
        trees.add_odd_names,
        trees.add_empty,
        trees.add_links,
        trees.add_special_bits,
        trees.add_owners,
        add_every_byte,
        add_hard_links,
        _add_devices,
        _add_odd_times,
    ):
        add(top)
    trees.write_file(top + b"/.hidden", b"x" * 100_000)
    os.makedirs(top + b"/.hidden directory/inner")
    os.symlink(b"special", top + b"/a directory")
    return top


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bytes]:
    top = os.fsencode(tmp_path_factory.mktemp("listing")) + b"/odd"
    yield build(top)
    subprocess.run(["rm", "-rf", os.path.dirname(top)], check=True)


@every_launcher
def test_odd_trees_are_listed_as_ls_does(odd: bytes, place: bytes, launcher: Launcher) -> None:
    if launcher.ranks:
        for options in SOME:
            assert listed(launcher, *shlex.split(options), odd) == ls(
                *as_by_ls(options), odd, cwd=place
            )
        return
    top = os.fsdecode(odd)
    lines = [[f"-j{launcher.jobs}", *shlex.split(options), top] for options in OPTIONS]
    for options, text in zip(OPTIONS, many(lines, place, odd), strict=True):
        assert text == ls(*as_by_ls(options), odd, cwd=odd), options


@pytest.mark.parametrize("colors", ["", "di=01;34:ln=target:or=31:*.py=35:ex=32:mh=44:fi=33"])
def test_colors_match_ls(odd: bytes, place: bytes, colors: str) -> None:
    """Exceptions are ls's initial sequence, and those at the end of lines."""
    environment = {"LS_COLORS": colors, "TERM": "xterm"}  # ls must support it
    found = many([["-j2", *shlex.split(line)] for line in COLORED], place, odd, environment)
    for options, text in zip(COLORED, found, strict=True):
        want = ls(*as_by_ls(options), cwd=odd, environment=environment)
        want = want.replace(b"\x1b[0m", b"", 1).replace(b"\x1b[K", b"")
        assert text == want, options


OPERANDS = [
    "",
    "special",
    "special/fifo .hidden",
    "times special hard links/../hard/first .hidden",
    "-d . special/ hard/first ..",
    "-lt times special hard/first",
    "-R special hard .",
    "'a directory'",
    "-l 'a directory'",
    "-F 'a directory'",
    "-l 'a directory/' special/0 special/1 hard/first",
    "-rS .hidden times hard/d1/name",
    "-U special",
]


def test_operands_are_listed_as_ls_does(odd: bytes, place: bytes) -> None:
    """Files precede directories, sorted, with headings if there are several."""
    lines = [["-j2", *shlex.split(options)] for options in OPERANDS]
    for operands, text in zip(OPERANDS, many(lines, place, odd), strict=True):
        if "-U" in operands:
            assert sorted(text.splitlines()) == sorted(ls("-1", "special", cwd=odd).splitlines())
        else:
            assert text == ls(*shlex.split(operands), cwd=odd), operands


WIDE = ["-l", "-lR", "-1", "-la", "-lSR", "-is", "-ltr", "-R --group-directories-first"]


def test_a_wide_directory_is_listed_as_ls_does(place: bytes) -> None:
    """It has too many names to process at once, and devices and owners widen columns at the end."""
    top = place + b"/wide"
    os.mkdir(top)
    for number in range(9000):
        os.mknod(b"%b/%d" % (top, number))
        os.utime(b"%b/%d" % (top, number), ns=(0, number * 7919 % 9001 * 10**9))
    for number in range(5):
        os.makedirs(b"%b/d%d/inner" % (top, number))
        trees.write_file(b"%b/d%d/file" % (top, number), b"x" * 7**number)
    if os.geteuid() == 0:
        os.mknod(top + b"/x", stat.S_IFCHR | 0o600, os.makedev(188, 12345))
        os.chown(top + b"/77", 3_999_999_991, 77_777)
    lines = [[f"-j{jobs}", *shlex.split(options)] for jobs in (1, 4) for options in WIDE]
    for line, text in zip(lines, many(lines, place, top), strict=True):
        assert text == ls(*as_by_ls(shlex.join(line[1:])), cwd=top), line


def test_failed_look_ups_are_shown_as_ls_does(odd: bytes, place: bytes) -> None:
    """One directory may be read and not searched, another one may not be read."""
    drop = without_rights("dac_override", "dac_read_search")
    top = place + b"/top"
    os.makedirs(top + b"/closed/inner")
    os.makedirs(top + b"/open")
    os.makedirs(top + b"/names/directory")
    trees.write_file(top + b"/names/file", b"")
    os.symlink(b"x", top + b"/names/link")
    os.chmod(top + b"/closed", 0o000)
    os.chmod(top + b"/names", 0o444)
    os.chmod(place, 0o755)
    environment = {**os.environ, "LC_ALL": "C"}
    want = subprocess.run([*drop, "ls", "-lR", top], env=environment, capture_output=True)
    found = run_fls(TWO, "-lR", top, prefix=drop)
    assert found.code == 1
    assert found.out == want.stdout
    assert found.said.count("cannot look up") == 3
    assert "closed': Permission denied" in found.said


def test_exit_codes(place: bytes) -> None:
    os.mkdir(place + b"/empty")
    assert listed(ONE, place + b"/empty") == b""
    assert listed(ONE, "-l", place + b"/empty") == b"total 0\n"
    missing = run_fls(ONE, place + b"/empty", place + b"/missing")
    assert (missing.code, missing.out) == (2, b"")
    assert "cannot list '" in missing.said
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pcircle.tools.fls", "-a", place], stdout=full, stderr=-1
        )
    assert done.returncode == 1
    assert b"cannot write standard output: No space left" in done.stderr


@pytest.mark.parametrize("options", ["-aA", "-Aa", "-A -a", "-a -A"])
def test_the_last_of_a_and_almost_all_wins(tmp_path: Path, options: str) -> None:
    (tmp_path / ".hidden").touch()
    words = [*options.split(), str(tmp_path)]
    assert listed(ONE, *words) == ls(*words, cwd=bytes(tmp_path))


@pytest.mark.parametrize("words", [["d", "d"], ["d", "e", "d"], ["-t", "d", "d"], ["f", "f", "d"]])
def test_a_path_that_is_given_twice_is_listed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in ("d", "e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inner").touch()
    (tmp_path / "f").touch()
    monkeypatch.chdir(tmp_path)
    assert listed(ONE, *words) == ls(*words, cwd=bytes(tmp_path))
