"""Files that 1.0.0 wrote stay readable, as docs/stability.rst promises.

`1.0` contains what `fsum -o` and `fprof --save --entries` wrote of the tree that `data` creates. A
later version must not rewrite these files; a new format gets a directory of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

WRITTEN = Path(__file__).parent / "1.0"
MTIME_S = 1_600_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The tree that the files describe."""
    top = tmp_path / "data"
    (top / "sub").mkdir(parents=True)
    (top / "a.txt").write_bytes(b"hello\n")
    (top / "sub/b.bin").write_bytes(b"x" * 5000)
    (top / "link").symlink_to("a.txt")
    for path in (top / "a.txt", top / "link", top / "sub/b.bin", top / "sub", top):
        os.utime(path, (MTIME_S, MTIME_S), follow_symlinks=False)
    return top


def started(run: Run, tool: str, *words: str | Path) -> tuple[int, str, str]:
    """Run a tool, a job with one process; return its exit code, output and messages."""
    jobs = [] if {"--merge", "--export"} & set(map(str, words)) else ["-j1"]
    done = run([sys.executable, ROOT / "bin" / tool, *jobs, *words])
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("name", ["manifest", "sha256.manifest", "checksums.manifest"])
def test_a_manifest_is_still_checked(run: Run, data: Path, name: str) -> None:
    assert started(run, "fsum", "--check", WRITTEN / name, data)[0] == 0
    (data / "sub/b.bin").write_bytes(b"y" * 5000)
    code, output, _ = started(run, "fsum", "--check", WRITTEN / name, data)
    assert code == 3
    assert "sub/b.bin" in output


def test_checksums_are_still_exported(run: Run) -> None:
    code, output, _ = started(run, "fsum", "--export", WRITTEN / "checksums.manifest", "data")
    assert (code, output.splitlines()) == (
        0,
        [
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03  data/a.txt",
            "c59d3c0480cc2d71d8f646e735e92da65450311eec46e81a5db8c7e6e8a92054  data/sub/b.bin",
        ],
    )


def test_a_tree_still_has_the_same_signature(run: Run, data: Path) -> None:
    for name in ("manifest", "sha256.manifest"):
        algorithm, root = (WRITTEN / name).read_text().splitlines()[:2]
        algorithm = algorithm.split()[-1]
        _, output, _ = started(run, "fsum", "-a", algorithm, data)
        assert output.split()[0] == f"pcsig1:{algorithm}:{root.split()[2]}"


def test_a_profile_is_still_read(run: Run) -> None:
    code, output, _ = started(run, "fprof", "-q", "--json", "-", "--merge", WRITTEN / "profile")
    assert code == 0
    counts = json.loads(output)["counts"]
    assert counts["files"] == {"number": 2, "bytes": 5006, "allocated_bytes": 12288}
    assert counts["links"]["number"] == 1
    assert counts["directories"]["number"] == 2


def test_an_index_is_still_searched(run: Run) -> None:
    index = WRITTEN / "profile.entries"
    found = started(run, "ffind", "--in", index, "-type", "f", "-printf", "%p %s %T@\n")
    assert (found[0], sorted(found[1].splitlines())) == (
        0,
        [
            f"data/a.txt 6 {MTIME_S}.0000000000",
            f"data/sub/b.bin 5000 {MTIME_S}.0000000000",
        ],
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("manifest", ["fsum", "--check"]),
        ("profile", ["fprof", "--merge"]),
        ("profile.entries", ["ffind", "--in"]),
    ],
)
def test_a_newer_format_is_refused(
    run: Run, data: Path, tmp_path: Path, name: str, words: list[str]
) -> None:
    """The message names the file."""
    contents = (WRITTEN / name).read_bytes()
    line, newline, body = contents.partition(b"\n")
    newer = tmp_path / name
    newer.write_bytes(line.replace(b" 1", b" 9", 1) + newline + body)
    code, output, message = started(run, *words, newer)
    assert (code, output) == (2, "")
    assert str(newer) in message
    assert "version" in message
