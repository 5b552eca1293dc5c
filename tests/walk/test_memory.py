"""The memory of a rank is below 100 MiB, and equal for a million and three million entries.

The tests run with ``PCIRCLE_SOAK=1``, for one flat directory, one with a quarter as many names of
240 bytes, one of directories, and a tree of 200 files per directory; with each of the tools that
walk, and their sorting. ``-s`` prints the figures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import SOAK
from tests.tools.fcp.running import TWO, Run

pytestmark = pytest.mark.skipif(
    not SOAK or os.geteuid() != 0, reason="takes many minutes, and a mount: with PCIRCLE_SOAK=1"
)

MAX_MIB = 100
MORE_MIB = 16  # than with a third of the entries: the variation between two runs on a busy machine
_MILLION = int(os.environ.get("MEMORY_ENTRIES", "1000000"))
SIZES = (_MILLION, 3 * _MILLION)
SHAPES = ("flat", "long names", "directories", "tree")
COMMANDS = {
    "ffind": (["pcircle.tools.ffind"], ["{}", "-size", "-9", "-fprint", "/dev/null"]),
    "ffind --sort": (["pcircle.tools.ffind"], ["{}", "--sort"]),
    "ffind --top": (["pcircle.tools.ffind"], ["{}", "--top", "100", "--by", "mtime"]),
    "fls -R": (["pcircle.tools.fls"], ["-R", "{}"]),
    "fls -RU": (["pcircle.tools.fls"], ["-RUl", "{}"]),
    "fls -lR": (["pcircle.tools.fls"], ["-lR", "--sort=-size,name", "{}"]),
    "fchmod": (["pcircle.tools.fchmod"], ["-R", "u+x", "{}"]),
    "fchmod -c": (["pcircle.tools.fchmod"], ["-R", "-c", "g+w", "{}"]),
    "frm": (["pcircle.tools.frm"], ["-r", "{}"]),
}


def _fill(top: bytes, shape: str, size: int) -> None:
    os.mkdir(top)
    fd = os.open(top, os.O_RDONLY)
    name = b"a name of some length, %d"
    if shape == "flat":
        for number in range(size):
            os.mknod(name % number, dir_fd=fd)
    elif shape == "long names":
        os.mknod("one", dir_fd=fd)
        for number in range(size // 4):
            os.link("one", b"%0240d" % number, src_dir_fd=fd, dst_dir_fd=fd)
    elif shape == "directories":
        for number in range(size // 4):  # they take four times as long
            os.mkdir(name % number, dir_fd=fd)
    else:
        for number in range(size // 200):
            inner = b"%b/%d/%d" % (top, number % 100, number)
            os.makedirs(inner)
            inner_fd = os.open(inner, os.O_RDONLY)
            for file_number in range(199):
                os.mknod(name % file_number, dir_fd=inner_fd)
            os.close(inner_fd)
    os.close(fd)


@pytest.fixture(scope="module", params=SHAPES)
def tops(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[bytes]]]:
    """Return a shape and its trees by size, in memory, on a private mount."""
    shape = str(request.param)
    place = os.fsencode(tmp_path_factory.mktemp("memory"))
    options = ["-t", "tmpfs", "-o", "nr_inodes=0,size=12g", "tmpfs"]
    done = subprocess.run(["mount", *options, place], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"this system lets root mount no tmpfs: {done.stderr!r}")
    try:
        for size in SIZES:
            _fill(b"%b/%d" % (place, size), shape, size)
        yield shape, [b"%b/%d" % (place, size) for size in SIZES]
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def _peaks(words: tuple[list[str], list[str]], top: bytes) -> float:
    """Return the peak memory of a rank, in MiB."""
    program, arguments = words
    arguments_: list[str | bytes] = [top if word == "{}" else word for word in arguments]
    report_path = top + b".json"
    is_list = program == ["pcircle.tools.fls"]  # its JSON contains rows
    with Run(
        TWO,
        *(["-v", "--stats"] if is_list else ["-q", "--json", report_path]),
        "--progress=never",
        *arguments_,
        program=tuple(program),
    ) as started:
        ended = started.finish(3000)
    assert ended.code == 0, ended.said[-2000:]
    if is_list:
        peaks = [float(peak) for peak in re.findall(r" ([\d.]+) MiB$", ended.said, re.MULTILINE)]
    else:
        with open(report_path, "rb") as file:
            ranks = json.load(file)["ranks"]
        peaks = [round(rank["peak_rss_bytes"] / 2**20, 1) for rank in ranks]
    assert len(peaks) == TWO.size, ended.said[-2000:]
    return max(peaks)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_memory_does_not_grow_with_the_number(tops: tuple[str, list[bytes]], command: str) -> None:
    shape, trees = tops
    few, many = (_peaks(COMMANDS[command], top) for top in trees)
    print(f"{command}, {shape}: {few} and {many} MiB")
    assert max(few, many) < MAX_MIB
    assert many <= few + MORE_MIB
