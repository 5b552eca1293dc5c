"""A real terminal: tmux, of which a test reads the screen as a person sees it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.tools.fcp.running import HANG_S, clean_environment

_TAKEN = ("TMUX", "LINES", "COLUMNS")


class Terminal:
    """A window of so many columns and lines with a shell in it; a context manager."""

    def __init__(
        self, columns: int, lines: int, environment: Mapping[str, str | None] | None = None
    ) -> None:
        tmux = shutil.which("tmux")
        if tmux is None:
            pytest.skip("tmux is not installed")
        self._home = tempfile.mkdtemp(prefix="pcircle-tmux-")
        self._ended = Path(self._home, "ended")
        self._tmux = [tmux, "-f", "/dev/null", "-S", os.path.join(self._home, "socket")]
        changes: dict[str, str | None] = {"LC_ALL": "C.UTF-8", "PS1": "ready> "}
        changes |= environment or {}
        self._environment = {k: v for k, v in clean_environment().items() if k not in _TAKEN}
        words = []
        for name, value in changes.items():
            words += ["-u", name] if value is None else [f"{name}={value}"]
        words.sort(key=lambda word: "=" in word)  # as env wants it; "-u" and its name stay together
        size = ("-x", str(columns), "-y", str(lines))
        # tmux itself speaks UTF-8, whatever the program within does.
        self._ask("-u", "new-session", "-d", *size, "env", *words, "sh", "-m")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_error: object) -> None:
        self._ask("kill-server")
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, command: Sequence[str | bytes]) -> int:
        """Run a command to its end, on a screen that is clear; its exit code."""
        self.begin(command)
        return self.end()

    def begin(self, command: Sequence[str | bytes]) -> None:
        """Have a command typed, on a screen that is clear."""
        self._ended.unlink(missing_ok=True)
        line = shlex.join(map(os.fsdecode, command))
        script = Path(self._home, "run")
        ended = f"echo $? > {self._ended}.part; mv {self._ended}.part {self._ended}"
        script.write_text(f"{line}\n{ended}\n", encoding="utf-8", errors="surrogateescape")
        self.type(f"clear; sh {script}", "Enter")

    def end(self) -> int:
        """Wait for the end of what was begun; its exit code."""
        wait_for(self._ended.exists, self.screen)
        code = int(self._ended.read_text())
        wait_for(lambda: self.screen().rstrip().endswith("ready>"), self.screen)
        return code

    def cursor_is_shown(self) -> bool:
        """Whether the cursor is to be seen."""
        return self._ask("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def type(self, *keys: str) -> None:
        """Press keys; a word that is no key's name is typed."""
        self._ask("send-keys", *keys)

    def screen(self, *, joined: bool = False, colored: bool = False, after: str = "") -> str:
        """What is to be seen; `joined`: with all that has left it, and lines that were broken.

        It may be asked for `after` one more key.
        """
        if after:
            self.type(after)
        options = ["-J", "-S", "-"] if joined else []
        return self._ask("capture-pane", "-p", *options, *(["-e"] if colored else []))

    def _ask(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words],
            check=True,
            capture_output=True,
            timeout=HANG_S,
            env=self._environment | {"TERM": "xterm-256color"},
        )
        return done.stdout.decode()


def wait_for(condition: Callable[[], bool], tell: Callable[[], str]) -> None:
    """Wait until a condition holds; what `tell` returns is said if it never does."""
    until_s = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(tell())
        time.sleep(0.05)
