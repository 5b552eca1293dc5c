"""`--existing`: what the target lacks is not made, as with rsync."""

from __future__ import annotations

import subprocess

import pytest

from tests.fcp.running import Launcher

from .edits import Tree, copy_of
from .running import as_root, differences, every_launcher, mirrored, needs_rsync
from .test_judge import state

pytestmark = [as_root, needs_rsync]


@every_launcher
@pytest.mark.parametrize("more", [(), ("--delete",)], ids=str)
def test_what_is_missing_is_not_made(
    place: bytes, launcher: Launcher, more: tuple[str, ...]
) -> None:
    source, target, judge = (place + each for each in (b"/a", b"/b", b"/judge"))
    for number in range(5):
        tree = Tree(source + b"/%d" % number, 50 + number)
        if not number:
            copy_of(source, target)
        for _ in range(8):
            tree.edit()
    tree = Tree(target + b"/more", 9)
    copy_of(target, judge)
    line: list[str | bytes] = ["rsync", "-aHAX", "--existing", "--modify-window=-1", *more]
    subprocess.run([*line, source + b"/", judge + b"/"], check=True)
    words: list[str | bytes] = ["--existing", *more, source, target]
    before = state(target)
    mirrored(launcher, "--dry-run", *words)
    assert state(target) == before
    mirrored(launcher, *words)
    assert differences(judge, target) == ""
    assert differences(source, target) != ""
