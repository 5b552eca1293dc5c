"""A program that the server forks behaves like one that is started normally."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests import fork_server
from tests.fork_server import TAG, Forked, Server, start

FCP: list[str | bytes] = [sys.executable, "-m", "pcircle.tools.fcp", "-j1"]
DEADLINE_S = 240.0


@pytest.fixture(params=["forked", "started"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Return the type that `start` returns; both ways are tested."""
    monkeypatch.setenv("PCIRCLE_TEST_FORKS", "1" if request.param == "forked" else "0")
    return Forked if request.param == "forked" else subprocess.Popen


@pytest.fixture
def waiting(kind: type, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start an fcp that reads a list from a pipe that never ends."""
    (tmp_path / "from").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        process = start(
            [*FCP, "--files-from", "-", "from", "copy"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert type(process) is kind
        started.append(process)
        # More than the pipe holds, so fcp has begun to read.
        os.write(_input(process).fileno(), b"name\n" * 100_000)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def _input(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def _ended(*words: str, **options: Any) -> tuple[int, bytes, bytes]:
    command = [sys.executable, "-m", "pcircle.tools.fls", *words]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


@pytest.mark.usefixtures("kind")
def test_exit_code_outputs_and_directory(tmp_path: Path) -> None:
    (tmp_path / "one\udcff").touch()
    assert _ended(cwd=tmp_path) == (0, b"one\xff\n", b"")
    missing = b"fls: cannot list 'missing': No such file or directory\n"
    assert _ended("missing", cwd=tmp_path) == (2, b"", missing)
    assert _ended("--nonsense")[:2] == (2, b"")


@pytest.mark.usefixtures("kind")
def test_standard_input_binary_arguments_and_umask(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_bytes(b"a\nb\n")
    (tmp_path / "from").mkdir()
    for name in "abc":
        (tmp_path / "from" / name).touch(0o666)
        (tmp_path / "from" / name).chmod(0o666)
    with listed.open("rb") as stream:
        words = [*FCP, "--files-from", "-", b"from", b"\xfe"]
        options: dict[str, Any] = {"cwd": tmp_path, "stdin": stream, "umask": 0o027}
        with start(words, stdout=subprocess.DEVNULL, **options) as process:
            assert process.wait(DEADLINE_S) == 0
    copied = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "\udcfe").iterdir()}
    assert copied == {"a": 0o640, "b": 0o640}


def test_the_tag_is_visible_and_a_group_signal_ends_the_process(
    waiting: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = "0123456789" * 4
    monkeypatch.setenv(TAG, tag[: fork_server.TAG_CHARACTERS])
    process = waiting()
    shown = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    assert f"{TAG}={os.environ[TAG]}".encode() in shown
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert os.getsid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(DEADLINE_S) == 130
    process = waiting()
    process.kill()
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGTERM)  # its number is not reused until it is waited for
    assert process.wait(DEADLINE_S) == -signal.SIGKILL


def test_commands_that_cannot_be_forked_are_started() -> None:
    server = Server()
    try:
        assert server.can(FCP, {"cwd": "/", "env": dict(os.environ)})
        assert not server.can(FCP, {"preexec_fn": print})
        assert not server.can(FCP, {"pass_fds": (3,)})
        assert not server.can(FCP, {"env": {**os.environ, "PYTHONPATH": "/nowhere"}})
        assert not server.can(FCP, {"env": {**os.environ, "LC_ALL": "xx_XX"}})
        assert not server.can(["mpirun", *FCP], {})
        assert not server.can([sys.executable, "-m", "pcircle.testing"], {})
        assert not server.can([sys.executable, "-c", "pass"], {})
    finally:
        server.close()


def test_a_server_that_has_ended_is_a_failure(tmp_path: Path) -> None:
    server = Server()
    (tmp_path / "from").mkdir()
    words = [*FCP, "--files-from", "-", "from", "copy"]
    with Forked(server, words, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        server._process.kill()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(OSError, match=r"."):
        Forked(server, words, cwd=tmp_path)
    server.close()
