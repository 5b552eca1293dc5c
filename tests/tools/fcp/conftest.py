"""Fixtures of the fcp tests: directories for trees, and shared trees.

Trees are on ``/dev/shm`` where it exists (a tmpfs is fast and keeps all times), and are removed by
our own remover, because pytest's can't delete the deep ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest

from ...fusefs.fixture import fuse
from .trees import build_deep_tree, build_odd_tree, make_directory, remove_tree, write_file

__all__ = ["fuse"]

SHARED_MEMORY = b"/dev/shm"
ROOM_BYTES = 3 << 30
VAST_ENTRIES = 3_100_000  # that a test of `vast_place` may create


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "mpi: needs mpirun and mpi4py")
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


def _make_place() -> bytes:
    usable = False
    if os.path.isdir(SHARED_MEMORY) and os.access(SHARED_MEMORY, os.W_OK):
        # Containers often have one of 64 MiB: the trees would not fit.
        status = os.statvfs(SHARED_MEMORY)
        usable = status.f_bavail * status.f_frsize > ROOM_BYTES
    return tempfile.mkdtemp(prefix=b"fcp-test-", dir=SHARED_MEMORY if usable else None)


@pytest.fixture
def place() -> Iterator[bytes]:
    """Create an empty directory for this test, in memory where possible."""
    path = _make_place()
    yield path
    remove_tree(path)


@pytest.fixture
def vast_place() -> Iterator[bytes]:
    """Create an empty directory for millions of entries, in memory, for one test at a time.

    Root has a private tmpfs: the inodes of the system's are limited for all users.
    """
    lock_path = os.path.join(tempfile.gettempdir(), f"pcircle-tests-vast-{os.getuid()}")
    with open(lock_path, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = _make_place()
        options = b"nr_inodes=0,size=8g,mode=700"
        mounted = (
            os.geteuid() == 0
            and not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
                check=False,
                capture_output=True,
            ).returncode
        )
        try:
            if not mounted and os.statvfs(path).f_favail < VAST_ENTRIES:
                pytest.skip("no room for millions of entries")
            yield path
        finally:
            if mounted:
                subprocess.run(["umount", "-l", path], check=True)
            remove_tree(path)


@pytest.fixture(scope="session")
def shared_place() -> Iterator[bytes]:
    """Create a directory for all tests of a session: its contents must not be changed."""
    path = _make_place()
    yield path
    remove_tree(path)


@pytest.fixture(scope="session")
def odd_tree(shared_place: bytes) -> bytes:
    """Build the tree of everything rare; read only."""
    return build_odd_tree(os.path.join(shared_place, b"odd"))


@pytest.fixture(scope="session")
def deep_tree(shared_place: bytes) -> bytes:
    """Build a tree of 3,000 levels with paths of 27,000 bytes; read only."""
    return build_deep_tree(os.path.join(shared_place, b"deep"), 3000)


@pytest.fixture
def mount_tmpfs(place: bytes) -> Iterator[Callable[[str], bytes]]:
    """Return a function that mounts a tmpfs with options and returns its path (root only)."""
    mounted: list[bytes] = []

    def mount(options: str) -> bytes:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small tmpfs")
        path = os.path.join(place, b"mount %d" % len(mounted))
        os.mkdir(path)
        finished = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
            check=False,
            capture_output=True,
        )
        if finished.returncode != 0:
            pytest.skip(f"this system lets root mount no tmpfs: {finished.stderr!r}")
        mounted.append(path)
        return path

    yield mount
    for path in reversed(mounted):
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def mount(place: bytes) -> Iterator[Callable[..., bytes]]:
    """Return a function that mounts an empty file system and returns its path (root only)."""
    mounted: list[bytes] = []

    def run(*command: str | bytes) -> None:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]!r} is not installed")
        finished = subprocess.run(command, check=False, capture_output=True)
        if finished.returncode != 0:
            pytest.skip(f"{command!r} does not work here: {finished.stderr!r}")

    def mount(kind: str, size_bytes: int = 0, *options: str) -> bytes:
        if os.geteuid() != 0:
            pytest.skip("only root may mount")
        path = make_directory(place, b"mount %d" % len(mounted))
        if not size_bytes:
            run("mount", "-t", kind, kind, path)
        else:
            image = place + b"/image %d" % len(mounted)
            write_file(image, b"")
            os.truncate(image, size_bytes)
            quiet = () if kind == "vfat" else ("-q",)
            run(f"mkfs.{kind}", *quiet, *options, image)
            run("mount", "-o", "loop", image, path)
        mounted.append(path)
        return path

    yield mount
    for path in reversed(mounted):
        subprocess.run(["umount", path], check=True)
