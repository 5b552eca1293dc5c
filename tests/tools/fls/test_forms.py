"""Features that ls lacks or has only on a terminal: columns, escapes, sums, keys, lists."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from decimal import Decimal
from functools import cmp_to_key
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcircle.tools.fls.fields import in_columns
from pcircle.tools.fls.plan import Keys, turned
from tests.conftest import SOAK
from tests.disk_usage import sizes_du_leaves_out
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp import trees
from tests.tools.fcp.running import ONE, TWO, Launcher, Run

from .running import FLS, every_launcher, listed, ls, rows, run_fls
from .test_listing import odd

__all__ = ["odd"]

MAX_RANK_BYTES = 100 << 20
NAME = st.binary(min_size=1, max_size=4).map(lambda name: name.translate(None, b"/\0") or b"x")


def on_a_terminal(width: int, *command: str | bytes, cwd: bytes) -> bytes:
    """Return a command's output on a terminal with a given number of columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    started = subprocess.Popen(
        command, stdout=theirs, stderr=2, cwd=cwd, env={**environment, "LC_ALL": "C.UTF-8"}
    )
    os.close(theirs)
    text = b""
    try:
        while data := os.read(ours, 1 << 16):
            text += data
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert started.wait() == 0
    return text.replace(b"\r\n", b"\n")


def test_columns_are_those_of_ls(place: bytes) -> None:
    dice = random.Random(5)
    for number in range(90):
        trees.write_file(b"%b/%d%b" % (place, number, b"x" * dice.randrange(1, 30)), b"")
    os.mkdir(place + b"/d")
    fls = [sys.executable, "-m", "pcircle.tools.fls", "-j1"]
    for width, options in ((80, "-F"), (33, "-is"), (200, "-R"), (7, "-C")):
        ours = [word for word in shlex.split(options) if word != "-C"]
        peer = ["ls", "-C", "-T0", *shlex.split(options), f"-w{width}", "--quoting-style=literal"]
        want = on_a_terminal(width, *peer, cwd=place)
        assert on_a_terminal(width, *fls, *ours, cwd=place) == want, options


def test_a_terminal_gets_no_control_characters(odd: bytes) -> None:
    fls = [sys.executable, "-m", "pcircle.tools.fls", "-j1"]
    for options in (["-R"], ["-lR"]):
        text = on_a_terminal(80, *fls, *options, cwd=odd)
        assert all(character.isprintable() or character == "\n" for character in text.decode())
        assert rb"\x07" in text
    assert len(on_a_terminal(80, *fls, "-l", cwd=odd).split(b"\n")[1].split()[5]) == 3  # Nov


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 120))
def test_columns_fit(widths: list[int], terminal: int) -> None:
    lines = [b"x" * width for width in widths]
    text = in_columns(lines, terminal) if lines else b""
    assert sorted(text.split()) == sorted(lines)
    widest = max((len(line) for line in text.split(b"\n")), default=0)
    assert widest < terminal or text.count(b"\n") == len(lines)


@settings(max_examples=300)
@given(st.lists(st.tuples(NAME, st.integers(-9, 2**63)), max_size=12, unique_by=lambda e: e[0]),
       st.booleans(), st.booleans())  # fmt: skip
def test_sort_keys(entries: list[tuple[bytes, int]], down: bool, backwards: bool) -> None:
    """Size and then name, in both directions; keys without separators are refused."""
    keys = Keys((("size", down), ("name", backwards)), directories_first=False)

    class Status:
        def __init__(self, size: int) -> None:
            self.st_size = size

    def compare(one: tuple[bytes, int], other: tuple[bytes, int]) -> int:
        by_size = (one[1] > other[1]) - (one[1] < other[1])
        by_name = (one[0] > other[0]) - (one[0] < other[0])
        return (-by_size if down else by_size) or (-by_name if backwards else by_name)

    made: dict[bytes, tuple[bytes, int]] = {}
    for name, size in entries:
        status: Any = Status(size)
        made[keys.of_directory(name, status)] = (name, size)
    assert [made[key] for key in sorted(made)] == sorted(entries, key=cmp_to_key(compare))
    assert not any(byte in key for key in made for byte in b"/\0")


