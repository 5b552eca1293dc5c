"""A file system that reports write errors only when a file is closed.

NFS reports an exceeded quota like this. A run whose journal, manifest or plan cannot be written
stops with exit code 4, any other lost result is a failure, and no descriptor is closed twice.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount, fuse
from tests.fusefs.rules import Rule
from tests.strace import read_calls
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import Finished, Run
from tests.tools.fcp.trees import write_file
from tests.tools.fmirror.running import needs_strace

__all__ = ["fuse", "place"]

_CLOSES = Rule(ops=("flush",), errno="EDQUOT")
_REASON = "Disk quota exceeded"
RESULTS = {
    "fcp --error-log": ["fcp", "-a", "-q", "-T", "--error-log", "OUT", "src", "copy"],
    "fcp --json-lines": ["fcp", "-a", "-q", "-T", "--json-lines", "OUT", "src", "copy"],
    "fcp --json": ["fcp", "-a", "-q", "-T", "--json", "OUT", "src", "copy"],
    "fsum --json": ["fsum", "-q", "--json", "OUT", "src"],
    "fprof --save": ["fprof", "-q", "--save", "OUT", "src"],
    "fprof --csv": ["fprof", "-q", "--csv", "OUT", "src"],
    "fprof --list-out": ["fprof", "-q", "--list-out", "special:OUT", "src"],
    "ffind -fprint": ["ffind", "src", "-fprint", "OUT"],
    "ffind --list-out": ["ffind", "src", "--list-out", "OUT"],
    "fls --csv": ["fls", "-R", "--csv", "OUT", "src"],
    "fdiff --list-out": ["fdiff", "--list-out", "OUT", "src", "same"],
    "fchmod --list-out": ["fchmod", "-R", "-q", "--list-out", "OUT", "g+w", "src"],
    "fmirror --json-lines": ["fmirror", "-q", "--json-lines", "OUT", "src", "copy"],
    "frm --list-out": ["frm", "-r", "-q", "--list-out", "OUT", "src"],
}
STOPPING = {
    "fsum --output": ["fsum", "-q", "--output", "OUT", "src"],
    "fprof --entries": ["fprof", "-q", "--save", "OUT", "--entries", "src"],
    "fmirror --new-manifest": [
        *("fmirror", "-q", "--since-manifest", "old", "--new-manifest", "OUT", "src", "kept")
    ],
    "fchmod --undo": ["fchmod", "-R", "-q", "--undo", "OUT", "g+w", "src"],
    "ffind --plan": ["ffind", "src", "-delete", "--plan", "OUT"],
    "fmirror --plan": ["fmirror", "-q", "--plan", "OUT", "src", "copy"],
    "frm --plan": ["frm", "-r", "-q", "--plan", "OUT", "src"],
}


def run(words: list[str | bytes], *, prefix: tuple[str, ...] = ()) -> Finished:
    program = (f"pcircle.tools.{os.fsdecode(words[0])}",)
    with Run(None, "-j1", *words[1:], program=program, prefix=prefix) as started:
        return started.finish()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for top in ("src", "same"):
        os.makedirs(f"{top}/d")
        for number in range(20):
            write_file(b"%b/d/f%d" % (top.encode(), number), b"content" * 5000)
    os.mkfifo("src/p")
    return tmp_path


@pytest.mark.parametrize("code", [1, 4])
def test_a_failed_close_of_a_result_is_reported(tree: Path, fuse: Mount, code: int) -> None:
    assert run(["fmirror", "-q", "src", "kept"]).code == 0
    assert run(["fsum", "-q", "--output", "old", "kept"]).code == 0
    write_file(b"src/d/new", b"content")
    mounted = fuse()
    out = os.fsdecode(mounted.path) + "/out"
    mounted.rules(_CLOSES)
    # The last two change the tree.
    for name, words in (RESULTS if code == 1 else STOPPING).items():
        finished = run([word.replace("OUT", out) for word in words])
        expected = 3 if words[0] == "fdiff" else code  # differences take precedence over a failure
        assert (finished.code, _REASON in finished.said) == (expected, True), (name, finished.said)
        if code == 4 and "plan" not in name and "undo" not in name:
            assert os.listdir(mounted.backing) == [], name
        for left in os.listdir(mounted.backing):
            path = mounted.backing + b"/" + left
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


@needs_strace
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_journal_that_cannot_be_closed_stops_a_copy(tree: Path, fuse: Mount, skip: int) -> None:
    """A failed close stops the copy, at a commit or at the end; the descriptor is closed once."""
    mounted = fuse()
    checkpoint: list[str | bytes] = ["--checkpoint-dir", mounted.path]
    words: list[str | bytes] = ["fcp", "-a", "-q", "-T", *checkpoint, "src", "copy"]
    for rate in ("500k", "250k", "125k", "60k", "30k"):
        often = ["--checkpoint-interval", "0.2", "--bwlimit", rate] if skip else []
        mounted.rules(_CLOSES._replace(path="*/journal-*", skip=skip))
        traced = ("strace", "-f", "-y", "-o", "calls", "-e", "trace=close,openat")
        finished = run([*words, *often], prefix=traced)
        closes = [call for call in read_calls(Path("calls")) if call.name == "close"]
        if finished.code or sum("/journal-" in call.text for call in closes) > skip:
            break
        shutil.rmtree("copy")  # on a busy machine there were too few commits
    assert finished.code == 4, finished.said
    assert f"cannot write the checkpoint: {_REASON}" in finished.said
    assert [call for call in closes if "EBADF" in call.result] == []
    mounted.rules()
    assert run([*words, "--resume"]).code == 0
    assert len(os.listdir("copy/d")) == 20
    assert os.listdir(mounted.backing) == []


def test_files_of_a_checkpoint_that_were_only_read_may_fail_to_close(
    tree: Path, fuse: Mount
) -> None:
    mounted = fuse()
    words: list[str | bytes] = [
        *("fcp", "-a", "-q", "-T", "--checkpoint-dir", mounted.path, "src", "copy")
    ]
    often = ["--stop-after", "1s", "--checkpoint-interval", "0.2", "--bwlimit", "300k"]
    assert run([*words, *often]).code == 4
    mounted.rules(_CLOSES._replace(path="*/header"), _CLOSES._replace(path="*/journal-0001-*"))
    finished = run([*words, "--resume"])
    assert finished.code == 0, finished.said
    assert len(os.listdir("copy/d")) == 20
