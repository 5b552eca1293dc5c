"""The ways of copying bytes: clones where file systems can share blocks, copies elsewhere.

The tests use real file systems: XFS and btrfs on loop devices (root only), the tmpfs and the disk
of the other tests, and each pair of them. The file system itself reports that blocks are shared
(FIEMAP); holes are compared by SEEK_HOLE. Speed is not measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.programs import required

from .judge import CONTENT, data_map, differences, hole_differences
from .running import FOUR, ONE, TWO, Launcher, copy, document, launchers, run_fcp
from .trees import KIB, MIB, add_holes, content

IMAGE_BYTES = 512 * MIB
MAKERS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"]}
SIZES = {b"empty": 0, b"small": 20 * KIB, b"medium": 2 * MIB, b"large": 5 * MIB + 5}
CHUNKS = "--chunksize=4M"  # larger files are copied in chunks

ways_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2]))


def _run(*command: str | bytes) -> None:
    finished = subprocess.run(command, check=False, capture_output=True)
    if finished.returncode != 0:
        pytest.skip(f"{command[0]!r} does not work here: {finished.stderr!r}")


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], bytes]]:
    """Return a function that returns the mount point of a file system type, created on demand.

    `shm` and `disk` are existing folders: on a tmpfs, if there is one, and on the disk.
    """
    home = tmp_path_factory.mktemp("images")
    made: dict[str, bytes] = {}

    def mounted(kind: str) -> bytes:
        if os.geteuid() != 0:
            pytest.skip("only root can mount an image")
        if shutil.which(MAKERS[kind][0]) is None:
            pytest.skip(f"{MAKERS[kind][0]} is not installed")
        image, folder = home / f"{kind}.img", home / kind
        with image.open("wb") as stream:
            stream.truncate(IMAGE_BYTES)
        folder.mkdir(exist_ok=True)  # a previous test has skipped
        _run(*MAKERS[kind], str(image))
        _run("mount", "-o", "loop", str(image), str(folder))
        image.unlink()  # its space is released after the unmount
        return os.fsencode(folder)

    def get(kind: str) -> bytes:
        if kind not in made:
            made[kind] = mounted(kind)
        return made[kind]

    yield get
    for folder in made.values():
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def room(
    mounts: Callable[[str], bytes], place: bytes, tmp_path: Path
) -> Iterator[Callable[[str], bytes]]:
    """Return a function that returns an empty folder for this test on a file system of a type."""
    used: list[bytes] = []

    def get(kind: str) -> bytes:
        base = {"shm": place, "disk": os.fsencode(tmp_path)}.get(kind)
        folder = os.path.join(mounts(kind) if base is None else base, b"room %d" % len(used))
        os.mkdir(folder)
        used.append(folder)
        return folder

    yield get
    for folder in used:
        shutil.rmtree(folder)


def _sync(path: bytes) -> None:
    """Make the file system of `path` allocate all blocks."""
    subprocess.run([b"sync", b"-f", path], check=True)


def _write_sizes(folder: bytes) -> bytes:
    source = os.path.join(folder, b"source")
    os.mkdir(source)
    for number, (name, size_bytes) in enumerate(SIZES.items()):
        with open(os.path.join(source, name), "xb") as stream:
            stream.write(content(number, size_bytes))
    _sync(source)
    return source


def _is_shared(path: bytes) -> bool:
    """Return whether all extents of a file are shared, according to the file system."""
    said = subprocess.run(
        [required("filefrag"), "-sv", path], check=True, capture_output=True
    ).stdout
    extents = [line for line in said.splitlines() if line.split(b":")[0].strip().isdigit()]
    assert extents, said
    shared = {b"shared" in line for line in extents}
    assert len(shared) == 1, said
    return shared.pop()


# ---- clones ----------------------------------------------------------------------------------


@ways_launchers
@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_files_except_small_ones_are_cloned(
    room: Callable[[str], bytes], kind: str, launcher: Launcher
) -> None:
    folder = room(kind)
    source, target = _write_sizes(folder), folder + b"/copy"
    json = folder + b"/json"
    copy(launcher, CHUNKS, "-p", "--json", json, source, target)
    assert differences(source, target, CONTENT) == []
    assert _is_shared(target + b"/large")
    assert _is_shared(target + b"/medium")
    result = document(json)
    assert (result["bytes"], result["files"]) == (sum(SIZES.values()), len(SIZES))


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_never_cloned_on_request(room: Callable[[str], bytes], kind: str) -> None:
    """Nor by copy_file_range, which clones on these file systems."""
    folder = room(kind)
    source, target = _write_sizes(folder), folder + b"/copy"
    copy(TWO, CHUNKS, "--reflink=never", source, target)
    assert differences(source, target, CONTENT) == []
    _sync(target)
    assert not _is_shared(target + b"/large")
    assert not _is_shared(target + b"/medium")
    assert not _is_shared(source + b"/large")


@ways_launchers
def test_always_cloned_on_request(room: Callable[[str], bytes], launcher: Launcher) -> None:
    """The option has no value, as in cp; small, empty, sparse and replaced files are included."""
    folder = room("xfs")
    source, target = _write_sizes(folder), folder + b"/copy"
    add_holes(source)
    for _ in range(2):
        copy(launcher, CHUNKS, "-T", "--reflink", source, target)
        assert differences(source, target, CONTENT) == []
        assert hole_differences(source + b"/holes", target + b"/holes") == []
        assert all(_is_shared(target + b"/" + name) for name in SIZES if name != b"empty")
        assert _is_shared(target + b"/holes/chunks")


@ways_launchers
def test_failed_clones_are_named(place: bytes, launcher: Launcher) -> None:
    source, target = _write_sizes(place), place + b"/copy"
    os.mkdir(target)
    with open(target + b"/medium", "xb") as stream:
        stream.write(b"old")
    finished = run_fcp(launcher, CHUNKS, "-T", "--reflink=always", source, target)
    probe = subprocess.run(
        ["cp", "--reflink=always", source + b"/small", place + b"/probe"],
        check=False,
        capture_output=True,
    )
    if probe.returncode == 0:
        pytest.skip("the file system of the temporary folder can clone")
    assert finished.code == 1
    for name in SIZES:
        assert f"cannot clone '{os.fsdecode(source + b'/' + name)}'" in finished.said
    assert os.listdir(target) == [b"medium"]
    with open(target + b"/medium", "rb") as stream:
        assert stream.read() == b"old"


def test_nothing_is_cloned_between_file_systems(
    room: Callable[[str], bytes],
) -> None:
    source, target = _write_sizes(room("xfs")), room("btrfs") + b"/copy"
    finished = run_fcp(ONE, CHUNKS, "--reflink=always", source, target)
    assert finished.code == 1
    assert finished.said.count("cannot clone") == len(SIZES)
    assert os.listdir(target) == []


# ---- pairs of file systems -------------------------------------------------------------------

PAIRS = [
    *[("xfs", "xfs"), ("xfs", "btrfs"), ("xfs", "shm"), ("btrfs", "btrfs"), ("btrfs", "xfs")],
    *[("btrfs", "disk"), ("shm", "xfs"), ("shm", "disk"), ("disk", "btrfs"), ("disk", "shm")],
]


@pytest.mark.parametrize(("of", "to"), PAIRS)
def test_contents_and_holes_arrive_between_file_systems(
    room: Callable[[str], bytes], of: str, to: str
) -> None:
    source, target = _write_sizes(room(of)), room(to) + b"/copy"
    add_holes(source)
    _sync(source)
    copy(TWO, CHUNKS, source, target)
    assert differences(source, target, CONTENT) == []
    _sync(target)
    assert hole_differences(source + b"/holes", target + b"/holes") == []


def test_each_source_file_system_is_copied_in_its_own_way(
    room: Callable[[str], bytes],
) -> None:
    """A pair that can't clone does not affect the others, whichever comes first."""
    folder, other = room("xfs"), room("shm")
    source, foreign = _write_sizes(folder), _write_sizes(other)
    os.rename(foreign, other + b"/foreign")
    os.mkdir(folder + b"/copy")
    copy(ONE, CHUNKS, other + b"/foreign", source, folder + b"/copy")
    assert differences(source, folder + b"/copy/source", CONTENT) == []
    assert differences(other + b"/foreign", folder + b"/copy/foreign", CONTENT) == []
    assert _is_shared(folder + b"/copy/source/large")
    assert _is_shared(folder + b"/copy/source/medium")


