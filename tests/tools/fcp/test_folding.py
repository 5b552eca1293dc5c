"""Targets that treat names as equal: by case, or by Unicode form, like vfat, CIFS and macOS.

If two names of a source are one in the target, all but one fail, or all if the name existed before:
neither replaces the other, and two directories are not merged. The target is the tests' own FUSE
file system; ext4 and vfat, where the kernel supports them, behave equally.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable

import pytest

from ...fusefs.mounting import Mounted
from .interrupts import checkpoints, interrupt
from .judge import METADATA, differences
from .running import ONE, TWO, Finished, Launcher, document, run_fcp
from .trees import content, make_directory, write_file

LARGE_BYTES = (4 << 20) + 77
PAIRS = {
    "case": lambda name: (name.capitalize(), name.upper()),
    "form": lambda name: (name + "\u00e9".encode(), name + "e\u0301".encode()),
}
KINDS = (b"small", b"large", b"mixed", b"link", b"fifo", b"hard", b"tree")
Folds = Callable[[str], bytes]


@pytest.fixture
def folds(place: bytes, fuse: Callable[..., Mounted]) -> Folds:
    """Return a function that returns a directory on a file system that folds names."""
    return lambda folding: fuse(folding=folding).path


def _build(place: bytes, folding: str, *, preserve: bool) -> bytes:
    """Build pairs of names of every type, and some single ones."""
    source = make_directory(place, b"source")
    sizes = {b"large": (LARGE_BYTES, LARGE_BYTES), b"mixed": (LARGE_BYTES, 5), b"small": (5, 9)}
    for kind in KINDS:
        pair = [os.path.join(source, name) for name in PAIRS[folding](kind)]
        if kind in sizes:
            for path, size in zip(pair, sizes[kind], strict=True):
                write_file(path, content(repr(path), size))
        for path in pair:
            if kind == b"link":
                os.symlink(path, path)
            elif kind == b"fifo" and preserve:
                os.mkfifo(path)
            elif kind == b"tree":
                write_file(make_directory(path) + b"/same", path)
                write_file(path + b"/own " + path[-1:], path)
        if kind == b"hard" and preserve:
            for first, second in (pair, (source + b"/hard alone", source + b"/alone hard")):
                os.link(write_file(first, b"two names"), second)
    make_directory(source, b"alone")
    for number in range(66):
        write_file(source + b"/alone/file %d" % number, b"%d" % number)
    write_file(source + b"/alone/large", content(4, LARGE_BYTES))
    return source


def _contents(path: bytes) -> object:
    """Return everything behind a name."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if stat.S_ISDIR(mode):
        return {name: _contents(os.path.join(path, name)) for name in os.listdir(path)}
    if stat.S_ISREG(mode):
        with open(path, "rb") as stream:
            return stream.read()
    return stat.S_IFMT(mode)


def _pairs(source: bytes, folding: str) -> list[tuple[bytes, bytes]]:
    pairs = [PAIRS[folding](kind) for kind in KINDS]
    return [(a, b) for a, b in pairs if os.path.lexists(os.path.join(source, a))]


def _judge(finished: Finished, source: bytes, target: bytes, folding: str) -> None:
    """Check that one name of each pair is complete and the other reported."""
    assert finished.code == 1, finished.said
    for pair in _pairs(source, folding):
        found = _contents(os.path.join(target, pair[0]))
        sources = [_contents(os.path.join(source, name)) for name in pair]
        assert found in sources, (pair, finished.said)
        named = [f"/{name.decode()}': " in finished.said for name in pair]
        assert sum(named) == 1, (pair, finished.said)
        assert sources[0] == sources[1] or found == sources[named.index(False)], pair
    assert _contents(target + b"/alone") == _contents(source + b"/alone")
    assert len(os.listdir(target)) == len(os.listdir(source)) - len(_pairs(source, folding))


@pytest.mark.parametrize(
    ("folding", "launcher", "options"),
    [
        ("case", TWO, ["-a", "--verify"]),
        ("case", ONE, ["--inplace"]),
        ("form", ONE, ["-n"]),
        ("form", TWO, ["-a", "-u", "--skip-same"]),
    ],
    ids=str,
)
def test_two_names_that_are_one_are_a_failure(
    folding: str, launcher: Launcher, options: list[str], place: bytes, folds: Folds
) -> None:
    source = _build(place, folding, preserve="-a" in options)
    target = folds(folding) + b"/copy"
    log = place + b"/log"
    report = place + b"/result"
    arguments: list[str | bytes] = [*options, "--chunksize", "4M", "--json", report]
    arguments += [source, target]
    first = run_fcp(launcher, "--error-log", log, *arguments)
    _judge(first, source, target, folding)
    result = document(report)
    assert result["failed"] == len(_pairs(source, folding))
    # Again: the existing entry belongs to both names, so both are reported, none skipped or
    # replaced.
    before = {pair: _contents(os.path.join(target, pair[0])) for pair in _pairs(source, folding)}
    for again in (("--dry-run",), ("--retry-from", log), ()):
        finished = run_fcp(launcher, *again, "-T", *arguments)
        assert finished.code == 1, (again, finished.said)
        for pair, contents in before.items():
            assert _contents(os.path.join(target, pair[0])) == contents, (again, pair)
            named = [f"/{name.decode()}': " in finished.said for name in pair]
            assert sum(named) == (1 if "--retry-from" in again else 2), (again, pair)
        left_over = [name for name in os.listdir(target) if name.startswith(b".fcp-")]
        assert left_over == []
    assert _contents(target + b"/alone") == _contents(source + b"/alone")
    # Excluding one of them avoids the conflict.
    leave = [f"--exclude=/{second.decode()}" for _, second in _pairs(source, folding)]
    finished = run_fcp(launcher, "-T", *leave, *arguments)
    assert finished.code == 0, finished.said


