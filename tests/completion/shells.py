"""Shells on terminals of their own, in which a line is typed: which arguments does the command get?

The tools are replaced by a program that writes its arguments to a file, and Python by one that
records its start: completing a word must start neither.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from docs.generate.completions import PLACES, completed
from tests.conftest import DEADLINE_S, ROOT
from tests.programs import required

SHELLS = ("bash", "zsh", "fish")
LOADER = Path("/usr/share/bash-completion/bash_completion")
COMMANDS = [each.command.command_line.split()[0] for each in completed()]
_COLUMNS = "400"
_LOOK_S = 0.05

_SETUP = {
    "bash": "for f in {places}/*; do . $f; done; bind 'set bell-style none'; PS1=\n",
    "bash-completion": ". {loader}; bind 'set bell-style none'; PS1=\n",
    "zsh": "fpath=({places} $fpath); autoload -U compinit; compinit -u -D; PS1=; unsetopt beep\n",
    "fish": "function fish_prompt; end; set -g fish_greeting\n",
}
_COMMAND = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "-i"],
}


def environment(place: Path) -> dict[str, str]:
    """Create the programs; return a user's variables, with a home in the directory."""
    programs = place / "programs"
    programs.mkdir()
    _write(programs / "answer", '#!/bin/sh\nprintf "%s\\\\0" "$0" "$@" >"$ANSWER.part"\n'
           'mv "$ANSWER.part" "$ANSWER"\n')  # fmt: skip
    _write(programs / "tripped", '#!/bin/sh\necho "$0 $*" >>"$TRIPPED"\n')
    for name in COMMANDS:
        (programs / name).symlink_to("answer")
    for name in ("python", "python3", "python3.10", "python3.11", "python3.12", "python3.13"):
        (programs / name).symlink_to("tripped")
    # Without it a new user's fish starts Python, to read the manual pages of all commands.
    (place / ".local/share/fish/generated_completions").mkdir(parents=True)
    return {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(place),
        "TERM": "vt100",
        "COLUMNS": _COLUMNS,
        "LC_ALL": "C.UTF-8",
        "XDG_DATA_DIRS": f"{ROOT / 'share'}:/usr/share",
        "ANSWER": str(place / "answer"),
        "TRIPPED": str(place / "tripped"),
    }


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Terminal:
    """A shell that waits for lines."""

    def __init__(self, shell: str, place: Path, environ: dict[str, str], setup: str) -> None:
        self._answer = Path(environ["ANSWER"])
        self._tripped = Path(environ["TRIPPED"])
        self._said = b""
        self._master, slave = os.openpty()
        self._process = subprocess.Popen(
            [required(shell), *_COMMAND[shell][1:]],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environ,
            cwd=place,
            start_new_session=True,
            preexec_fn=lambda: _own_terminal(slave),
        )
        os.close(slave)
        self.type(_SETUP[setup].format(places=ROOT / PLACES[shell], loader=LOADER))

    def type(self, text: str) -> None:
        """Type some text."""
        os.write(self._master, text.encode())

    def arguments(self, line: str) -> list[str]:
        """Return the arguments of a command from a line with tabs; the end of line is added."""
        self._answer.unlink(missing_ok=True)
        self.type(line)
        self.type("\n")
        deadline_s = time.monotonic() + DEADLINE_S
        while not self._answer.exists():
            self._read(_LOOK_S)
            if time.monotonic() > deadline_s:
                pytest.fail(f"no answer to {line!r}: {self._said[-2000:]!r}")
        words = self._answer.read_bytes().decode().split("\0")[:-1]
        assert not self._tripped.exists(), self._tripped.read_text()
        return words[1:]

    def _read(self, patience_s: float) -> None:
        if select.select([self._master], [], [], patience_s)[0]:
            try:
                self._said += os.read(self._master, 1 << 16)
            except OSError:  # the shell has ended
                time.sleep(patience_s)

    def close(self) -> None:
        """End the shell."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)


def _own_terminal(slave: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


@contextmanager
def terminal(shell: str, place: Path, setup: str = "") -> Iterator[Terminal]:
    """Start a shell in a directory; bash may use the loader of bash-completion."""
    required(shell)
    opened = Terminal(shell, place, environment(place), setup or shell)
    try:
        yield opened
    finally:
        opened.close()
