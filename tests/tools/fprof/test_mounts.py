"""Mount points, and the file system of hard-linked files that they determine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pcircle.runtime import Context
from pcircle.tools.fprof.plan import ProfilePlan, resolve
from pcircle.tools.fprof.profile.model import unpack
from pcircle.tools.fprof.task import ProfileTask
from pcircle.walk.globs import Rule
from tests.tools.fcp.running import ONE

from .running import profiled

Mounting = Callable[[str], bytes]


class Line:
    """A context that records spawned items, without idle workers or stops."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        self.made += items

    def post(self, ticket: int, rank: int, items: Sequence[Any]) -> None:
        self.made += items

    def hold(self, ticket: int, epoch: int) -> None:
        raise NotImplementedError

    def resume(self, ticket: int, items: Sequence[Any], value: Any, epoch: int) -> None:
        raise NotImplementedError

    def note(self, notices: Sequence[Any]) -> None:
        raise AssertionError(notices)

    def note_synced(self, notices: Sequence[Any]) -> bool:
        self.note(notices)
        return True

    def is_stopping(self) -> bool:
        return False

    def has_idle_workers(self) -> bool:
        return False


@pytest.mark.parametrize("one_node", [True, False])
def test_files_with_equal_numbers_in_two_mounts_are_separate(
    place: bytes, mount_tmpfs: Mounting, one_node: bool
) -> None:
    """Device numbers differ between nodes, so the path of the mount point counts."""
    inodes = set()
    for _ in range(2):
        inside = mount_tmpfs("size=1m")
        os.mkdir(inside + b"/deeper")
        with open(inside + b"/deeper/file", "wb") as file:
            file.write(b"x" * 5000)
        os.link(inside + b"/deeper/file", inside + b"/other")
        for number in range(4):  # names that are never found: the file is not forgotten
            os.link(inside + b"/deeper/file", inside + b"/left out %d" % number)
        inodes.add(os.stat(inside + b"/other").st_ino)
    if len(inodes) == 2:
        pytest.skip("this kernel numbers the files of all such mounts in one row")
    roots, volumes = resolve([place])
    rules = (Rule(include=False, pattern=b"left out *"),)
    plan = ProfilePlan(
        roots=roots, directory=os.getcwdb(), volumes=volumes, one_node=one_node, rules=rules
    )
    task = ProfileTask(plan, 0)
    todo = list(task.seed())
    while todo:
        line = Line()
        task.process(todo.pop(), Context(1, line))
        todo += line.made
    profile = unpack(task.finish().profile)
    task.close()
    assert profile.names == [4, 2]
    assert profile.kinds["file"][:2] == [4, 10_000]


def test_a_listed_mount_point_is_not_entered(place: bytes, mount_tmpfs: Mounting) -> None:
    """With -x this holds for any way to list names below a mount point."""
    inside = mount_tmpfs("size=1m")
    os.makedirs(inside + b"/a/b")
    for name in (b"/1", b"/a/2", b"/a/b/3"):
        os.close(os.open(inside + name, os.O_CREAT | os.O_WRONLY))
    name = os.path.basename(inside)
    for listed, files, directories in (
        (name + b"/", 0, 1),
        (name + b"/a/", 0, 1),
        (name + b"/a/b", 0, 1),
        (name + b"/a/2", 1, 0),
    ):
        with open(place + b"/list", "wb") as file:
            file.write(listed + b"\n")
        counts = profiled(ONE, "-x", "--files-from", place + b"/list", place)["counts"]
        found = counts["files"]["number"], counts["directories"]["number"]
        assert found == (files, directories), listed
        whole = profiled(ONE, "--files-from", place + b"/list", place)["counts"]
        below = sum(1 for _ in os.walk(inside[: -len(name)] + listed))
        if listed.endswith(b"/"):
            assert whole["directories"]["number"] == below
