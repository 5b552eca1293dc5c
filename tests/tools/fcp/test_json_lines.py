"""`--json-lines`: one correct line for each action."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ...fusefs.fixture import Mount
from ...fusefs.rules import Rule
from .running import FOUR, TWO, Launcher, document, launchers, run_fcp, some_launchers
from .trees import MIB, build_flat_tree, content, make_directory, write_file

KEYS = {"v", "tool", "action", "root", "kind", "why", "bytes", "state", "errno", "rank", "t"}
MANY = ("--chunksize", "4M")


def _path(line: dict[str, Any]) -> bytes:
    assert ("path" in line) + ("path_b64" in line) == 1
    return line["path"].encode() if "path" in line else b64decode(line["path_b64"])


def _lines(path: bytes, size: int = 64) -> list[dict[str, Any]]:
    """Return the lines, each parsed separately."""
    with open(path, "rb") as stream:
        text = stream.read()
    assert not text or text.endswith(b"\n")
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert line.keys() - {"path", "path_b64"} == KEYS
        assert (line["v"], line["tool"], line["why"]) == (1, "fcp", [])
        assert 0 <= line["rank"] < size
        assert line["t"] >= 0
    return lines


def _kinds(root: bytes) -> dict[bytes, str]:
    """Return find's type of each entry."""
    command: list[str | bytes] = ["find", root, "-printf", r"%P\0%y\0"]
    words = subprocess.run(command, check=True, capture_output=True).stdout.split(b"\0")
    return {
        path or b".": kind.decode() for path, kind in zip(words[::2], words[1::2], strict=False)
    }


def _build(root: bytes) -> bytes:
    """Build names of every kind in some directories, hard links between these, large files."""
    for number in range(4):
        folder = make_directory(root, b"%d/deep\n\xff" % number)
        for size in range(40):
            write_file(folder + b"/%d" % size, b"x" * size)
        os.symlink(b"0", folder + b"/link")
        os.mkfifo(folder + b"/fifo")
        write_file(folder + b"/large", content(number, 5 * MIB))
        os.link(folder + b"/0", root + b"/%d/more" % number)
        os.link(root + b"/0/more" if number else folder + b"/large", folder + b"/other")
    return root


@pytest.mark.parametrize("launcher", launchers([1, 4], [3]))
@pytest.mark.parametrize("options", [(), ("--verify", "-s"), ("--threads", "4")], ids=str)
def test_each_entry_has_its_line(
    launcher: Launcher, options: tuple[str, ...], place: bytes
) -> None:
    source, target, log = _build(place + b"/source"), place + b"/copy", place + b"/lines"
    result = place + b"/result"
    done = run_fcp(
        launcher, "-a", *MANY, *options, "--json-lines", log, "--json", result, source, target
    )
    assert done.code == 0, done.said
    lines = _lines(log, launcher.size)
    assert {line["state"] for line in lines} == {"done"}
    assert Counter(map(_path, lines)).most_common(1)[0][1] == 1
    assert {_path(line): line["kind"] for line in lines} == _kinds(source)
    counts = document(result)
    copied = [line for line in lines if line["action"] == "copy"]
    assert sum(line["bytes"] for line in copied) == counts["bytes"]
    links = {_path(line) for line in lines if line["action"] == "link"}
    inodes = Counter(os.lstat(os.path.join(source, p)).st_ino for p in _kinds(source))
    assert len(links) == sum(number - 1 for number in inodes.values())
    assert len(lines) == counts["entries"]


def test_a_dry_run_reports_planned_actions(place: bytes) -> None:
    source, target, log = _build(place + b"/source"), place + b"/copy", place + b"/lines"
    done = run_fcp(FOUR, "-a", "--dry-run", "--json-lines", log, source, target)
    assert done.code == 0, done.said
    lines = _lines(log)
    assert {(line["state"], line["action"]) for line in lines} == {("planned", "copy")}
    assert {_path(line): line["kind"] for line in lines} == _kinds(source)
    assert not os.path.exists(target)


@some_launchers
@pytest.mark.parametrize("dry", [False, True])
def test_kept_and_failed_entries(launcher: Launcher, dry: bool, place: bytes) -> None:
    """Kept files, special files without -a, and a directory where a file should go."""
    source, target, log = _build(place + b"/source"), place + b"/copy", place + b"/lines"
    assert run_fcp(FOUR, "-a", source, target).code == 0
    write_file(source + b"/new", b"new")
    blocked = target + b"/0/more"
    os.unlink(blocked)
    os.mkdir(blocked)
    options = ("-n", *MANY, "--json-lines", log, *(("--dry-run",) if dry else ()))
    done = run_fcp(launcher, *options, "-T", source, target)
    assert done.code == 1, done.said
    actions = {_path(line): line for line in _lines(log, launcher.size)}
    kinds = _kinds(source)
    assert actions.keys() == kinds.keys()
    finished = "planned" if dry else "done"
    for path, kind in kinds.items():
        line = actions[path]
        expected = ("skip", "planned" if dry else "skipped")
        if kind == "d" or path == b"new":
            expected = ("copy", finished)
        elif path == b"0/more":
            expected = ("copy", "failed")
            assert line["errno"] in (errno.EEXIST, errno.EISDIR)
        assert (line["action"], line["state"]) == expected, (path, line)
    assert sum(line["state"] == "failed" for line in actions.values()) == 1


def test_an_unreadable_file_has_one_line(place: bytes, fuse: Mount) -> None:
    mounted = fuse()
    source = make_directory(mounted.path, b"source")
    for number in range(5):
        write_file(source + b"/small%d" % number, b"small")
        write_file(source + b"/large%d" % number, content(number, 5 * MIB))
    mounted.rules(Rule(ops=("read",), path="source/*3", errno="EIO"))
    log = place + b"/lines"
    done = run_fcp(TWO, *MANY, "--json-lines", log, source, place + b"/copy")
    assert done.code == 1, done.said
    states = {_path(line): (line["state"], line["errno"]) for line in _lines(log)}
    assert states.pop(b"small3") == states.pop(b"large3") == ("failed", errno.EIO)
    assert set(states.values()) == {("done", None)}
    assert len(states) == 9


def test_after_a_full_disk_reported_entries_exist(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    full, log = mount_tmpfs("size=8m"), place + b"/lines"
    source = build_flat_tree(place + b"/source", 4, 100, 64 * 1024)
    done = run_fcp(TWO, "--json-lines", log, source, full + b"/copy")
    assert done.code == 4, done.said
    lines = [line for line in _lines(log) if line["state"] == "done"]
    assert lines
    for line in lines:
        path = os.path.join(full, b"copy", _path(line))
        assert os.stat(path).st_size == line["bytes"] or os.path.isdir(path)


def test_an_unwritable_file_is_reported(place: bytes) -> None:
    source = build_flat_tree(place + b"/source", 1, 3, 10)
    refused = run_fcp(TWO, "--json-lines", place + b"/no/such", source, place + b"/copy")
    assert refused.code == 2
    assert "--json-lines: cannot write" in refused.said
    assert not os.path.exists(place + b"/copy")
    done = run_fcp(TWO, "--json-lines", "/dev/full", source, place + b"/copy")
    assert done.code == 1, done.said
    assert "fcp: cannot write the actions: No space left on device" in done.said
