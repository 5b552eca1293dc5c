"""Trees by seed and damaged bytes by seed: the records match the files exactly.

The results are checked by an independent walk, fsum and fdiff.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pcircle.jobs.failures import decode
from tests.tools.fcp.conftest import place, shared_place
from tests.tools.fcp.running import ONE, Finished, Launcher, Run

__all__ = ["place", "shared_place"]
SHAPE = "files=120,directories=30,depth=6,size=256k,links=8,fifos=2,sockets=2,hardlinks=9,sparse=6"


def run(tool: str, *words: str | bytes) -> Finished:
    with Run(
        None if tool == "fbench" else ONE, *words, program=(f"pcircle.tools.{tool}",)
    ) as started:
        return started.finish()


def lines_of(text: bytes) -> Iterator[dict[str, Any]]:
    return map(json.loads, text.splitlines())


def made(tree: bytes, *more: str, seed: int = 7, shape: str = SHAPE) -> bytes:
    """Create a tree; return its record."""
    done = run("fbench", "make", "--seed", str(seed), "--shape", shape, *more, tree)
    assert done.code == 0, done.said
    return done.out


def found(tree: bytes) -> dict[bytes, os.stat_result]:
    """Return all entries below a directory."""
    entries = {}
    for folder, below, names in os.walk(tree):
        for name in (*below, *names):
            path = os.path.join(folder, name)
            entries[os.path.relpath(path, tree)] = os.lstat(path)
    return entries


def content(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("names", ["plain", "odd"])
def test_the_record_matches_the_tree(place: bytes, names: str) -> None:
    tree = place + b"/new/tree"
    os.mkdir(place + b"/new")
    header, *lines = lines_of(made(tree, shape=f"{SHAPE},names={names}"))
    assert (header["format"], header["seed"]) == ("fbench make 1", 7)
    entries = found(tree)
    recorded = {decode(line["path"]): line for line in lines}
    assert recorded.keys() == entries.keys()
    kinds = {"directory": stat.S_ISDIR, "link": stat.S_ISLNK, "fifo": stat.S_ISFIFO,
             "socket": stat.S_ISSOCK, "file": stat.S_ISREG, "name": stat.S_ISREG}  # fmt: skip
    for path, line in recorded.items():
        status = entries[path]
        assert kinds[line["kind"]](status.st_mode), line
        if line["kind"] == "file":
            assert status.st_size == line.get("size", 0)
            assert status.st_nlink == line.get("names", 1)
            assert hashlib.sha256(content(os.path.join(tree, path))).hexdigest() == line["sha256"]
        elif line["kind"] == "name":
            assert status.st_ino == entries[decode(line["same_as"])].st_ino
        elif line["kind"] == "link":
            assert os.readlink(os.path.join(tree, path)) == decode(line["target"])
    counts = {kind: sum(line["kind"] == kind for line in lines) for kind in kinds}
    assert counts == {"directory": 30, "link": 8, "fifo": 2, "socket": 2, "file": 120, "name": 9}
    assert 0 < sum(line.get("holes", False) for line in lines) <= 6
    assert max(path.count(b"/") for path in recorded) <= 6
    odd = sum(not path.replace(b"/", b"").isalnum() for path in recorded)
    assert (odd > 20) == (names == "odd")


def test_a_seed_determines_the_tree(place: bytes) -> None:
    one = made(place + b"/one")
    assert made(place + b"/two") == one
    done = run("fdiff", "-c", place + b"/one", place + b"/two")
    assert (done.code, done.out) == (0, b""), done.said
    times = [
        {path: status.st_mtime_ns for path, status in found(place + name).items()}
        for name in (b"/one", b"/two")
    ]
    assert times[0] == times[1]
    assert made(place + b"/three", seed=8) != one


def test_sparse_files_have_holes(place: bytes) -> None:
    tree = place + b"/tree"
    _, *lines = lines_of(made(tree, shape="files=6,sparse=6,size=64M,directories=0,links=0"))
    large = [line for line in lines if line.get("size", 0) > 4 << 20]
    assert large
    for line in large:
        status = os.stat(os.path.join(tree, decode(line["path"])))
        assert status.st_blocks * 512 < status.st_size


@pytest.mark.parametrize("where", ["file", "output"])
def test_nothing_is_corrupted_without_a_record(place: bytes, where: str) -> None:
    tree, record = place + b"/tree", place + b"/made"
    made(tree, "--record", os.fsdecode(record))
    files = [path for path in found(tree) if os.path.isfile(os.path.join(tree, path))]
    before = [content(os.path.join(tree, path)) for path in files]
    words = ["fbench", "corrupt", "--made", os.fsdecode(record), os.fsdecode(tree)]
    if where == "file":
        words.insert(2, "--record=/dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", f"pcircle.tools.{words[0]}", *words[1:]],
            stdout=full if where == "output" else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert before == [content(os.path.join(tree, path)) for path in files]


def test_corrupted_files_are_detected(place: bytes) -> None:
    """fsum --check and fdiff -c name exactly these, under every name; nothing else has changed."""
    tree, copy, record = place + b"/tree", place + b"/copy", place + b"/made"
    assert made(tree, "--record", os.fsdecode(record)) == b""
    assert run("fcp", "-a", "-q", tree, copy).code == 0
    manifest = place + b"/manifest"
    assert run("fsum", "-q", "-o", manifest, copy).code == 0
    before = found(copy)
    words = ("corrupt", "--seed", "5", "--changes", "12", "--made", record)
    done = run("fbench", *words, copy)
    assert done.code == 0, done.said
    start, *damages = lines_of(done.out)
    assert (start["seed"], start["made_seed"], len(damages)) == (5, 7, 12)
    after = found(copy)
    wrong = set()
    for damage in damages:
        path = decode(damage["path"])
        was, now = bytes.fromhex(damage["was"]), bytes.fromhex(damage["now"])
        begin = damage["offset"]
        expected = bytearray(content(os.path.join(tree, path)))
        assert expected[begin : begin + len(was)] == was
        assert all(a != b for a, b in zip(was, now, strict=True))
        expected[begin : begin + len(now)] = now
        assert content(os.path.join(copy, path)) == expected
        wrong |= {
            other_path for other_path in after if after[other_path].st_ino == after[path].st_ino
        }
    listed = run("fdiff", "-c", tree, copy)
    assert listed.code == 3
    assert {line.split(maxsplit=1)[1] for line in listed.out.splitlines()} == wrong
    checked = run("fsum", "--check", manifest)
    assert checked.code == 3
    for path in wrong:
        assert path in checked.out + checked.err
    assert run("fsum", "--check", manifest, "--quick").code == 0  # sizes and times are unchanged
    for path, status in before.items():
        later = after[path]
        assert (status.st_size, status.st_mtime_ns) == (later.st_size, later.st_mtime_ns)
    again = place + b"/again"
    assert run("fcp", "-a", "-q", tree, again).code == 0
    assert run("fbench", *words, again).out == done.out


def test_a_foreign_tree_is_left_alone(place: bytes) -> None:
    """The tree has other content, names that are also elsewhere, and links that lead out of it."""
    tree, record = place + b"/tree", place + b"/made"
    made(tree, "--record", os.fsdecode(record), shape="files=30,directories=5,hardlinks=0")
    other = place + b"/other"
    shutil.copytree(os.fsdecode(tree), os.fsdecode(other), symlinks=True)
    for path, status in found(other).items():
        if stat.S_ISREG(status.st_mode):
            with open(os.path.join(other, path), "ab") as file:
                file.write(b"mine")
    linked = place + b"/linked"  # by hard links: a write there changes this tree
    shutil.copytree(os.fsdecode(tree), os.fsdecode(linked), symlinks=True, copy_function=os.link)
    led = place + b"/led"
    os.mkdir(led)
    for name in os.listdir(tree):
        os.symlink(os.path.join(tree, name), os.path.join(led, name))
    for target in (other, linked, led):
        before = {path: content(os.path.join(tree, path)) for path in files_in(tree)}
        mine = {path: content(os.path.join(target, path)) for path in files_in(target)}
        done = run("fbench", "corrupt", "--made", record, target)
        assert done.code == 1, done.said
        assert "fbench: fewer than the 10 requested files could be corrupted" in done.said
        assert {path: content(os.path.join(tree, path)) for path in files_in(tree)} == before
        assert {path: content(os.path.join(target, path)) for path in files_in(target)} == mine


def files_in(tree: bytes) -> list[bytes]:
    return [path for path, status in found(tree).items() if stat.S_ISREG(status.st_mode)]


def test_only_a_new_or_empty_directory_is_accepted(place: bytes) -> None:
    full = place + b"/full"
    os.makedirs(full + b"/x")
    done = run("fbench", "make", full)
    assert done.code == 2
    assert "it is not empty" in done.said
    assert os.listdir(full) == [b"x"]
    os.symlink(b"full", place + b"/link")
    assert run("fbench", "make", place + b"/link").code == 2
    empty = place + b"/empty"
    os.mkdir(empty)
    inside = run("fbench", "make", "--record", empty + b"/made", empty)
    assert inside.code == 2
    assert "the record would be inside the tree" in inside.said
    assert os.listdir(empty) == []
    assert run("fbench", "make", "--shape", "files=3,directories=1", empty).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["make", "--shape", "colour=3"], "must be NAME=VALUE; choose from files"),
        (["make", "--shape", "files=-1"], "--shape"),
        (["make", "--shape", "files=x"], "--shape"),
        (["make", "--shape", "names=long"], "choose from plain, odd"),
        (["make", "--seed", "-3"], "--seed"),
        (["make", "--made", "x"], "fbench make does not take --made"),
        (["make", "--blocks", "3"], "fbench make does not take --blocks"),
        (["corrupt"], "requires --made"),
        (["corrupt", "--made", "/dev/null"], "is not a record written by fbench make"),
        (["corrupt", "--made", "x", "--shape", "files=1"], "fbench corrupt does not take --shape"),
        (["corrupt", "--made", "x", "--changes", "0"], "--changes"),
        (["--seed", "3"], "--seed applies only to fbench make"),
    ],
)
def test_mistakes_are_refused(place: bytes, words: list[str], said: str) -> None:
    folder = place + b"/none"
    done = run("fbench", *words, folder)
    assert done.code == 2, done.said
    assert said in done.said
    assert not os.path.exists(folder)


@pytest.mark.mpi
def test_a_launcher_creates_one_tree(place: bytes) -> None:
    words = ("make", place + b"/t")
    with Run(Launcher(ranks=2), *words, program=("pcircle.tools.fbench",)) as started:
        assert started.finish().code == 0
    assert len(found(place + b"/t")) == 1000 + 100 + 20 + 20
