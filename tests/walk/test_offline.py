"""`--skip-offline` in all tools that have filters.

Reading an offline file would recall it, for example from tape. On FUSE, which may have an archive
behind it, a file without blocks counts as offline; the layout of Lustre is simulated.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.fs import data
from pcircle.fs.attributes.lustre import ATTRIBUTE, RAID0, RELEASED, Stripes, compose
from pcircle.fs.data import OfflineDetector
from tests.fusefs.mounting import Mounted

OFFLINE = b"an archived file"
SIZE = 1 << 20
TOOLS: dict[str, list[str]] = {
    "frm": ["-r", "TREE"],
    "fls": ["-R", "TREE"],
    "fchmod": ["-R", "0600", "TREE"],
    "fdiff": ["TREE", "COPY"],
    "fcp": ["-T", "TREE", "COPY"],
    "fmirror": ["--delete", "TREE", "COPY"],
    "fsum": ["TREE"],
    "fprof": ["TREE"],
    "ffind": ["-v", "TREE"],
}
every_tool = pytest.mark.parametrize("tool", TOOLS)


def _run(tool: str, tree: bytes, copy: bytes, *options: str) -> tuple[int, bytes, bytes]:
    words = {"TREE": tree, "COPY": copy}
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", "-j2", *options]
    named = [words.get(word, word) for word in TOOLS[tool]]
    done = subprocess.run([*command, *named], capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def tree(fuse: Callable[..., Mounted]) -> tuple[bytes, bytes]:
    """Create a tree with online files and one offline file; return it and its backing directory."""
    mounted = fuse()
    for top in (b"tree/inner", b"copies"):
        os.makedirs(os.path.join(mounted.backing, top))
    inner = os.path.join(mounted.backing, b"tree", b"inner")
    for name, content in ((b"file", b"x" * SIZE), (b"small", b"x"), (b"empty", b"")):
        Path(os.fsdecode(inner), os.fsdecode(name)).write_bytes(content)
    with open(os.path.join(inner, OFFLINE), "wb") as file:
        file.truncate(SIZE)
    with open(os.path.join(inner, b"a short hole"), "wb") as file:
        file.truncate(4096)
    return os.path.join(mounted.path, b"tree"), inner


@every_tool
def test_files_whose_data_is_elsewhere_are_left_out(
    tree: tuple[bytes, bytes], tmp_path: Path, tool: str
) -> None:
    top, inner = tree
    copy = os.fsencode(tmp_path / "copy")
    if tool == "fdiff":
        subprocess.run(["cp", "-a", top, copy], check=True)
        os.unlink(os.path.join(copy, b"inner", OFFLINE))
        subprocess.run(["touch", "-r", inner, os.path.join(copy, b"inner")], check=True)
    if tool == "fmirror":
        os.makedirs(os.path.join(copy, b"inner"))
        Path(os.fsdecode(os.path.join(copy, b"inner", OFFLINE))).write_bytes(b"an old copy")
    before = os.stat(os.path.join(inner, OFFLINE))
    code, out, err = _run(tool, top, copy, "--skip-offline", "--progress=never")
    assert code == 0, err
    assert b"1 offline file left out" in err
    if tool in ("fcp", "fmirror"):
        names = {b"file", b"small", b"empty", b"a short hole"}
        assert set(os.listdir(os.path.join(copy, b"inner"))) - {OFFLINE} == names
        assert os.path.exists(os.path.join(copy, b"inner", OFFLINE)) == (tool == "fmirror")
    after = os.stat(os.path.join(inner, OFFLINE))
    assert (after.st_mode, after.st_atime_ns) == (before.st_mode, before.st_atime_ns)
    if tool in ("fls", "ffind"):
        assert b"small" in out
        assert OFFLINE not in out
    if tool == "frm":
        assert os.listdir(inner) == [OFFLINE]
    if tool == "fchmod":
        assert stat.S_IMODE(os.stat(os.path.join(inner, b"file")).st_mode) == 0o600


READING = {
    "fcp": ["fcp", "-T", "TREE", "COPY"],
    "fcp of large ones": ["fcp", "--chunksize", "4M", "-s", "-T", "TREE", "COPY"],
    "fmirror": ["fmirror", "TREE", "COPY"],
    "fsum": ["fsum", "TREE"],
    "fsum -o": ["fsum", "-o", "COPY", "TREE"],
    "fsum of files": ["fsum", "--format", "coreutils", "TREE"],
    "fprof of pieces": ["fprof", "--compress=1000", "TREE"],
}


@pytest.mark.parametrize("words", READING.values(), ids=READING)
@pytest.mark.parametrize("size", [100_000, SIZE, 9 << 20])
def test_a_recalled_file_is_named_before(
    tree: tuple[bytes, bytes], tmp_path: Path, words: list[str], size: int
) -> None:
    top, inner = tree
    os.truncate(os.path.join(inner, OFFLINE), size)
    for number in range(2):
        with open(os.path.join(inner, b"another %d" % number), "wb") as file:
            file.truncate(size)
    tool, *more = words
    paths = {"TREE": top, "COPY": os.fsencode(tmp_path / "copy")}
    report_path = tmp_path / "told"
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", "-j2", "--progress=never"]
    given = [paths.get(word, word) for word in more]
    done = subprocess.run(
        [*command, "--json", report_path, *given], capture_output=True, check=True
    )
    assert done.stderr.count(b"is offline and will be recalled from its archive") == 1
    (line,) = [warning for warning in done.stderr.split(b"\n") if b"is offline" in warning]
    assert b"warning: '" + top + b"/inner/" in line
    assert b"--skip-offline" in line
    assert done.stderr.index(line) < done.stderr.index(b"3 offline files read")
    if tool != "fprof":
        document = json.loads(report_path.read_bytes())
        assert (document["recalled"], document["offline"]) == (3, 0)


@pytest.mark.parametrize("words", [("fdiff", "-c"), ("fsum", "--check")], ids=" ".join)
@pytest.mark.parametrize("size", [100_000, SIZE, 33 << 20])
def test_offline_files_are_not_compared(
    tree: tuple[bytes, bytes], tmp_path: Path, words: tuple[str, str], size: int
) -> None:
    """One of them is named with its side, and all are counted."""
    top, inner = tree
    os.truncate(os.path.join(inner, OFFLINE), size)
    copy = os.fsencode(tmp_path / "copy")
    subprocess.run(["cp", "-a", "--sparse=never", top, copy], check=True)
    path = os.path.join(top, b"inner", OFFLINE)
    tool, option = words
    given: list[str | bytes] = [option, top, copy]
    if tool == "fsum":
        listed = tmp_path / "list"
        done = subprocess.run(["sha256sum", path], capture_output=True, check=True)
        listed.write_bytes(done.stdout)
        given = [option, os.fsencode(listed)]
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", "-j2", "--progress=never"]
    done = subprocess.run([*command, *given], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [warning for warning in done.stderr.split(b"\n") if b"is offline" in warning]
    assert b"warning: '" + path + b"' is offline" in line
    assert b"1 offline file read" in done.stderr


@pytest.mark.parametrize("words", [READING[name] for name in READING if name != "fsum -o"])
def test_skipped_files_cause_no_message(
    tree: tuple[bytes, bytes], tmp_path: Path, words: list[str]
) -> None:
    tool, *more = words
    paths = {"TREE": tree[0], "COPY": os.fsencode(tmp_path / "copy")}
    report_path = tmp_path / "told"
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", "-j2", "--progress=never"]
    command += ["--json", os.fspath(report_path)]
    given = [paths.get(word, word) for word in more]
    done = subprocess.run([*command, "--skip-offline", *given], capture_output=True, check=True)
    assert b"is offline" not in done.stderr
    if tool != "fprof":
        document = json.loads(report_path.read_bytes())
        assert (document["recalled"], document["offline"]) == (0, 1)


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_the_warning_is_no_output(
    tree: tuple[bytes, bytes], tmp_path: Path, words: list[str]
) -> None:
    """`-q` suppresses it, and a hole on a local file system causes none."""
    (tmp_path / "here").mkdir()
    with open(tmp_path / "here/hole", "wb") as file:
        file.truncate(SIZE)
    for option, top in (("-q", tree[0]), ("-v", os.fsencode(tmp_path / "here"))):
        tool, *more = words
        paths = {"TREE": top, "COPY": os.fsencode(tmp_path / f"copy{option}")}
        command = [sys.executable, "-m", f"pcircle.tools.{tool}", "-j1", option, "--progress=never"]
        given = [paths.get(word, word) for word in more]
        done = subprocess.run([*command, *given], capture_output=True, check=True)
        assert b"offline" not in done.stderr


def test_stat_never_excludes_skip_offline(tmp_path: Path) -> None:
    code, _, err = _run("ffind", os.fsencode(tmp_path), b"", "--stat=never", "--skip-offline")
    assert code == 2
    assert b"--skip-offline cannot be combined with --stat=never" in err


def test_a_hole_is_not_offline_without_an_archive(tmp_path: Path) -> None:
    """This holds on the usual local file systems."""
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(SIZE)
    said = subprocess.run(
        [sys.executable, "-m", "pcircle.tools.fls", "-j1", "-R", "--skip-offline", tmp_path],
        capture_output=True,
        check=True,
    )
    assert b"hole" in said.stdout
    assert b"offline" not in said.stderr


@pytest.mark.parametrize(
    ("pattern", "blocks", "offline"),
    [(RAID0 | RELEASED, 0, True), (RAID0 | RELEASED, 1, True), (RAID0, 0, False), (None, 0, False)],
)
def test_lustre_reports_offline_files_in_the_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pattern: int | None, blocks: int, offline: bool
) -> None:
    """A released file has one block, and a file that is only a hole has none."""
    (tmp_path / "file").write_bytes(b"")
    asked = []

    def read(path: bytes, name: str, *, follow_symlinks: bool) -> bytes:
        asked.append((os.path.basename(path), name, follow_symlinks))
        if pattern is None:
            raise OSError(61, "No data available")
        return compose(Stripes(pattern=pattern, stripe_bytes=1 << 20, count=1))

    monkeypatch.setattr(data, "type_of_device", lambda device: b"lustre")
    monkeypatch.setattr(os, "getxattr", read)
    status = os.stat_result(
        (stat.S_IFREG | 0o600, 1, 1, 1, 0, 0, 100, 0, 0, 0), {"st_blocks": blocks}
    )
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert OfflineDetector().is_offline(b"file", fd, status) == offline
    finally:
        os.close(fd)
    assert asked == [(b"file", ATTRIBUTE, False)]
