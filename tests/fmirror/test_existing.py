"""As with rsync: by `--existing` nothing new is made, and by `--ignore-existing` nothing else."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.fcp.running import Launcher
from tests.fcp.trees import write_file

from .edits import Tree, copy_of
from .running import as_root, differences, every_launcher, mirrored, needs_rsync, run_fmirror
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


@every_launcher
@pytest.mark.parametrize("more", [(), ("--delete",)], ids=str)
def test_a_directory_that_has_the_name_of_a_file_stays_as_well(
    place: bytes, launcher: Launcher, more: tuple[str, ...]
) -> None:
    """With --ignore-existing, whatever it is; a dry run says the same."""
    source, target, judge = (place + each for each in (b"/a", b"/b", b"/judge"))
    for path in (source + b"/name", source + b"/new", target + b"/name/inner"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_file(path, b"content")
    copy_of(target, judge)
    line: list[str | bytes] = ["rsync", "-a", "--ignore-existing", *more]
    subprocess.run([*line, source + b"/", judge + b"/"], check=True)
    for dry in (["--dry-run"], []):
        words: list[str | bytes] = [*dry, "--ignore-existing", *more, source, target]
        finished = run_fmirror(launcher, *words)
        assert finished.code == 0, finished.said
        assert finished.out.startswith(b"1 entry skipped, ")
    assert differences(judge, target) == ""
    assert os.path.exists(target + b"/name/inner")
