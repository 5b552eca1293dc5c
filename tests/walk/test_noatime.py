"""With `--open-noatime` files keep their access times where the system permits it.

The file system is mounted so that every read changes the access time. Without the right to act on
files of other users, only the owner of a file may read it without changing that time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.tools.fcp.running import TWO, Run, without_rights

TOOLS = {
    "fcp": ["A", "COPY"],
    "fmirror": ["-c", "A", "B"],
    "fdiff": ["-c", "A", "B"],
    "fsum": ["A"],
    "fsum lists": ["--format", "coreutils", "A"],
}
every_tool = pytest.mark.parametrize("tool", TOOLS)
OLD_NS = 10**18
SIZES = {b"empty": 0, b"small": 100, b"large": 40 << 20}


@pytest.fixture(name="trees")
def _trees(mount_tmpfs: Callable[[str], bytes]) -> bytes:
    """Create two equal trees of small and large files, of which one belongs to another user."""
    top = mount_tmpfs("strictatime,mode=755")
    os.mkdir(top + b"/A")
    for name, size in SIZES.items():
        with open(top + b"/A/" + name, "wb") as file:
            file.write(os.urandom(size))
    shutil.copyfile(top + b"/A/small", top + b"/A/other")
    subprocess.run(["cp", "-r", top + b"/A", top + b"/B"], check=True)
    for tree in (b"/A", b"/B"):
        os.chown(top + tree + b"/other", 4321, 4321)
    for tree in (b"/A/", b"/B/"):
        for name in os.listdir(top + tree):
            os.utime(top + tree + name, ns=(OLD_NS, OLD_NS))
    return top


def _run(tool: str, top: bytes, *options: str, prefix: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """Run a tool; return the names in A whose access times changed, and the messages."""
    words = [
        top + b"/" + word.encode() if word.isupper() else word for word in [*options, *TOOLS[tool]]
    ]
    program = (f"pcircle.tools.{tool.partition(' ')[0]}",)
    report = top + b"/report"
    with Run(TWO, "--json", report, *words, program=program, prefix=prefix) as started:
        ended = started.finish()
    assert ended.code in (0, 3), ended.said
    names = sorted(os.listdir(top + b"/A"))
    changed = [n for n in names if os.stat(top + b"/A/" + n).st_atime_ns != OLD_NS]
    with open(report, "rb") as file:
        document = json.load(file)
    refused = "--open-noatime" in options and b"other" in changed
    sides = 2 if tool in ("fdiff", "fmirror") else 1
    assert document.get("counts", document)["atime_not_kept"] == refused * sides
    return b" ".join(changed), ended.said


@every_tool
def test_access_times_are_kept(trees: bytes, tool: str) -> None:
    assert _run(tool, trees, "--open-noatime")[0] == b""
    assert b"small" in _run(tool, trees)[0]  # without the option they change


@every_tool
def test_files_of_others_are_counted_and_the_first_is_named(trees: bytes, tool: str) -> None:
    prefix = without_rights("fowner")
    changed, said = _run(tool, trees, "--open-noatime", prefix=prefix)
    assert changed == b"other"
    assert said.count("other' will change") == 1, said
    assert "of other users changed" in said
