"""`--syslog` writes one line at the end of each command to a real socket in place of /dev/log.

The socket is in a private /dev, in a mount namespace: that of the machine is not used.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.cli import syslog
from pcircle.cli.arguments import command
from tests.programs import needs_mount_namespace

pytestmark = needs_mount_namespace
# Runs "$@" with $1 as /dev, which contains the files that programs need, and optionally a log.
HEAD = """\
dev=$1; shift
for name in null zero urandom; do touch $dev/$name; mount --bind /dev/$name $dev/$name; done
mkdir -p $dev/shm && mount --rbind /dev/shm $dev/shm && mount --rbind $dev /dev && "$@"
"""
LINE = re.compile(
    rb"<(\d+)>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w-]+)\[\d+\]: (exit=.*) command: (.*)",
    re.DOTALL,
)
COMMANDS = (
    ("fcp", "tree", "copy"),
    ("fcp", "tree", "no/such/place"),
    ("fsum", "tree"),
    ("fprof", "-q", "tree"),
    ("fprof", "-q", "--op-timeout=60", "tree"),  # in a child process
    ("ffind", "tree", "-type", "f"),
    ("fls", "-R", "tree"),
    ("fdiff", "tree", "tree"),
    ("fchmod", "-R", "u+w", "copy"),
    ("fmirror", "--delete", "tree", "more"),
    ("frm", "-r", "copy"),
    ("fbench", "-q", "--case=random", "--files=1", "--blocks=1", "."),
    ("fbcast", "-q", "tree", "sent"),
)
DONE = {
    "fsum": b"entries=3 bytes=7 failed=0",
    "fprof": b"entries=3 bytes=7 failed=0",
    "fcp": b"entries=3 bytes=7 failed=0",
    "fmirror": b"entries=3 bytes=7 removed=1 failed=0",
    "frm": b"entries=3 bytes=0 failed=0",
}


class Log:
    """A socket that listens like a logger. `lines` are the messages received so far."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(os.fspath(path))
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        self.lines: list[bytes] = []

    def _listen(self) -> None:
        while line := self._socket.recv(1 << 16):
            self.lines.append(line)

    def close(self, path: Path) -> list[bytes]:
        """Return the received messages; those sent earlier precede the end marker."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", os.fspath(path))
        self._thread.join()
        self._socket.close()
        return self.lines


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tree/inner").mkdir(parents=True)
    (tmp_path / "tree/file").write_text("content")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/surplus").touch()
    (tmp_path / "sent").mkdir()
    (tmp_path / "dev").mkdir()
    return tmp_path


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", HEAD, "sh", os.fspath(place / "dev"), *words],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )


def tool_command(tool: str, *words: str) -> list[str]:
    # The option follows the tool, because an expression may follow.
    return [sys.executable, "-m", f"pcircle.tools.{tool}", "--syslog", "-j1", *words]


def test_each_command_is_one_line(place: Path) -> None:
    log = Log(place / "dev/log")
    script = "".join(
        f"{' '.join(tool_command(*words))} >/dev/null 2>>said; echo $?\n" for words in COMMANDS
    )
    done = run(place, "sh", "-c", script)
    heard = log.close(place / "dev/log")
    codes = done.stdout.split()
    assert (codes.count("0"), codes[1]) == (len(COMMANDS) - 1, "2"), (place / "said").read_text()
    assert len(heard) == len(COMMANDS), heard
    for words, code, line in zip(COMMANDS, codes, heard, strict=True):
        found = LINE.fullmatch(line)
        assert found is not None, line
        priority, tool, fields, said = found.groups()
        assert priority == (b"12" if int(code) else b"14")
        assert tool.decode() == words[0]
        begun = f"exit={code} ".encode() + (b"" if int(code) else DONE.get(words[0], b""))
        assert fields.startswith(begun)
        assert fields.endswith(f" uid=0 cwd={place}".encode())
        assert said.decode() == " ".join([words[0], *tool_command(*words)[3:]])


def test_one_of_many_ranks_writes(place: Path, mpirun: Callable[[int], list[str]]) -> None:
    log = Log(place / "dev/log")
    words = tool_command("fcp", "tree", "copy")
    ended = [run(place, *mpirun(2), *words), run(place, *mpirun(2), *words[:-1], "no/such/place")]
    heard = log.close(place / "dev/log")
    assert [done.returncode for done in ended] == [0, 2], [done.stderr for done in ended]
    assert [line.partition(b"exit=")[2][:1] for line in heard] == [b"0", b"2"]
    assert b" entries=3 bytes=7 failed=0 " in heard[0]


def test_without_a_logger_the_command_has_failed(place: Path) -> None:
    done = run(place, *tool_command("fcp", "tree", "copy"))
    assert done.returncode == 1
    said = "fcp: --syslog: cannot write to /dev/log: No such file or directory\n"
    assert done.stderr.endswith(said)
    assert (place / "copy/file").read_text() == "content"


def test_a_name_cannot_inject_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are escaped as in the output of `fcp`, and a long command is truncated."""
    monkeypatch.setattr(syslog, "SOCKET", os.fspath(tmp_path / "log"))
    log = Log(tmp_path / "log")
    odd_words = ["a\nfcp[1]: exit=0", "\x1b[2J"]
    assert syslog.logged("fcp", command("fcp", odd_words), lambda: 3) == 3
    assert syslog.logged("fcp", "fcp " + "ü" * 2000, lambda: 0) == 0
    odd, long = log.close(tmp_path / "log")
    assert odd.endswith(rb"command: fcp $'a\x0afcp[1]: exit=0' $'\x1b[2J'")
    assert len(long) in range(2040, 2049)
    assert long.decode().endswith("ü...")


def test_a_logger_that_wants_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "SOCKET", os.fspath(tmp_path / "log"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(os.fspath(tmp_path / "log"))
        listening.listen()
        assert syslog.logged("fcp", "fcp a b", lambda: 0) == 0
        heard, _ = listening.accept()
        with heard:
            assert heard.recv(4096).endswith(b"command: fcp a b\0")
