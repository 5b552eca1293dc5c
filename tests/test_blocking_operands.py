"""Tools do not block on a FIFO without a writer or a device without end."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from tests.strace import read_calls
from tests.tools.fcp.running import Finished, Run
from tests.tools.fmirror.running import needs_strace

WORDS = {
    "p file": ["fdiff", "p", "file"],
    "file p": ["fdiff", "file", "p"],
    "-c p p": ["fdiff", "-c", "p", "p"],
    "-c trees": ["fdiff", "-c", "a", "b"],
    "fsum p": ["fsum", "-q", "p"],
    "fsum tree": ["fsum", "-q", "-o", "manifest", "a"],
    "fsum against": ["fsum", "-q", "--check", "manifest", "a"],
    "fbcast p": ["fbcast", "-q", "p", "copied"],
    "-c zero file": ["fdiff", "-c", "zero", "file"],
    "-c file zero": ["fdiff", "-c", "file", "zero"],
    "fsum zero": ["fsum", "-q", "zero"],
}
CODES = {"-c p p": 0, "fbcast p": 2, "fsum p": 0, "fsum tree": 0, "fsum against": 0, "fsum zero": 0}


# Options that read the file `p`, one for each function that opens such files. Lists may be FIFOs.
READING = {
    "manifest": ["fmirror", "--since-manifest=p", "a", "new"],
    "plan": ["frm", "--apply=p"],
    "index": ["ffind", "--in=p"],
    "profile": ["fprof", "--merge", "p"],
}


def run(words: list[str], *prefix: str) -> Finished:
    with Run(
        None, "-j1", *words[1:], program=(f"pcircle.tools.{words[0]}",), prefix=prefix
    ) as started:
        return started.finish()


@pytest.fixture
def cage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for top in ("a", "b"):
        os.mkdir(top)
        os.mkfifo(f"{top}/same")
    os.mkfifo("p")
    os.mkfifo("a/kind")
    for path in ("file", "b/kind", "a/file"):
        Path(path).write_text("content")
    os.mkfifo("b/file")
    return tmp_path


def test_no_tool_reads_special_files(cage: Path) -> None:
    """Special files are compared by kind, like `diff -r` does within trees."""
    if os.geteuid() == 0:
        os.mknod("zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    for name, words in WORDS.items():
        if "zero" in words and not os.path.lexists("zero"):
            continue
        finished = run(words, "timeout", "-s", "INT", "60")
        assert finished.code == CODES.get(name, 3), (name, finished.said)


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_no_option_waits_for_the_writer_of_a_fifo(cage: Path, words: list[str]) -> None:
    program, limit = (f"pcircle.tools.{words[0]}",), ["timeout", "-s", "INT", "60"]
    with Run(None, *words[1:], program=program, prefix=limit) as started:
        finished = started.finish()
    assert finished.code == 2, finished.said
    assert "it is a pipe, not a regular file" in finished.said
    assert not os.path.exists("new")


@needs_strace
def test_an_operand_is_opened_without_waiting_for_it(cage: Path) -> None:
    """Files in /proc are regular, but opening one may still block."""
    Path("other").write_text("contents")
    assert run(["fdiff", "-c", "file", "other"], "strace", "-f", "-o", "calls").code == 3
    operand = re.compile(r'openat\([^"]*"(?:file|other)", ')
    opened = [call.text for call in read_calls(Path("calls")) if operand.match(call.text)]
    assert len(opened) >= 2
    assert all("O_NONBLOCK" in text or "O_PATH" in text for text in opened), opened