# ---- holes -----------------------------------------------------------------------------------


def _write_zeros(folder: bytes) -> bytes:
    """Create files with zeros in dense regions and with data at (offset, length)."""
    source = os.path.join(folder, b"source")
    os.mkdir(source)
    for name, size_bytes, data in (
        (b"zeros", 6 * MIB, ()),
        (b"large", 6 * MIB + 77, ((3, 5), (5 * MIB + 4096, 1), (6 * MIB, 77))),
        (b"medium", 2 * MIB + 1, ((MIB - 1, 2),)),
        (b"small", 64 * KIB, ((0, 1), (32 * KIB, 1))),
        (b"dense", MIB, ((0, MIB),)),
        (b"one", 1, ()),
        (b"empty", 0, ()),
    ):
        with open(os.path.join(source, name), "xb") as stream:
            stream.write(bytes(size_bytes))
            for offset, length in data:
                stream.seek(offset)
                stream.write(b"x" * length)
    return source


def _blocks(*numbers: int) -> list[tuple[int, int]]:
    return [(number * 4096, number * 4096 + 4096) for number in numbers]


HOLES_ON = [
    *[
        pytest.param("shm", *each.values, id=f"shm-{each.id}", marks=each.marks)
        for each in launchers([1, 3], [2])
    ],
    pytest.param("disk", ONE, id="disk-j1"),
    pytest.param("xfs", TWO, id="xfs-j2"),
]