@given(st.lists(NAME, unique=True))
def test_inverted_keys_have_the_opposite_order(names: list[bytes]) -> None:
    assert sorted(names, key=turned) == sorted(names, reverse=True)


@pytest.mark.parametrize("keys", ["-size,name", "kind,-mtime", "owner,group,-name", "-ctime"])
def test_rows_are_sorted_by_several_keys(odd: bytes, keys: str) -> None:
    found = rows(TWO, "-A", f"--sort={keys}", odd + b"/hard", odd + b"/times")

    def values(row: dict[str, Any]) -> list[Any]:
        row = row | {"name": os.path.basename(row["path"])}
        return [
            row[f"{key}_ns" if key[1:] == "time" else key]
            for key in keys.replace("-", "").split(",")
        ]

    assert len(found) > 40
    for top in ("/hard/", "/times/"):
        inner = [values(row) for row in found if top in row["path"]]
        wanted = list(inner)
        for number, key in reversed(list(enumerate(keys.split(",")))):
            wanted.sort(key=itemgetter(number), reverse=key.startswith("-"))
        assert inner == wanted


def _is_in(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder + b"/")


@every_launcher
def test_sums_are_those_of_du(odd: bytes, launcher: Launcher) -> None:
    lines = listed(launcher, "-0", "--total", "-R", odd, odd + b"/special/fifo").split(b"\0")[:-1]
    found = {}
    for line in lines:
        entries, size, kib, _, path = line.split(b"\t", 4)
        found[path] = int(entries), int(size), int(kib)
    *_, top = [line for line in lines if line.endswith(b"\t" + odd)]
    count = len(subprocess.run(["find", odd, "-printf", "x"], stdout=-1, check=True).stdout)
    assert int(top.split(b"\t")[0]) == count
    words: list[str | bytes] = ["find", odd, "-printf", "%T@ %TY-%Tm-%Td %TT\n"]
    times = subprocess.run(words, stdout=-1, check=True).stdout.splitlines()
    newest = max(times, key=lambda line: Decimal(line.split()[0].decode())).split(b" ", 1)[1]
    assert top.split(b"\t")[3].startswith(newest[: len("2026-11-30 12:00:00.123456789")])
    left_out = sizes_du_leaves_out(odd)
    for option, column in (("-b", 1), ("-k", 2)):
        du = subprocess.run(["du", "-l0", option, odd], stdout=-1, check=True).stdout
        for line in du.split(b"\0")[:-1]:
            size, _, path = line.partition(b"\t")
            expected = int(size)
            if option == "-b":
                expected += sum(own for left_path, own in left_out if _is_in(left_path, path))
            assert found[path][column] == expected, path
    (alone,) = listed(launcher, "--total", odd).splitlines()
    assert alone == top


def test_filters_and_lists_select(odd: bytes, place: bytes) -> None:
    names = [os.path.basename(row["path"]) for row in rows(TWO, "--kind=l", odd + b"/times")]
    assert sorted(names) == [f"{number} link" for number in range(6)]
    lines = listed(TWO, "-1R", "--exclude=d*", "--include=*", odd + b"/hard").splitlines()
    assert sorted(lines) == sorted([odd + b"/hard:", b"first", *(b"%d" % n for n in range(20))])
    listing = place + b"/list"
    with open(listing, "wb") as file:
        file.write(b"hard/first\0times\0special/fifo\0.hidden directory\0")
    text = listed(TWO, "-0", "--files-from", listing, odd)
    assert text == b"".join([
        odd, b":\n.hidden directory\0hard\0special\0times\0\n", odd, b"/hard:\nfirst\0\n",
        odd, b"/special:\nfifo\0",
    ])  # fmt: skip
    whole = listed(TWO, "-0R", "--files-from", listing, odd)
    assert b"/times:\n0\0000 link\0" in whole
    assert b"/.hidden directory:\ninner\0" in whole


