"""Fault maps: fcp with system calls that fail by rules, although the file systems are sound.

The product does not know about it. ``python -m tests.tools.fcp.faulty MAP ARGUMENT...`` replaces
functions of `os` in this process by wrappers that apply the rules first, then runs fcp normally;
local ranks are forked from it, and a launcher starts each rank like this. Rules are those of the
FUSE file system, but their operations are names of functions of `os`, and their paths are absolute.
The path of a call is read from /proc, so it costs some microseconds per call. A close that fails
has closed nonetheless, as on Linux.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pcircle.fs import native

from ...fusefs.rules import Rule, Rules

_BY_FD: tuple[str, ...] = (
    "fstat",
    "read",
    "readv",
    "write",
    "pread",
    "preadv",
    "pwrite",
    "fsync",
    "close",
    "ftruncate",
)
_BY_FD += ("lseek", "fchmod", "sendfile", "copy_file_range")
_BY_NAME: tuple[str, ...] = (
    "open",
    "stat",
    "mkdir",
    "mknod",
    "readlink",
    "symlink",
    "unlink",
    "scandir",
    "chmod",
)
_BY_NAME += ("chown", "utime", "link", "rename", "listxattr", "getxattr", "setxattr")
OPERATIONS = (*_BY_FD, *_BY_NAME)
_LENGTH_AT = {"read": 1, "pread": 1, "copy_file_range": 2, "sendfile": 3}
_readlink = os.readlink


class Faults:
    """Rules for functions of `os`; `hit` are the paths of calls that failed as a result."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = Rules()
        self._rules.set([rule._asdict() for rule in rules])
        self.hit: list[bytes] = []

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of `os` that applies the rules."""

        @functools.wraps(real)
        def call(*arguments: Any, **named: Any) -> Any:
            paths = paths_of(name, arguments, named)
            verdict = self._rules.judge(name, paths, *_range(name, arguments))
            if verdict.at_most_bytes >= 0:
                arguments = _shortened(name, arguments, verdict.at_most_bytes)
            if not verdict.errno:
                return real(*arguments, **named)
            self.hit += paths
            if name == "close":
                real(*arguments)
            raise OSError(verdict.errno, os.strerror(verdict.errno))

        return call


def paths_of(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[bytes]:
    if name in ("sendfile", "copy_file_range"):
        return [_path(arguments[0], None), _path(arguments[1], None)]
    if name in ("link", "rename"):
        source = _path(arguments[0], named.get("src_dir_fd"))
        return [source, _path(arguments[1], named.get("dst_dir_fd"))]
    # The target of a link is not a path of the call; its name is.
    return [_path(arguments[name == "symlink"], named.get("dir_fd"))]


def _path(what: int | str | bytes, dir_fd: int | None) -> bytes:
    if isinstance(what, int):
        return _of_descriptor(b"%d" % what)
    text = os.fsencode(what)
    if text.startswith(b"/proc/self/fd/"):
        descriptor, _, below = text.removeprefix(b"/proc/self/fd/").partition(b"/")
        text = (
            os.path.join(_of_descriptor(descriptor), below) if below else _of_descriptor(descriptor)
        )
    if dir_fd is not None:
        text = os.path.join(_of_descriptor(b"%d" % dir_fd), text)
    return text


def _of_descriptor(number: bytes) -> bytes:
    try:
        return _readlink(b"/proc/self/fd/" + number)
    except OSError:
        return b""  # a bad descriptor: the call itself will fail


def _range(name: str, arguments: tuple[Any, ...]) -> tuple[int, int]:
    """Return the offset and length of positional reads and writes; otherwise zeros."""
    if name == "pwrite":
        return arguments[2], len(arguments[1])
    if name == "preadv":
        return arguments[2], sum(map(len, arguments[1]))
    return (arguments[2], arguments[3]) if name == "sendfile" else (0, 0)


def _shortened(name: str, arguments: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    changed = list(arguments)
    if name in _LENGTH_AT:
        changed[_LENGTH_AT[name]] = min(arguments[_LENGTH_AT[name]], most)
    elif name in ("write", "pwrite"):
        changed[1] = memoryview(arguments[1])[:most]
    elif name in ("readv", "preadv"):
        changed[1] = [memoryview(arguments[1][0])[:most]]
    return tuple(changed)


@contextmanager
def without_native() -> Iterator[None]:
    """Make this process and its forks use functions of `os` for all calls."""
    originals = {name: getattr(native, name) for name in native.__all__}
    native.module = native.twin()
    for name in originals:
        if hasattr(native.module, name):
            setattr(native, name, getattr(native.module, name))
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(native, name, value)


@contextmanager
def faults(rules: Sequence[Rule]) -> Iterator[Faults]:
    """Apply the rules in this process and its forks."""
    with without_native(), _faults(rules) as made:
        yield made


@contextmanager
def _faults(rules: Sequence[Rule]) -> Iterator[Faults]:
    made = Faults(rules)
    real = {name: getattr(os, name) for name in OPERATIONS}
    for name, function in real.items():
        setattr(os, name, made.wrap(name, function))
    try:
        yield made
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def main(arguments: list[str]) -> int:
    """Run fcp under the rules in a file."""
    with open(arguments[1], "rb") as stream:
        rules = [Rule(**rule) for rule in json.load(stream)]
    sys.argv[1:] = arguments[2:]
    with faults(rules):
        from pcircle.tools.fcp.__main__ import main as fcp

        return fcp()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
