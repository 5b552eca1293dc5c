"""`--list-out KIND:FILE`: each file once, with the values of du, find and its content."""

from __future__ import annotations

import os
import socket
import subprocess
import zlib
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.layouts import NAME, Md
from tests.tools.fcp.running import ONE, Launcher
from tests.tools.fprof.running import profiled, run_fprof, some_launchers

PIECE = 64 << 10
KINDS = ("sparse", "stripe", "compress", "special")


@pytest.fixture
def tree(place: bytes) -> Path:
    """Create some hundred files, of which a third has holes."""
    top = Path(os.fsdecode(place)) / "tree"
    for folder in ("a", "a/b", "c"):
        (top / folder).mkdir(parents=True, exist_ok=True)
        for number in range(40):
            with open(top / folder / f"f{number}", "wb") as file:
                file.write(os.urandom(4096) if number % 2 else b"z" * 4096)
                file.truncate((number % 3 or 100) * 4096)
        os.mkfifo(top / folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(top / "c/socket"))
    return top


def rows(path: Path, end: bytes = b"\n") -> list[list[bytes]]:
    """Return the rows of a list after its first line."""
    first, *found = path.read_bytes().split(end)[:-1]
    assert first.startswith(b"#")
    assert first.endswith(b"\tpath")
    return [row.split(b"\t") for row in found]


@some_launchers
def test_each_file_has_its_line(launcher: Launcher, tree: Path, tmp_path: Path) -> None:
    lists = {kind: tmp_path / kind for kind in KINDS}
    options = [word for kind in KINDS for word in ("--list-out", f"{kind}:{lists[kind]}")]
    document = profiled(launcher, *options, os.fspath(tree))
    found = {kind: rows(lists[kind]) for kind in KINDS}

    printed = subprocess.check_output(["find", tree, "-type", "f", "-printf", "%s\t%b\t%p\n"])
    files = [line.split(b"\t") for line in printed.splitlines()]
    sparse = [
        [size, b"%d" % (int(blocks) * 512), b"%d" % (int(size) - 4096), b"0", path]
        for size, blocks, path in files
        if int(blocks) * 512 < int(size)
    ]
    assert len(sparse) > 50  # the place is in memory, where holes are
    assert sorted(found["sparse"]) == sorted(sparse)
    assert document["sparse"]["number"] == len(sparse)
    assert sorted(found["stripe"]) == sorted([s, b"no layout", path] for s, _, path in files)
    # With few pieces the sample contains each of them once.
    assert sorted(path for *_, path in found["compress"]) == sorted(path for *_, path in files)
    for size, read, packed, path in found["compress"]:
        data = Path(os.fsdecode(path)).read_bytes()
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        assert int(size) == int(read) == len(data)
        assert int(packed) == sum(min(len(p), len(zlib.compress(p, 1))) for p in pieces)
    special = {path: kind for kind, path in found["special"]}
    at = os.fsencode(tree)
    pipes = {b"%b/%b/pipe" % (at, folder): b"pipe" for folder in (b"a", b"a/b", b"c")}
    assert special == pipes | {at + b"/c/socket": b"socket"}
    assert document["counts"]["specials"] == {"pipes": 3, "sockets": 1}


def test_layouts_of_lustre(fuse: Mount, tmp_path: Path) -> None:
    mounted = fuse(lustre=True)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOCTTY | os.O_ASYNC  # without a layout
    for name, stripes in ((b"one", 1), (b"four", 4)):
        fd = os.open(mounted.path + b"/" + name, flags)
        os.setxattr(fd, NAME, Md(stripes, 1 << 20).pack())
        os.close(fd)
    profiled(ONE, "--list-out", f"stripe:{tmp_path}/list", mounted.path)
    found = {os.path.basename(path): layout for _, layout, path in rows(tmp_path / "list")}
    assert found == {b"one": b"1 x 1.0 MiB", b"four": b"4 x 1.0 MiB"}


def test_a_path_with_a_newline_wants_null(tree: Path, tmp_path: Path) -> None:
    os.truncate(tree / "a/f0", 1 << 20)
    os.rename(tree / "a/f0", tree / "a/odd\nname")
    out, place = f"sparse:{tmp_path}/list", os.fspath(tree / "a/odd\nname")
    done = run_fprof(ONE, "-q", "--list-out", out, os.fspath(tree))
    assert done.code == 1
    assert "fprof: --list-out: 1 entry is missing from the list: newline" in done.said
    assert len(rows(tmp_path / "list")) > 50
    done = run_fprof(ONE, "-q", "-0", "--list-out", out, os.fspath(tree))
    assert done.code == 0, done.said
    assert os.fsencode(place) in [row[-1] for row in rows(tmp_path / "list", b"\0")]


def test_a_file_as_path(tree: Path, tmp_path: Path) -> None:
    done = run_fprof(ONE, "-q", "--list-out", f"sparse:{tmp_path}/list", os.fspath(tree / "a/f0"))
    assert done.code == 0, done.said
    assert [row[-1] for row in rows(tmp_path / "list")] == [os.fsencode(tree / "a/f0")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sparse"], "invalid value 'sparse': must be KIND:FILE, with a KIND of sparse, stripe"),
        (["holes:x"], "invalid value 'holes:x': must be KIND:FILE"),
        (["sparse:"], "empty file name"),
        (["sparse:x", "sparse:y"], "there can be only one list of kind sparse"),
        (["sparse:-"], "'-' is not supported"),
        (["sparse:x", "stripe:x"], "cannot both write to 'x'"),
        (["sparse:no/such/place"], "cannot write 'no/such/place'"),
    ],
)
def test_invalid_options_are_refused(words: list[str], said: str, place: bytes) -> None:
    options = [f"--list-out={word}" for word in words]
    done = run_fprof(ONE, *options, ".", cwd=place)
    assert done.code == 2
    assert "--list-out" in done.said
    assert said in done.said
