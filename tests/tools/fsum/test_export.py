"""Checksum lists from manifests: `--checksums` records them, and `--export` prints them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import run_fsum, signed, some_launchers

BLOCK = 4 << 20


@pytest.fixture
def place(tmp_path: Path) -> bytes:
    """Return an empty directory."""
    return os.fsencode(tmp_path)


def _tree(top: bytes) -> None:
    """Create files of all sizes that are read differently, and names that lists escape."""
    os.makedirs(top + b"/a/empty")
    sizes = {
        b"a.b": 5,
        b"a/new\nline": 1,
        b"a/back\\slash": 0,
        b"a/\xff e%": 200_000,
        b"one block": BLOCK,
        b"more": BLOCK + 1,
        b"large": 33 << 20,
    }
    for name, size in sizes.items():
        with open(os.path.join(top, name), "wb") as file:
            file.write(os.urandom(size))
    with open(top + b"/sparse", "wb") as file:  # data within holes
        file.truncate(3 * BLOCK + 7)
        file.seek(BLOCK + 5)
        file.write(b"data")
    os.symlink("a.b", top + b"/link")
    os.mkfifo(top + b"/pipe")


@some_launchers
def test_an_exported_list_is_that_of_the_files(launcher: Launcher, place: bytes) -> None:
    """It is printed without the files, and the digests in the manifest stay the same."""
    _tree(place + b"/t")
    made = run_fsum(launcher, "-o", "m", "--checksums", "sha256", "t", cwd=place)
    plain = run_fsum(ONE, "-o", "plain", "t", cwd=place)
    listed = run_fsum(ONE, "--format=coreutils", "-a", "sha256", "t", cwd=place)
    assert (made.code, made.out) == (0, plain.out)
    assert run_fsum(ONE, "--diff", "m", "plain", cwd=place).code == 0
    exported = run_fsum(launcher, "--export", "m", "t", cwd=place)
    assert (exported.code, exported.out, exported.said) == (0, listed.out, "")
    checked = subprocess.run(
        ["sha256sum", "-c"], input=exported.out, cwd=place, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout
    for option in ("--check", "--rot"):
        assert run_fsum(TWO, option, "m", cwd=place).code == 0
    shutil.rmtree(place + b"/t")
    assert run_fsum(ONE, "--export", "m", "t", cwd=place).out == exported.out
    absolute = run_fsum(ONE, "--export", "m", cwd=place).out
    assert absolute.count(place + b"/t/") == exported.out.count(b"  t/")


def test_an_update_keeps_and_renews_checksums(place: bytes) -> None:
    _tree(place + b"/t")
    signed(TWO, "-o", place + b"/m", "--checksums", "md5", place + b"/t")
    Path(os.fsdecode(place), "t/a.b").write_bytes(b"other")
    Path(os.fsdecode(place), "t/new").write_bytes(b"new")
    os.unlink(place + b"/t/more")
    signed(TWO, "--update", place + b"/m")
    listed = run_fsum(ONE, "--format=coreutils", "-a", "md5", "t", cwd=place)
    assert run_fsum(ONE, "--export", "m", "t", cwd=place).out == listed.out


def test_a_manifest_of_a_file(place: bytes) -> None:
    Path(os.fsdecode(place), "file").write_bytes(b"content")
    run_fsum(ONE, "-o", "m", "--checksums", "sha1", "file", cwd=place)
    digest = b"040f06fd774092478d450774f5ba30c5da78acc8"
    assert run_fsum(ONE, "--export", "m", cwd=place).out == digest + b"  " + place + b"/file\n"
    assert run_fsum(ONE, "--export", "m", "x", cwd=place).out == digest + b"  x\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--export", "plain"],
            "'plain' records no checksums of whole files; write it with -o and",
        ),
        (["--export", "none"], "cannot read 'none': No such file"),
        (["--export", "plain", "--json", "x"], "--export cannot be combined with --json"),
        (["--export", "plain", "--quick"], "--export takes a manifest and no other option"),
        (["--export", "plain", "--stats"], "--export takes a manifest and no other option"),
        (["--export", "plain", "-v"], "--export takes a manifest and no other option"),
        (["--export", "plain", "-j2"], "--export takes a manifest and no other option"),
        (["--export", "plain", "--transport=mpi"], "--export takes a manifest and no other option"),
        (["--export", "plain", "d", "d"], "--export takes a manifest and no other option"),
        (["--checksums", "md5", "d"], "--checksums requires --output"),
        (["--checksums", "md4", "-o", "x", "d"], "--checksums: unknown algorithm 'md4'; choose"),
        (["--format=coreutils", "-o", "x", "d"], "to record checksums in a manifest, use --checks"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_refusals(options: list[str], said: str, place: bytes) -> None:
    os.mkdir(place + b"/d")
    run_fsum(ONE, "-o", "plain", "d", cwd=place)
    finished = run_fsum(ONE, *options, cwd=place)
    assert (finished.code, finished.out) == (2, b"")
    assert said in finished.said
    assert sorted(os.listdir(place)) == [b"d", b"plain"]


def test_fmirror_does_not_renew_a_manifest_with_checksums(place: bytes) -> None:
    """It would record changed files without them."""
    for name in (b"a", b"b"):
        os.mkdir(place + b"/" + name)
    run_fsum(ONE, "-o", "m", "--checksums", "md5", "b", cwd=place)
    words = ("--since-manifest", "m", "--new-manifest", "n", "--allow-empty", "a", "b")
    finished = run_fsum(ONE, *words, cwd=place, program=("pcircle.tools.fmirror",))
    assert (finished.code, os.path.exists(place + b"/n")) == (2, False)
    assert "'m' records checksums of whole files, which are not computed here" in finished.said
    assert "fsum --update" in finished.said


def test_a_quick_check_ignores_checksums(place: bytes) -> None:
    """A file of the recorded size and time is not read, so its checksum is not compared."""
    os.mkdir(place + b"/t")
    for name in (b"a", b"b"):
        with open(place + b"/t/" + name, "wb") as file:
            file.write(name)
    assert run_fsum(ONE, "-o", "m", "--checksums", "sha256", "t", cwd=place).code == 0
    checked = run_fsum(TWO, "--quick", "--check", "m", cwd=place)
    assert checked.code == 0, checked.said
    assert "0 of 2 files checked" in checked.said
    assert "fsum: read 3 entries" in run_fsum(TWO, "-v", "--check", "m", cwd=place).said
    with open(place + b"/t/a", "wb") as file:
        file.write(b"other")
    assert run_fsum(TWO, "--quick", "--check", "m", cwd=place).code == 3
