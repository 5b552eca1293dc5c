"""The trash: paths are renamed into it, and removed later; other contents stay."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import every_launcher, grow, paths, removed, run_frm


@every_launcher
def test_a_path_is_moved_and_later_removed(place: bytes, launcher: Launcher) -> None:
    """The removal includes nested contents and duplicate names; other contents stay."""
    grow(place, ["a/same/x/y", "b/same", "file", "trash/other/file", "trash/frm-x"])
    os.symlink(b"a", place + b"/link")
    inode = os.stat(place + b"/a/same/x/y").st_ino
    names = [place + b"/" + name for name in (b"a/same", b"b/same", b"file", b"link")]
    report = removed(launcher, "-r", "--trash", place + b"/trash", *names)
    counts = report["counts"]
    kinds = (counts["directories"], counts["files"], counts["links"])
    assert kinds == (1, 2, 1)
    assert sorted(os.listdir(place)) == [b"a", b"b", b"trash"]
    (run,) = set(os.listdir(place + b"/trash")) - {b"other", b"frm-x"}
    moved = place + b"/trash/" + run
    assert stat.S_IMODE(os.stat(moved).st_mode) == 0o700
    assert os.stat(moved + b"/0/same/x/y").st_ino == inode
    assert os.path.isfile(moved + b"/1/same")
    assert os.path.isfile(moved + b"/2/file")
    assert os.path.islink(moved + b"/3/link")
    report = removed(launcher, "--empty-trash", place + b"/trash")
    assert report["counts"]["files"] == 3
    assert paths(place + b"/trash") == [b"frm-x", b"other", b"other/file"]


def test_a_dry_run_moves_nothing(place: bytes) -> None:
    grow(place, ["tree/file", "trash/"])
    before = paths(place)
    done = run_frm(ONE, "-r", "--dry-run", "-v", "--trash", "trash", "tree", cwd=place)
    assert (done.code, done.out) == (0, b"would be moved 'tree'\n")
    assert paths(place) == before


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.isdir("/dev/shm"), reason="no other mount")
def test_another_file_system_is_reported(place: bytes, mount_tmpfs: object) -> None:
    assert callable(mount_tmpfs)
    grow(place, ["tree/file"])
    trash = mount_tmpfs("size=1m")
    report = removed(TWO, "-r", "--trash", trash, place + b"/tree", code=1)
    assert report["failures"][0]["error"] == "EXDEV"
    assert os.listdir(trash) == []
    assert paths(place + b"/tree") == [b"file"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--trash=trash|tree", "'tree' is a directory: add -r"),
        ("-r|--trash=no|tree", "--trash: cannot open 'no': No such file or directory"),
        ("-r|--trash=file|tree", "--trash: cannot open 'file': Not a directory"),
        ("-r|--trash=trash|--exclude=x|tree", "--trash cannot be combined with filters"),
        ("-r|--trash=trash|--kind=f|tree", "--trash cannot be combined with filters"),
        ("-r|--trash=trash|--keep-root|tree", "--trash cannot be combined with --keep-root"),
        ("-r|--trash=trash|--plan=p|tree", "--trash cannot be combined with --plan"),
        ("-r|--trash=trash|--max-delete=1|tree", "--trash cannot be combined with --max-delete"),
        ("-r|--trash=trash|.", "refusing to remove '.'"),
        (
            "-d|--trash=trash|tree",
            "--trash cannot be combined with -d; to move directories, add -r",
        ),
        ("-r|--trash=trash|--error-log=no/such|tree", "--error-log: cannot write 'no/such'"),
        ("--empty-trash=trash|tree", "--empty-trash takes no PATH: extra operand 'tree'"),
        ("--empty-trash=trash|--files-from=file", "--empty-trash cannot be combined with --files"),
        ("--empty-trash=no", "--empty-trash: cannot open 'no': No such file or directory"),
    ],
)
def test_refusals(place: bytes, arguments: str, said: str) -> None:
    grow(place, ["tree/file", "file", "trash/"])
    before = paths(place)
    done = run_frm(ONE, *arguments.split("|"), cwd=place)
    assert (done.code, done.out) == (2, b"")
    assert done.said.startswith(f"frm: {said}"), done.said
    assert paths(place) == before


def test_a_move_is_reported_as_one_action(place: bytes) -> None:
    """`..` in the path of the trash is resolved as by the kernel, after a link."""
    grow(place, ["tree/file", "far/in/", "far/trash/"])
    os.symlink(b"far/in", place + b"/link")
    options = ("-r", "-v", "--json-lines", "lines", "--trash", "link/../trash")
    done = run_frm(ONE, *options, "tree", cwd=place)
    assert (done.code, done.out) == (0, b"moved 'tree'\n"), done.said
    line = json.loads(Path(os.fsdecode(place + b"/lines")).read_text())
    assert (line["action"], line["state"]) == ("move", "done")
    (run,) = os.listdir(place + b"/far/trash")
    assert paths(place + b"/far/trash/" + run) == [b"0", b"0/tree", b"0/tree/file"]