@every_launcher
def test_unsorted_output_is_streamed(odd: bytes, launcher: Launcher) -> None:
    """Directories are in any order, each complete under its heading."""
    text = listed(launcher, "-UR", odd + b"/hard", odd + b"/times")
    want = ls("-R", odd + b"/hard", odd + b"/times", cwd=b"/")
    ours, theirs = (listing.strip().split(b"\n\n") for listing in (text, want))
    assert sorted(sorted(part.split(b"\n")) for part in ours) == sorted(
        sorted(part.split(b"\n")) for part in theirs
    )
    assert len(ours) == 22


def test_failures_are_named_and_others_listed(fuse: Mount) -> None:
    mounted = fuse()
    for name in ("a", "b", "d/x"):
        path = os.path.join(mounted.backing, os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        trees.write_file(path, b"")
    mounted.rules(Rule(("getattr", "lookup"), "b", errno="EIO"))
    finished = run_fls(TWO, "-lR", mounted.path)
    assert finished.code == 1
    assert "cannot look up '" in finished.said
    lines = finished.out.splitlines()
    assert any(line.startswith(b"-?????????") and line.endswith(b" b") for line in lines)
    assert any(line.endswith(b" x") for line in lines)


def test_an_interrupted_listing_prints_nothing(fuse: Mount) -> None:
    """It prints the command that repeats it."""
    mounted = fuse()
    for number in range(30):
        os.makedirs(os.path.join(mounted.backing, b"%d/%d" % (number, number)))
    mounted.rules(Rule(("getattr", "lookup"), "1*", delay_s=3600))
    with Run(TWO, "-lR", mounted.path, program=FLS) as run:
        while not mounted.state().delayed:
            time.sleep(0.01)
        run.signal(signal.SIGINT)
        # The remaining work takes longer than a busy machine needs to deliver the signal.
        mounted.rules(Rule(("getattr", "lookup"), delay_s=0.5))
        mounted.release()
        ended = run.finish()
    assert (ended.code, ended.out) == (130, b"")
    assert "fls: to try again, run: fls -j 2 -lR " in ended.said


def make_flat(top: bytes, numbers: range) -> None:
    os.makedirs(top, exist_ok=True)
    fd = os.open(top, os.O_RDONLY)
    for number in numbers:
        os.mknod(b"a name of some length, %d" % number, dir_fd=fd)
    os.close(fd)


def peaks_mib(said: str, ranks: int) -> list[float]:
    peaks = re.findall(r" ([\d.]+) MiB$", said, re.MULTILINE)
    assert len(peaks) == ranks
    return list(map(float, peaks))


@pytest.mark.slow
def test_memory_does_not_grow_with_a_directory(vast_place: bytes) -> None:
    """A flat directory is sorted: memory is the same for three times as many names."""
    few = 1_000_000 if SOAK else 500_000
    top = vast_place + b"/flat"
    most: dict[str, list[float]] = {}
    for begin, end in ((0, few), (few, 3 * few)):
        make_flat(top, range(begin, end))
        for launcher, words in ((ONE, ("-R",)), (TWO, ("-R",)), (TWO, ("-l",))):
            finished = run_fls(launcher, *words, "--stats", "--stats", top)
            assert finished.code == 0, finished.said
            assert finished.out.count(b"\n") == end + 1
            peaks = peaks_mib(finished.said, launcher.size)
            assert max(peaks) < MAX_RANK_BYTES >> 20
            most.setdefault(f"{words} {launcher}", []).append(max(peaks))
            del finished
    for what, (with_few, with_many) in most.items():
        assert with_many < 1.25 * with_few, what


def test_links_for_terminals_without_the_long_form(odd: bytes) -> None:
    top = odd + b"/hard"
    count = len(os.listdir(top))
    for options in ([], ["-1"], ["-U"], ["-l"]):
        text = listed(None, "--hyperlink=always", *options, top)
        assert text.count(b"\x1b]8;;file://") == count > 0, options


def test_entries_of_the_root_have_one_leading_slash() -> None:
    only = ["--include", "/etc/", "--exclude", "/*", "--exclude", "/etc/*"]
    assert listed(None, "-R", *only, "/") == b"/:\netc\n\n/etc:\n"
    assert [row["path"] for row in rows(None, "-R", *only, "/")][-1:] == ["/etc"]