def test_resumed_copies_recognize_their_own_names(place: bytes, folds: Folds) -> None:
    """Entries of an earlier run of the job do not collide, committed or not."""
    home = folds("case")
    source = _build(place, "case", preserve=True)
    for number in range(600):
        write_file(source + b"/alone/more %d" % number, b"more")
    target = home + b"/copy"
    interrupt(TWO, home, "-a", "--chunksize", "4M", source, target)
    finished = run_fcp(TWO, "-a", "--resume", "--chunksize", "4M", source, target)
    assert finished.code == 1, finished.said
    assert checkpoints(home) == []
    lines = [line for line in finished.said.splitlines() if "cannot" in line]
    assert all("alone" not in line for line in lines), finished.said
    assert _contents(target + b"/alone") == _contents(source + b"/alone")
    for pair in _pairs(source, "case"):
        assert any(f"/{name.decode()}': " in finished.said for name in pair)
        found = _contents(os.path.join(target, pair[0]))
        assert found in [_contents(os.path.join(source, name)) for name in pair]


@pytest.mark.parametrize("existing", [False, True])
def test_sources_whose_names_are_one(existing: bool, place: bytes, folds: Folds) -> None:
    home = folds("case")
    files = [
        write_file(make_directory(place, x) + b"/" + n, x) for x, n in ((b"1", b"A"), (b"2", b"a"))
    ]
    trees = [make_directory(place, b"1", b"Tree"), make_directory(place, b"2", b"tREE")]
    for tree in trees:
        write_file(tree + b"/same", tree)
        write_file(tree + b"/own" + tree[-1:], tree)
    write_file(home + b"/Other", b"by which a dry run finds out that names are folded")
    if existing:
        write_file(home + b"/A", b"old")
        write_file(make_directory(home, b"Tree") + b"/same", b"old")
    before = _contents(home)
    for options in (["--dry-run"], []):
        finished = run_fcp(TWO, *options, *files, *trees, home)
        assert finished.code == 1, finished.said
        for pair in (files, trees):
            named = sum(f"'{path.decode()}': " in finished.said for path in pair)
            assert named == (2 if existing else 1), finished.said
    if existing:
        assert _contents(home) == before
    else:
        assert _contents(home + b"/a") in (b"1", b"2")
        assert _contents(home + b"/tree") in [_contents(tree) for tree in trees]


def test_similar_names_are_no_failure(place: bytes) -> None:
    """Where names are not folded, links of one inode with similar names are replaced normally."""
    source, target = make_directory(place, b"source"), place + b"/target"
    write_file(source + b"/File", b"both")
    for alike in (b"fILE", b"FILE", b"file"):
        os.link(source + b"/File", source + b"/" + alike)
    for options in (["-a"], ["-au"], ["-an"], ["-a", "--inplace"]):
        finished = run_fcp(TWO, "-T", *options, source, target)
        assert finished.code == 0, finished.said
        assert differences(source, target, METADATA) == []


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "vfat", "xfs"])
def test_file_systems_that_fold(kind: str, place: bytes) -> None:
    """The kernel must support them.

    With ext4 and tmpfs folding applies to a directory and its subtree.
    """
    image, home = write_file(place + b"/image", b""), make_directory(place, b"mounted")
    os.truncate(image, 400 << 20)
    if os.geteuid() != 0:
        pytest.skip("only root may mount")

    def do(*command: str | bytes) -> None:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]!r} is not installed")
        finished = subprocess.run(command, check=False, capture_output=True)
        if finished.returncode != 0:
            pytest.skip(f"{command!r} does not work here: {finished.stderr!r}")

    made = {"ext4": ("-O", "casefold"), "vfat": (), "xfs": ("-q", "-n", "version=ci")}
    if kind == "tmpfs":
        do("mount", "-t", kind, "-o", "casefold", kind, home)
    else:
        do(f"mkfs.{kind}", *made[kind], image)
        do("mount", "-o", "loop", image, home)
    try:
        folding = make_directory(home, b"folding")
        if kind in ("ext4", "tmpfs"):
            do("chattr", "+F", folding)
        source = _build(place, "case", preserve=False)
        if kind == "vfat":
            for name in PAIRS["case"](b"link"):
                os.unlink(os.path.join(source, name))
        for number in range(2):
            if kind in ("ext4", "tmpfs"):
                finished = run_fcp(TWO, "-T", "--chunksize", "4M", source, home + b"/plain")
                assert finished.code == 0, finished.said
            arguments = ("-T", "--chunksize", "4M", source, folding + b"/copy")
            finished = run_fcp(TWO, *arguments)
            if number == 0:
                _judge(finished, source, folding + b"/copy", "case")
            assert finished.code == 1, finished.said
    finally:
        subprocess.run(["umount", home], check=True)
