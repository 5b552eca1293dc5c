"""A real terminal: tmux, whose screen a test reads as a user sees it."""

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
    """A window of a given size that runs a shell; a context manager."""

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
        words.sort(key=lambda word: "=" in word)  # as env requires; "-u" and its name stay together
        size = ("-x", str(columns), "-y", str(lines))
        # tmux itself speaks UTF-8, whatever the program within does.
        self._ask("-u", "new-session", "-d", *size, "env", *words, "sh", "-m")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_error: object) -> None:
        self._ask("kill-server")
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, command: Sequence[str | bytes]) -> int:
        """Run a command to its end on a cleared screen; return its exit code."""
        self.begin(command)
        return self.end()

    def begin(self, command: Sequence[str | bytes]) -> None:
        """Type a command on a cleared screen."""
        self._ended.unlink(missing_ok=True)
        line = shlex.join(map(os.fsdecode, command))
        script = Path(self._home, "run")
        ended = f"echo $? > {self._ended}.part; mv {self._ended}.part {self._ended}"
        script.write_text(f"{line}\n{ended}\n", encoding="utf-8", errors="surrogateescape")
        self.type(f"clear; sh {script}", "Enter")

    def end(self) -> int:
        """Wait for the end of the command that was typed; return its exit code."""
        wait_for(self._ended.exists, self.screen)
        code = int(self._ended.read_text())
        wait_for(lambda: self.screen().rstrip().endswith("ready>"), self.screen)
        return code

    def cursor_is_shown(self) -> bool:
        """Return whether the cursor is visible."""
        return self._ask("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def type(self, *keys: str) -> None:
        """Press keys; a word that does not name a key is typed as text."""
        self._ask("send-keys", *keys)

    def screen(self, *, joined: bool = False, colored: bool = False, after: str = "") -> str:
        """Return the visible text; if `joined`, with scrolled-off text and unbroken lines.

        `after` is a key to press first.
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
    """Wait until a condition holds; on a timeout, raise an error with the text of `tell`."""
    until_s = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(tell())
        time.sleep(0.05)
