"""Names of other hosts and of object stores are refused, unless a local file has that name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

TOOLS = [
    ("fcp", "{}", "new"),
    ("fcp", "here", "{}"),
    ("fsum", "{}"),
    ("fprof", "{}"),
    ("ffind", "{}"),
    ("fls", "{}"),
    ("fdiff", "{}", "here"),
    ("fmirror", "{}", "new"),
    ("fmirror", "here", "{}"),
    ("frm", "-r", "{}"),
    ("fchmod", "755", "{}"),
    ("fchown", "root:root", "{}"),
    ("fbcast", "{}", "new"),
    ("fbench", "{}"),
]


@pytest.mark.parametrize("words", TOOLS, ids=" ".join)
def test_a_remote_path_is_refused(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "here").mkdir()
    remotes = ("node7:data", "user@node7:/data", "s3://bucket/data")
    for remote in remotes if words[0] == "fcp" else remotes[:1]:
        tool, *more = (word.format(remote) for word in words)
        done = run([sys.executable, str(ROOT / "bin" / tool), *more], cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(
            f"{tool}: '{remote}': remote paths are not supported; ".encode()
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_a_local_file_with_the_name_is_copied(run: Run, tmp_path: Path) -> None:
    (tmp_path / "node7:data").write_text("content")
    fcp = [sys.executable, str(ROOT / "bin" / "fcp"), "-q", "-j1"]
    for words in (("node7:data", "copy"), ("copy", "./12:30"), ("copy", "12:30")):
        done = run([*fcp, *words], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "12:30").read_text() == "content"


def test_a_missing_path_is_ignored_by_frm_f(run: Run, tmp_path: Path) -> None:
    done = run([sys.executable, str(ROOT / "bin" / "frm"), "-qf", "node7:data"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