@pytest.mark.parametrize(("kind", "launcher"), HOLES_ON)
def test_zeros_become_holes_on_request(
    room: Callable[[str], bytes], kind: str, launcher: Launcher
) -> None:
    folder = room(kind)
    if os.statvfs(folder).f_bsize != 4096:
        pytest.skip("what is expected here is for blocks of 4 KiB")
    source, target = _write_zeros(folder), folder + b"/copy"
    add_holes(source)
    copy(launcher, CHUNKS, "--sparse=always", source, target)
    assert differences(source, target, CONTENT) == []
    _sync(target)
    assert hole_differences(source + b"/holes", target + b"/holes") == []
    assert data_map(target + b"/zeros") == data_map(target + b"/one") == []
    large = [*_blocks(0, 1281), (6 * MIB, 6 * MIB + 77)]
    assert data_map(target + b"/large") == large
    assert data_map(target + b"/medium") == [(MIB - 4096, MIB + 4096)]
    assert data_map(target + b"/small") == _blocks(0, 8)
    assert data_map(target + b"/dense") == [(0, MIB)]
    taken = {name: os.stat(target + b"/" + name).st_blocks for name in (b"zeros", b"large")}
    assert taken[b"zeros"] == 0
    assert taken[b"large"] <= 3 * 8 + 8


@pytest.mark.parametrize(("kind", "launcher"), HOLES_ON)
def test_holes_are_filled_on_request(
    room: Callable[[str], bytes], kind: str, launcher: Launcher
) -> None:
    folder = room(kind)
    source, target = folder + b"/source", folder + b"/copy"
    os.mkdir(source)
    add_holes(source)
    copy(launcher, CHUNKS, "--sparse=never", source, target)
    assert differences(source, target, CONTENT) == []
    _sync(target)
    for name in os.listdir(target + b"/holes"):
        status = os.stat(target + b"/holes/" + name)
        assert status.st_blocks * 512 >= status.st_size
        assert data_map(target + b"/holes/" + name) == [(0, status.st_size)]


def test_required_clones_exclude_sparse_options(place: bytes) -> None:
    source = _write_sizes(place)
    for how in ("always", "never"):
        finished = run_fcp(FOUR, "--reflink", f"--sparse={how}", source, place + b"/copy")
        assert finished.code == 2
        assert "--sparse=auto" in finished.said
    assert os.listdir(place) == [b"source"]


@pytest.mark.parametrize("options", [["--sparse=always"], ["--sparse=never"], ["--reflink=never"]])
def test_files_with_nominal_sizes_are_copied_to_their_end(place: bytes, options: list[str]) -> None:
    """/proc reports no size and /sys a page; the kernel's ways may end at once there."""
    sysfs_file = b"/sys/kernel/mm/transparent_hugepage/enabled"
    sources = [b"/proc/version", *([sysfs_file] if os.path.exists(sysfs_file) else [])]
    copy(ONE, *options, *sources, place)
    for source in sources:
        with (
            open(source, "rb") as left,
            open(os.path.join(place, os.path.basename(source)), "rb") as right,
        ):
            assert left.read() == right.read()
