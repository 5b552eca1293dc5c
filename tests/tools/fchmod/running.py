"""Run fchmod, fchown and fchgrp like a user does, and read the resulting attributes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.programs import required
from tests.tools.fcp import trees
from tests.tools.fcp.running import Finished, Launcher, Run, launchers
from tests.tools.frm.test_removal import ALL

PROGRAMS = {
    "fchmod": ("pcircle.tools.fchmod",),
    "fchown": ("pcircle", "fchown"),
    "fchgrp": ("pcircle", "fchgrp"),
}
every_launcher = pytest.mark.parametrize("launcher", launchers([1, 2, 4], [3]), ids=str)
_ENDS = ("files", "directories", "links", "special", "failed", "kept", "vanished", "linked")
_LISTS = ("system.posix_acl_access", "system.posix_acl_default")


class Seen(NamedTuple):
    """All attributes of an entry that these tools may change, and its time, which they may not."""

    kind: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    lists: tuple[bytes | None, ...]


def run_tool(
    tool: str,
    launcher: Launcher | None,
    *arguments: str | bytes,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: bytes | None = None,
    umask: int = 0o022,
) -> Finished:
    """Run a tool to its end."""
    run = Run(
        launcher,
        *arguments,
        cwd=cwd,
        prefix=prefix,
        environment=environment,
        program=PROGRAMS[tool],
        umask=umask,
    )
    with run:
        return run.finish()


def changed(
    tool: str,
    launcher: Launcher | None,
    *arguments: str | bytes,
    code: int = 0,
    prefix: Sequence[str] = (),
    umask: int = 0o022,
    cwd: bytes | None = None,
) -> dict[str, Any]:
    """Return the counts that a tool reports; it must end with `code`, and all entries add up."""
    options = ("-q", "--json", "-", *arguments)
    finished = run_tool(tool, launcher, *options, prefix=prefix, umask=umask, cwd=cwd)
    assert finished.code == code, finished.said
    loaded = json.loads(finished.out)
    counts: dict[str, Any] = loaded["counts"]
    assert counts["found"] == sum(counts[end] for end in (*_ENDS, "denied")), counts
    return counts | {"failures": loaded["failures"]}


def seen(path: bytes, name: bytes = b"", dir_fd: int | None = None) -> Seen:
    """Return the attributes of an entry."""
    status = os.stat(name or path, dir_fd=dir_fd, follow_symlinks=False)
    lists: list[bytes | None] = []
    for list_name in _LISTS:
        value = None
        if not stat.S_ISLNK(status.st_mode):
            whole = path if dir_fd is None else b"/proc/self/fd/%d/%b" % (dir_fd, name)
            try:
                value = os.getxattr(whole, list_name, follow_symlinks=False)
            except OSError:
                value = None
        lists.append(value)
    mode = stat.S_IMODE(status.st_mode)
    numbers = (stat.S_IFMT(status.st_mode), mode, status.st_uid, status.st_gid)
    return Seen(*numbers, status.st_mtime_ns, tuple(lists))


def snapshot(top: bytes) -> dict[bytes, Seen]:
    """Return the attributes of a directory and all entries below it, by relative path."""
    found = {b".": seen(top)}
    for directory, directories, files, fd in os.fwalk(top):
        for name in (*directories, *files):
            path = os.path.relpath(os.path.join(directory, name), top)
            found[path] = seen(b"", name, fd)
    return found


def differences(ours: bytes, theirs: bytes) -> list[str]:
    """Describe differences between two trees, apart from times."""
    left, right = (
        {path: entry._replace(mtime_ns=0) for path, entry in snapshot(top).items()}
        for top in (ours, theirs)
    )
    return [
        f"{path!r}: {left.get(path)} and {right.get(path)}"
        for path in sorted(left | right)
        if left.get(path) != right.get(path)
    ]


def build(top: bytes) -> bytes:
    """Build an odd tree: names of every byte, modes, links, hard links, devices, ACLs, levels."""
    os.mkdir(top)
    for add in ALL.values():
        add(top)
    trees.build_deep_tree(top + b"/deep", 300)
    add_lists(top)
    os.symlink(b"nowhere", top + b"/dangling")
    return top


def add_lists(top: bytes) -> None:
    """Add files and directories with access control lists, some with default lists."""
    os.mkdir(top + b"/lists")
    for number, spec in enumerate(
        ("u:1001:rwx", "g:2002:r,u:1001:-", "u:1001:rw,m::r", "g:2002:rwx,m::-", "u:70000:x")
    ):
        file, directory = (top + b"/lists/%b%d" % (kind, number) for kind in (b"f", b"d"))
        trees.write_file(file, b"x", 0o640)
        os.mkdir(directory, 0o750)
        subprocess.run([required("setfacl"), "-m", spec, file, directory], check=True)
        if number % 2:
            subprocess.run([required("setfacl"), "-d", "-m", spec, directory], check=True)


def pair(place: bytes, make: Callable[[bytes], object] = build) -> tuple[bytes, bytes]:
    """Build the same tree twice: for our tool, and for the reference."""
    make(place + b"/ours")
    subprocess.run(["cp", "-a", place + b"/ours", place + b"/theirs"], check=True)
    return place + b"/ours", place + b"/theirs"
