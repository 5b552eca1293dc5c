"""Commands of -exec, run by the rank that found the entry.

The output of a command is collected and passed on in complete lines, so that lines of concurrent
commands do not mix. Standard input is empty, because concurrent commands cannot share it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from pcircle.core.encoding import show
from pcircle.fs.safe_open import directory
from pcircle.tools.ffind.eval.entry import FindEntry
from pcircle.tools.ffind.eval.output import base_of

if TYPE_CHECKING:
    import subprocess

_TOGETHER_BYTES = 1 << 16  # output collected before it is sent
_MAX_LINE_BYTES = 1 << 20  # a longer line is passed on in parts
_ROOM_BYTES = 128 << 10  # for the names of one command, if the system permits
_RESERVED_BYTES = 2048  # for programs that add to the environment, as POSIX advises
_POINTER_BYTES = 8
_UNKNOWN_LIMIT_BYTES = 128 << 10
_MAX_NAMES = 1000
_READ_BYTES = 1 << 16
_BRACES = b"{}"
_OPEN = b"/proc/self/fd/"
WriteText = Callable[[int, bytes], None]  # stream 0 is standard output, -1 standard error


class Commands:
    """The commands of one thread.

    -exec runs them in the directory to which PATHs are relative; -execdir runs them in the
    directory that contains the entry.

    If `dry` is set, commands are only printed.
    """

    def __init__(self, say: WriteText, directory: bytes, *, dry: bool = False) -> None:
        self._say = say
        self._directory = directory or None
        self._dry = dry
        self._gathered: dict[int, _Gathered] = {}
        self.failed: bool = False
        self._lock = threading.Lock()

    def run(self, words: Sequence[bytes], entry: FindEntry, *, is_dir: bool) -> bool:
        """Run a command for an entry, and return whether it succeeded."""
        name = self._name(entry, is_dir=is_dir)
        line = [word.replace(_BRACES, name) for word in words]
        return self._run(line, self._where(entry, is_dir=is_dir))

    def gather(self, key: int, words: Sequence[bytes], entry: FindEntry, *, is_dir: bool) -> None:
        """Add an entry to the arguments of a command's next run."""
        name = self._name(entry, is_dir=is_dir)
        where = self._where(entry, is_dir=is_dir)
        with self._lock:
            held = self._gathered.get(key)
            if held is not None and (held.where != where or held.is_full(name)):
                self._end(key)
                held = None
            if held is None:
                held = self._gathered[key] = _Gathered(words, where)
            held.add(name)

    def end(self, *, dirs_only: bool = False) -> None:
        """Run gathered commands, or only those of the open directory if `dirs_only` is set."""
        with self._lock:
            for key, held in list(self._gathered.items()):
                if not dirs_only or held.is_dir:
                    self._end(key)

    def take_failed(self) -> bool:
        """Return whether a gathered command failed since the last call."""
        failed, self.failed = self.failed, False
        return failed

    def _end(self, key: int) -> None:
        held = self._gathered.pop(key)
        if not self._run([*held.words, *held.names], held.where):
            self.failed = True

    def _name(self, entry: FindEntry, *, is_dir: bool) -> bytes:
        if not is_dir:
            return entry.path
        base = base_of(entry)
        return base if base == b"/" else b"./" + base

    def _where(self, entry: FindEntry, *, is_dir: bool) -> bytes | None:
        if not is_dir:
            return self._directory
        if entry.fixed:
            above = os.path.dirname(entry.fixed.rstrip(b"/")) or (
                b"/" if entry.fixed.startswith(b"/") else b"."
            )
            return os.path.join(self._directory or b"", above)
        return _OPEN + b"%d" % entry.fd

    def _run(self, line: Sequence[bytes], where: bytes | None) -> bool:
        if self._dry:
            self._say(0, f"would run: {' '.join(map(show, line))}\n".encode())
            return True
        import subprocess  # few searches run commands

        pipe = subprocess.PIPE
        try:
            with (
                self._entered(where) as cwd,
                subprocess.Popen(
                    line, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
                ) as process,
            ):
                self._forward_output(process)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self._say(-1, f"ffind: cannot run '{show(line[0])}': {reason}\n".encode())
            return False
        return process.returncode == 0

    @contextmanager
    def _entered(self, where: bytes | None) -> Iterator[bytes | None]:
        """Yield the directory to run in, opened without following other users' links."""
        if where is None or where == self._directory or where.startswith(_OPEN):
            yield where
            return
        fd = directory(where)
        try:
            yield _OPEN + b"%d" % fd
        finally:
            os.close(fd)

    def _forward_output(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on the output of a command in complete lines."""
        import selectors  # few searches run commands

        with selectors.DefaultSelector() as selector:
            held: dict[int, bytes] = {0: b"", -1: b""}
            for pipe, stream in ((process.stdout, 0), (process.stderr, -1)):
                if pipe is not None:
                    selector.register(pipe.fileno(), selectors.EVENT_READ, stream)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _READ_BYTES)
                    if not data:
                        selector.unregister(key.fd)
                    held[key.data] += data
                    if len(held[key.data]) > _TOGETHER_BYTES:
                        whole, newline, partial = held[key.data].rpartition(b"\n")
                        if not newline and len(partial) > _MAX_LINE_BYTES:
                            whole, partial = partial, b""
                        held[key.data] = partial
                        if whole or newline:
                            self._say(key.data, whole + newline)
        for stream, partial in held.items():
            if partial:
                self._say(stream, partial)


class _Gathered:
    """The arguments of a command's next run."""

    def __init__(self, words: Sequence[bytes], where: bytes | None) -> None:
        self.words = words
        self.where = where
        self.names: list[bytes] = []
        self._bytes = sum(map(_taken, words))

    @property
    def is_dir(self) -> bool:
        """Return whether the command runs in the directory of its names."""
        return self.where is not None and self.where.startswith(_OPEN)

    def is_full(self, name: bytes) -> bool:
        """Return whether there is no room for another name."""
        room = min(_ROOM_BYTES, room_bytes())
        return len(self.names) >= _MAX_NAMES or self._bytes + _taken(name) > room

    def add(self, name: bytes) -> None:
        """Add a name."""
        self.names.append(name)
        self._bytes += _taken(name)


def _taken(word: bytes) -> int:
    """Return the size of an argument in bytes: its text, its terminator and a pointer."""
    return len(word) + 1 + _POINTER_BYTES


@cache
def room_bytes() -> int:
    """Return the number of bytes available for the arguments of a command.

    The system limit (`sysconf`) is a quarter of the stack limit, and includes the environment. The
    kernel's limit of 128 KiB for a single argument is not checked: only a path in an extremely deep
    tree exceeds it, and running the command then fails.
    """
    limit = os.sysconf("SC_ARG_MAX")
    limit = limit if limit > 0 else _UNKNOWN_LIMIT_BYTES
    environment = sum(_taken(name) + len(value) + 1 for name, value in os.environb.items())
    return limit - environment - _RESERVED_BYTES
