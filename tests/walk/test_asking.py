"""SIGUSR1 prints the progress of a job; Ctrl-Z and fg stop and continue it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import terminal
from tests.fusefs.fixture import Mount
from tests.fusefs.mounting import Mounted
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import ONE, Launcher, Run, command, launchers

LINE = r"~?[\d.]+% after \S+: .*entries"
PAUSE_S = 3.0
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "fcp": ("pcircle.tools.fcp", ["T", "D"]),
    "fsum": ("pcircle.tools.fsum", ["T"]),
    "fprof": ("pcircle.tools.fprof", ["T"]),
    "ffind": ("pcircle.tools.ffind", ["T"]),
    "fls": ("pcircle.tools.fls", ["-lR", "T"]),
    "fdiff": ("pcircle.tools.fdiff", ["T", "B"]),
    "fmirror": ("pcircle.tools.fmirror", ["T", "D"]),
    "frm": ("pcircle.tools.frm", ["-r", "T"]),
    "fchmod": ("pcircle.tools.fchmod", ["-R", "u+x", "T"]),
}
some_launchers = pytest.mark.parametrize("launcher", launchers([1, 2], [2]), ids=str)


@pytest.fixture
def mount(fuse: Mount) -> Iterator[Mounted]:
    """Mount a file system with a tree that blocks until it is released."""
    found = fuse()
    for number in range(40):
        os.makedirs(found.backing + b"/t/%d" % number)
        with open(found.backing + b"/t/%d/file" % number, "wb") as file:
            file.write(b"x" * 100)
    yield found
    found.rules()
    found.release()


def words_of(tool: str, mount: Mounted, place: bytes) -> tuple[str, list[str | bytes]]:
    module, words = COMMANDS[tool]
    meant = {"T": mount.path + b"/t", "D": place + b"/copy", "B": mount.backing + b"/t"}
    return module, [meant.get(word, word) for word in words]


def wait(condition: Callable[[], bool]) -> None:
    terminal.wait_for(condition, lambda: "")


class Asked:
    """A quiet run whose standard error can be read while it runs; a context manager."""

    def __init__(self, place: bytes, launcher: Launcher, module: str, *words: str | bytes) -> None:
        self._said = Path(os.fsdecode(place), "said")
        self._stream = self._said.open("wb")
        self.run = Run(launcher, "-q", *words, program=(module,), stderr=self._stream.fileno())

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_error: object) -> None:
        self.run.__exit__()
        self._stream.close()

    def said(self) -> str:
        return self._said.read_text()

    def ask(self) -> None:
        """Signal all of its ranks, but no launcher."""
        for number in self.run.processes():
            if Path(f"/proc/{number}/comm").read_text().startswith("python"):
                os.kill(number, signal.SIGUSR1)


@pytest.mark.parametrize("tool", COMMANDS)
def test_each_tool_reports_its_progress(tool: str, mount: Mounted, place: bytes) -> None:
    """Progress is printed in quiet mode too; the run then continues normally."""
    mount.rules(Rule(("opendir", "readdir", "readdirplus"), "t/7", delay_s=3600.0))
    module, words = words_of(tool, mount, place)
    with Asked(place, Launcher(jobs=2), module, *words) as asked:
        wait(lambda: mount.state().delayed > 0)
        asked.ask()
        wait(lambda: bool(re.search(f"^{tool}: {LINE}", asked.said(), re.MULTILINE)))
        mount.rules()
        mount.release()
        assert asked.run.finish().code == 0, asked.said()
        assert asked.said().count(" after ") == 1, asked.said()


@some_launchers
def test_all_ranks_may_be_signalled(launcher: Launcher, mount: Mounted, place: bytes) -> None:
    """A batch system signals all ranks; only the first rank prints."""
    mount.rules(Rule(("opendir", "readdir", "readdirplus"), "t/7", delay_s=3600.0))
    with Asked(place, launcher, "pcircle.tools.fprof", mount.path + b"/t") as asked:
        wait(lambda: mount.state().delayed > 0)
        asked.ask()
        wait(lambda: bool(re.search(f"fprof: {LINE}", asked.said())))
        mount.rules()
        mount.release()
        assert asked.run.finish().code == 0, asked.said()
        assert len(re.findall(f"fprof: {LINE}", asked.said())) == 1


def test_the_signal_never_ends_a_command(place: bytes) -> None:
    """The signal arrives before the job, and while it ends."""
    os.makedirs(place + b"/t/a")
    for number in range(8):
        with Run(ONE, "-q", place + b"/t", program=("pcircle.tools.ffind",)) as run:
            wait(lambda run=run: is_heard(run.process.pid))  # type: ignore[misc]
            time.sleep(0.02 * number)
            while run.process.poll() is None:
                run.process.send_signal(signal.SIGUSR1)
                time.sleep(0.003)
            assert run.finish().code == 0


def is_heard(number: int) -> bool:
    """Return whether a process catches SIGUSR1 or is over; before Python starts it cannot."""
    try:
        status = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return True
    caught = re.search(r"^SigCgt:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return caught is None or bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def test_a_job_continues_in_the_foreground(mount: Mounted, place: bytes) -> None:
    """Ctrl-Z returns the terminal, with its cursor, to the shell, and fg continues the job.

    The stopped time is not counted.
    """
    mount.rules(Rule(("opendir", "readdir", "readdirplus"), "t/7", delay_s=3600.0))
    _, words = words_of("fcp", mount, place)
    line = command(Launcher(jobs=3), ["--progress=always", *words])
    with terminal.Terminal(100, 30) as window:
        began_s = time.monotonic()
        window.begin(line)
        wait(lambda: "left" in window.screen() or "%" in window.screen())
        assert not window.cursor_is_shown()
        window.type("C-z")
        # The shell may print its prompt before fcp, which a script runs here, clears its line.
        wait(lambda: "ready>" in window.screen(after="Enter"))
        wait(window.cursor_is_shown)
        time.sleep(PAUSE_S)
        window.type("fg", "Enter")
        wait(lambda: "%" in window.screen().rpartition("fg")[2])
        output = window.screen().rpartition("fg")[2]
        mount.rules()
        mount.release()
        assert window.end() == 0, window.screen()
        ended_s = time.monotonic()
        said = re.search(r"\bin ([\d.]+)s: ", window.screen(joined=True))
    assert sorted(os.listdir(place + b"/copy")) == sorted(os.listdir(mount.backing + b"/t"))
    assert "not responding" not in output
    assert said is not None
    # The elapsed time of this test, without the pause.
    assert float(said[1]) <= ended_s - began_s - PAUSE_S
