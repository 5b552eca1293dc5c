"""Special files without -a: skipped in a tree, a failure as SRC, never a made-up system error."""

from __future__ import annotations

import json
import os
import stat

import pytest

from pcircle.jobs.failures import encode
from tests.tools.fcp import verdict
from tests.tools.fcp.interrupts import interrupt
from tests.tools.fcp.judge import CONTENT, differences
from tests.tools.fcp.running import (
    ONE,
    TWO,
    Finished,
    Launcher,
    copy,
    document,
    run_fcp,
    some_launchers,
)
from tests.tools.fcp.trees import build_flat_tree, make_directory, write_file

KINDS = {"FIFO": stat.S_IFIFO, "socket": stat.S_IFSOCK}
if os.geteuid() == 0:
    KINDS |= {"character device": stat.S_IFCHR, "block device": stat.S_IFBLK}


def _add(directory: bytes, name: bytes, kind: str) -> None:
    os.mknod(os.path.join(directory, name), KINDS[kind] | 0o600, os.makedev(1, 3))


def _build(place: bytes) -> tuple[bytes, list[bytes]]:
    """Build a tree with two special files of each type; return the paths of these below it."""
    source = make_directory(place, b"source")
    write_file(source + b"/file", b"file")
    write_file(make_directory(source, b"sub") + b"/file", b"another")
    specials = []
    for number, kind in enumerate(KINDS):
        for above in (b"", b"sub/"):
            specials.append(above + b"special%d" % number)
            _add(source, specials[-1], kind)
    return source, specials


def _assert_skipped(finished: Finished, place: bytes, count: int) -> None:
    assert finished.code == 0, finished.said
    result = document(place + b"/result")
    assert (result["special_skipped"], result["skipped"], result["special"]) == (count, 0, 0)
    assert (result["failed"], result["failures"]) == (0, [])
    assert result["found"] == result["entries"] + count
    for kind in KINDS:
        assert finished.said.count(f"skipping {kind}s such as") == 1, finished.said
    assert finished.said.count("add -a to copy them") == len(KINDS)
    assert f"{count} special files skipped" in finished.out.decode()
    assert "ESTALE" not in finished.said


@some_launchers
def test_special_files_in_a_tree_are_skipped(launcher: Launcher, place: bytes) -> None:
    """This matches ``rsync -r``, also in a dry run, and for entries of a list or a log."""
    source, specials = _build(place)
    result = ("--json", place + b"/result")
    listed = write_file(place + b"/list", b"\n".join([*specials, b"file", b"sub/file"]) + b"\n")
    finished = run_fcp(launcher, *result, "--dry-run", source, place + b"/copy")
    _assert_skipped(finished, place, len(specials))
    for number, options in enumerate([(), ("--files-from", listed)]):
        target = place + b"/copy %d" % number
        finished = run_fcp(launcher, *result, *options, source, target)
        _assert_skipped(finished, place, len(specials))
        copied_names = {name for _, _, names in os.walk(target) for name in names}
        assert copied_names == {b"file"}
    lines = [
        {
            "path": "x",
            "doing": "copy",
            "errno": 116,
            "error": "ESTALE",
            "reason": "it is neither a regular file, a directory nor a symbolic link",
            "root": 0,
            "source": encode(source),
            "target": encode(target),
            "entry": encode(entry),
        }
        for entry in specials
    ]
    log = write_file(place + b"/log", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    finished = run_fcp(launcher, *result, "--retry-from", log, source, target)
    _assert_skipped(finished, place, len(specials))
    copy(launcher, "-a", "--retry-from", log, source, target)
    assert all(os.path.lexists(os.path.join(target, name)) for name in specials)


def test_those_that_links_lead_to_are_skipped_with_L(place: bytes) -> None:
    source = make_directory(place, b"source")
    for number, kind in enumerate(KINDS):
        _add(place, b"s%d" % number, kind)
        os.symlink(b"../s%d" % number, source + b"/link%d" % number)
    finished = run_fcp(ONE, "-L", "--json", place + b"/result", source, place + b"/copy")
    _assert_skipped(finished, place, len(KINDS))
    assert os.listdir(place + b"/copy") == []


def test_a_special_file_as_SRC_fails_with_a_reason(place: bytes) -> None:
    """The reason is no system error, because there was none. Its log can be used again."""
    sources = []
    for number, kind in enumerate(KINDS):
        _add(place, b"s%d" % number, kind)
        sources.append(place + b"/s%d" % number)
    target = make_directory(place, b"target")
    options = ("--json", place + b"/result", "--error-log", place + b"/log")
    for dry in ((), ("--dry-run",)):
        finished = run_fcp(TWO, *dry, *options, *sources, target)
        assert finished.code == 1
        for kind, source in zip(KINDS, sources, strict=True):
            assert f"'{source.decode()}': it is a {kind}: add -a to copy it" in finished.said
        assert f"{len(KINDS)} special file\n" in finished.said
        logged = verdict.logged(place + b"/log")
        for failure in (*document(place + b"/result")["failures"], *logged):
            assert (failure["errno"], failure["error"]) == (None, "special file")
        assert document(place + b"/result")["special_skipped"] == 0
        assert os.listdir(target) == []
    copy(TWO, "-a", "--retry-from", place + b"/log", *sources, target)
    assert len(os.listdir(target)) == len(sources)


def test_a_tree_that_lacks_them_is_not_signed(place: bytes) -> None:
    source, specials = _build(place)
    plain = make_directory(place, b"plain")
    write_file(plain + b"/file", b"file")
    target = make_directory(place, b"target")
    finished = run_fcp(TWO, "-s", source, plain, target)
    assert finished.code == 1, finished.said
    assert b"pcsig1:" in finished.out
    assert finished.out.count(b"pcsig1:") == 1, "of the tree that has none"
    shown = (target + b"/source").decode()
    assert f"no signature of '{shown}': special files in it were skipped" in finished.said
    assert f"{len(specials)} special files skipped" in finished.out.decode()
    with_all = copy(TWO, "-a", "-s", source, place + b"/whole")
    assert with_all.out.startswith(b"pcsig1:")


@pytest.mark.parametrize("signed", [False, True], ids=["", "signed"])
def test_a_resumed_copy_reports_skipped_special_files(signed: bool, place: bytes) -> None:
    """Each is counted in completed and repeated directories; incomplete trees are unsigned."""
    source = build_flat_tree(place + b"/source", 8, 250, 1000)
    for directory in os.listdir(source):
        _add(os.path.join(source, directory), b"special", "FIFO")
    sign = ("-s",) if signed else ()
    interrupt(TWO, place, *sign, source, place + b"/copy")
    result = ("--json", place + b"/result")
    finished = run_fcp(TWO, "--resume", *result, *sign, source, place + b"/copy")
    summary = document(place + b"/result")
    assert summary["resumed"] > 0
    assert summary["special_skipped"] == 8
    assert finished.code == (1 if signed else 0), finished.said
    assert ("special files in it were skipped" in finished.said) == signed
    assert b"pcsig1:" not in finished.out
    for directory in os.listdir(source):
        os.unlink(os.path.join(source, directory, b"special"))
    assert differences(source, place + b"/copy", CONTENT) == []
