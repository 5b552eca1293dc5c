"""Sources that change while they are copied, or between two runs: all or nothing, or reported.

Each copy of a file has a content that the file had at some moment since the copy began: never
another file's content, never half of two versions. `tests.tools.fcp.meddling` changes files at a
chosen call, so that these runs are reproducible; a race of thousands of files is added.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conftest import SOAK
from tests.tools.fcp import kills
from tests.tools.fcp.edited import Edited, text_of
from tests.tools.fcp.interrupts import committed, interrupt, is_committed
from tests.tools.fcp.meddling import EVERY_TIME, Deed, meddling, replace, rewrite_keeping_time
from tests.tools.fcp.running import (
    FOUR,
    ONE,
    TWO,
    Finished,
    Launcher,
    Run,
    command,
    document,
    run_fcp,
)
from tests.tools.fcp.trees import MIB, content, make_directory, remove_tree, write_file


def meddle(place: bytes, deeds: Sequence[Deed], *arguments: Any) -> Finished:
    """Run fcp in one process with these changes."""
    line = command(ONE, arguments, meddling("fcp", os.fsdecode(place), deeds))
    with Run(ONE, line=line) as run:
        return run.finish()


def read(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def three_names(place: bytes, size: int = 5000) -> tuple[bytes, bytes]:
    """Create a source with three names of one inode; return its path and content."""
    source, old = place + b"/source", content("old", size)
    remove_tree(source)
    for name in (b"a", b"b", b"c"):
        make_directory(source, name)
    write_file(source + b"/a/f", old)
    for name in (b"/b/f", b"/c/f"):
        os.link(source + b"/a/f", source + name)
    return source, old


# ---- hard links ----------------------------------------------------------------


@pytest.mark.parametrize("options", [("-a",), ("-a", "--verify", "-s")], ids=" ".join)
@pytest.mark.parametrize("launcher", [TWO, FOUR], ids=str)
def test_names_saved_by_rename(launcher: Launcher, options: tuple[str, ...], place: bytes) -> None:
    """One of each two names is saved while they are copied: the other one keeps its content."""
    source = make_directory(place, b"source")
    left, right = make_directory(source, b"a"), make_directory(source, b"b")
    names = [b"%04d" % number for number in range(1500)]
    for name in names:
        write_file(left + b"/" + name, b"old " + name)
        os.link(left + b"/" + name, right + b"/" + name)
    ended = threading.Event()

    def is_begun(name: bytes) -> bool:
        path = place + b"/copy/" + name
        return os.path.isdir(path) and bool(os.listdir(path))

    def edit() -> None:
        # A rename during a listing may hide the entry, or show it twice.
        while not all(map(is_begun, (b"a", b"b"))) and not ended.is_set():
            time.sleep(0.001)
        for name in names:
            replace(os.fsdecode(left + b"/" + name), b"new " + name)

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        finished = run_fcp(launcher, *options, "--ops-limit", "20000", source, place + b"/copy")
    finally:
        ended.set()
        editor.join()
    assert finished.code == 0, finished.said
    copied = place + b"/copy"
    assert [n for n in names if read(copied + b"/b/" + n) != b"old " + n] == []
    for name in names:
        assert read(copied + b"/a/" + name) in (b"old " + name, b"new " + name)


@pytest.mark.parametrize(
    ("operation", "size", "options"),
    [
        ("stat", 5000, ()),
        ("open", 5000, ()),
        ("link", 5000, ()),
        ("open", 9 * MIB, ()),
        ("stat", 5000, ("-s", "--verify")),
        ("open", 9 * MIB, ("-s", "--verify")),
    ],
    ids=["stat", "open", "link", "chunks", "verified", "chunks verified"],
)
def test_a_name_that_is_replaced_before_its_turn(
    operation: str, size: int, options: tuple[str, ...], place: bytes
) -> None:
    """Every look-up of a name, the first or one to be linked, is preceded by a replacement."""
    report = place + b"/report"
    for victim in "abc":
        for turn in (1, 2, 3):
            source, old = three_names(place, size)
            path = os.fsdecode(source) + f"/{victim}/f"
            watched = path.replace("/source/", "/copy/") if operation == "link" else path
            deed = Deed(operation, watched, "replace", path, "new", turn, turn + 1)
            arguments = ["-a", *options, "--chunksize", "4M", source, place + b"/copy"]
            finished = meddle(place, [deed], "--json", report, *arguments)
            # In chunks the replacement may be detected: then it is reported.
            named = f"/{victim}/f': it changed while it was copied"
            assert not finished.code or (size > 4 * MIB and named in finished.said), finished.said
            for name in "abc":
                if finished.code and name == victim:
                    continue
                copied, now = (
                    read(side + f"/{name}/f".encode()) for side in (place + b"/copy", source)
                )
                assert copied in (old, now), (victim, turn, name)
            other_inodes = {
                os.stat(place + f"/copy/{n}/f".encode()).st_ino for n in "abc" if n != victim
            }
            # A name that is found after its inode has lost another one may also be another version.
            assert len(other_inodes) == 1 or document(report)["not_kept"]["hard links"] > 0
            remove_tree(place + b"/copy")


def test_names_of_a_rewritten_file_stay_linked(place: bytes) -> None:
    """A file that changes after its first name is copied again: its other names are one file.

    The content of the first name is slightly older, and is reported as a separate file.
    """
    source, old = three_names(place)
    os.link(source + b"/a/f", source + b"/b/g")
    os.link(source + b"/a/f", source + b"/b/h")
    first = os.fsdecode(source) + "/a/f"
    # Each name is looked up before it is linked.
    deeds = [Deed("link", os.fsdecode(place) + "/copy/b/f", "rewrite", first, "new")]
    deeds += [Deed("link", os.fsdecode(place) + "/copy/a/f", "rewrite", first, "new")]
    report = place + b"/report"
    finished = meddle(place, deeds, "-a", "--json", report, source, place + b"/copy")
    assert finished.code == 0, finished.said
    found = {name: place + b"/copy/" + name for name in (b"a/f", b"b/f", b"b/g", b"b/h")}
    now = read(source + b"/a/f")
    inodes: dict[int, bytes] = {}
    for path in found.values():
        text = read(path)
        assert text in (old, now)
        assert inodes.setdefault(os.stat(path).st_ino, text) == text
    assert len(inodes) <= 2


def test_names_of_a_file_that_changes_between_two_runs(place: bytes) -> None:
    """Names are linked to a file of an earlier run only if it equals the current source."""
    source = make_directory(place, b"source")
    folders = [make_directory(source, b"%d" % number) for number in range(8)]
    firsts = [folders[0] + b"/%d" % number for number in range(150)]
    for first in firsts:
        write_file(first, b"old " + first)
        for folder in folders[1:]:
            os.link(first, os.path.join(folder, os.path.basename(first)))
    arguments = ["-a", "-T", os.fsdecode(source), os.fsdecode(place + b"/copy")]
    names = [b"%d/%d" % (a, b) for a in range(8) for b in range(150)]

    def is_half_way() -> bool:
        return is_committed(place) and os.path.exists(place + b"/copy/1/149")

    interrupt(TWO, place, "--ops-limit", "700", *arguments, when=is_half_way)
    missing = [name for name in names if not os.path.exists(place + b"/copy/" + name)]
    assert 0 < len(missing) < len(names)
    for first in firsts:
        rewrite_keeping_time(os.fsdecode(first), b"new " + first)
    report = place + b"/report"
    finished = run_fcp(FOUR, "--resume", "--json", report, *arguments)
    assert finished.code == 0, finished.said
    inodes = {os.stat(place + b"/copy/" + name).st_ino for name in names}
    assert 0 < len(inodes) - len(firsts) <= document(report)["not_kept"]["hard links"]
    stale = [n for n in missing if read(place + b"/copy/" + n) != read(source + b"/" + n)]
    assert stale == []


@pytest.mark.parametrize("what", ["replace", "rewrite"])
def test_separated_names_are_counted(what: str, place: bytes) -> None:
    """One name is saved, or written into, before a directory with others of the inode is read."""
    report = place + b"/report"
    for read_later in "bc":
        for victim in "ab":
            source, _ = three_names(place)
            os.link(source + b"/a/f", source + b"/b/g")
            path = os.fsdecode(source)
            deed = Deed("scandir", f"{path}/{read_later}", what, f"{path}/{victim}/f", "new")
            finished = meddle(place, [deed], "-a", "--json", report, source, place + b"/copy")
            assert finished.code == 0, finished.said
            names = [b"a/f", b"b/f", b"b/g", b"c/f"]
            wanted = {os.stat(source + b"/" + name).st_ino for name in names}
            found = {os.stat(place + b"/copy/" + name).st_ino for name in names}
            lost = len(found) - len(wanted)
            # A file that has lost a name may also have been written into.
            assert lost <= document(report)["not_kept"].get("hard links", 0)
            remove_tree(place + b"/copy")


# ---- versions of one file ------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "options", "operation"),
    [
        (9 * MIB, ("--chunksize", "4M"), "open"),
        (9 * MIB, ("--chunksize", "4M", "-s", "--verify"), "open"),
        (9 * MIB, ("--chunksize", "4M", "--inplace"), "open"),
        (MIB, (), "copy_file_range"),
        (MIB, ("-s",), "preadv"),
    ],
    ids=["chunks", "chunks verified", "chunks in place", "whole", "whole signed"],
)
@pytest.mark.parametrize("what", ["rewrite_keeping_time", "chmod", "rewrite"])
def test_a_file_that_changes_while_it_is_copied(
    size: int, options: tuple[str, ...], operation: str, what: str, place: bytes
) -> None:
    """If only the change time has moved it is copied again; a second change is a failure."""
    source = write_file(place + b"/source", content("old", size))
    path = os.fsdecode(source)
    turn = 3 if operation == "open" else 1
    arguments = ["-p", *options, source, place + b"/copy"]
    once = Deed(operation, path, what, path, "new", turn, turn + 1)
    finished = meddle(place, [once], *arguments)
    if what == "rewrite":
        assert finished.code == 1
        assert "changed while it was copied" in finished.said
    else:
        assert finished.code == 0, finished.said
        assert read(place + b"/copy") == read(source)
        os.unlink(place + b"/copy")
        always = Deed(operation, path, what, path, "new", turn, EVERY_TIME)
        finished = meddle(place, [always], *arguments)
        assert finished.code == 1
        assert "changed while it was copied" in finished.said
    assert not os.path.exists(place + b"/copy")
    assert [name for name in os.listdir(place) if name.startswith(b".fcp")] == []


@pytest.mark.parametrize("options", [(), ("-s", "--verify"), ("--inplace",)], ids=" ".join)
def test_a_large_file_that_changes_between_two_runs(options: tuple[str, ...], place: bytes) -> None:
    """It changes in place, with its time restored: no data of the first run is used."""
    source = make_directory(place, b"source")
    write_file(source + b"/large", content("old", 64 * MIB))
    copying = "-p", "--chunksize", "4M", "-T", source, place + b"/copy"
    interrupt(TWO, place, *options, *copying)
    rewrite_keeping_time(os.fsdecode(source + b"/large"), content("new", 64 * MIB))
    report = place + b"/report"
    finished = run_fcp(TWO, "--resume", "--json", report, *options, *copying)
    assert finished.code == 0, finished.said
    assert read(place + b"/copy/large") == read(source + b"/large")
    assert document(report)["bytes"] == 64 * MIB


def test_a_large_file_that_changes_when_it_is_resumed(place: bytes) -> None:
    """Data of an earlier run is copied again, and does not count as resumed."""
    source = make_directory(place, b"source")
    path = os.fsdecode(write_file(source + b"/large", content("old", 64 * MIB)))
    copying = "-p", "--chunksize", "4M", "-T", source, place + b"/copy"

    def is_recorded() -> bool:
        return committed(place).parts > 0

    interrupt(ONE, place, *copying, when=is_recorded)
    report = place + b"/report"
    deed = Deed("open", path, "rewrite_keeping_time", path, "new", 5, 6)
    finished = meddle(place, [deed], "--resume", "--json", report, *copying)
    assert finished.code == 0, finished.said
    assert read(place + b"/copy/large") == read(source + b"/large")
    result = document(report)
    assert (result["bytes"], result["resumed_bytes"]) == (64 * MIB, 0)


# ---- all the time --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4 if SOAK else 2))
def test_kills_while_the_source_is_edited(seed: int, place: bytes) -> None:
    """``python -m tests.tools.fcp.soak`` plays hundreds of these rounds."""
    kills.play_edited(place, 7000 + seed, kills.LOCAL)


@pytest.mark.mpi
@pytest.mark.parametrize("seed", range(2 if SOAK else 1))
def test_kills_under_mpi_while_the_source_is_edited(seed: int, place: bytes) -> None:
    kills.play_edited(place, 7100 + seed, kills.LAUNCHERS[-2:])


def test_wrong_contents_are_detected(place: bytes) -> None:
    """The judge detects another file's content, a mixture, and a missing name."""
    with Edited(place + b"/source", 1, small=20, large=1) as source:
        while source.edits < 40:
            time.sleep(0.01)
    run_fcp(ONE, "-p", place + b"/source", place + b"/copy")
    assert source.wrong(place + b"/copy", ()) == []
    names = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(place + b"/copy")
        for name in names
        if not name.endswith(b"f0")
    )
    first, second, third, fourth = names[:4]
    with open(first, "wb") as file:
        file.write(text_of(999, 0, 40))
    with open(second, "r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"not")
    os.unlink(third)
    os.unlink(fourth)
    named = os.path.join(place, b"source", os.path.relpath(fourth, place + b"/copy"))
    found = " ".join(sorted(source.wrong(place + b"/copy", [named])))
    assert [found.count(word) for word in ("never was", "mixture", "missing")] == [1, 1, 1]
