"""--rot finds a byte that changes below the file system without a write."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.tools.fcp.running import ONE, Launcher

from .running import run_fsum, some_launchers

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="mounts a file system of a file"
)


@contextmanager
def _mounted(image: Path, place: Path) -> Iterator[None]:
    mount = ["mount", "-o", "loop", str(image), str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("loop devices can't be mounted here")
    try:
        yield
    finally:
        # A mount namespace created meanwhile, by another test, still has the file system.
        subprocess.run(["sync", "-f", str(place)], check=True)
        subprocess.run(["umount", str(place)], check=True)


@some_launchers
def test_a_byte_that_changes_on_disk_is_found(launcher: Launcher, tmp_path: Path) -> None:
    """--rot reports it as corrupt, --check as changed; --quick and --update trust times.

    These two miss it. A file that was written to is not corrupt, even if its modification time was
    restored.
    """
    image, place = tmp_path / "image", tmp_path / "place"
    with open(image, "wb") as stream:
        stream.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    place.mkdir()
    manifest = str(tmp_path / "m")
    contents = [Random(number).randbytes(200_000) for number in range(3)]
    with _mounted(image, place):
        for number, content in enumerate(contents):
            (place / f"f{number}").write_bytes(content)
        assert run_fsum(ONE, "-o", manifest, str(place)).code == 0
        assert run_fsum(launcher, "--rot", manifest).code == 0
    disk = bytearray(image.read_bytes())
    at = disk.index(contents[1][100_000:100_100])
    disk[at] ^= 4
    rotten = tmp_path / "rotten"
    rotten.write_bytes(disk)
    with _mounted(rotten, place):
        for arguments, code, out in (
            (["--rot"], 3, b"corrupt  f1\n"),
            (["--check"], 3, b"changed  f1\n"),
            (["--quick", "--check"], 0, b""),
        ):
            found = run_fsum(launcher, *arguments, manifest)
            assert (found.code, found.out) == (code, out), found.said
        status = (place / "f2").stat()
        (place / "f2").write_bytes(bytes(200_000))
        os.utime(place / "f2", ns=(status.st_atime_ns, status.st_mtime_ns))
        assert run_fsum(launcher, "--rot", manifest).out == b"corrupt  f1\n"
        assert run_fsum(launcher, "--quick", "--check", manifest).out == b""
        assert run_fsum(launcher, "--check", manifest).out == b"changed  f1\nchanged  f2\n"
