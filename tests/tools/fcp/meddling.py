"""A tool beside somebody who changes what it reads at the worst moment, the same in each run.

``python -m tests.tools.fcp.meddling TOOL PLAN ARGUMENT...`` replaces functions of `os` in this
process as `tests.tools.fcp.faulty` does, and then runs fcp or fsum as ever. Before a call that a
plan names, on a path that it names, somebody changes a file: by a rename over it, as editors do; in
place, its time kept, as ``cp -p`` does; in place with a new time; or by ``chmod``, which moves the
change time alone.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.tools.fcp.faulty import paths_of, without_native

EVERY_TIME = 1 << 30


class Deed(NamedTuple):
    """Before calls `first` up to `end` of `operation` on `path`: what is done to `victim`."""

    operation: str
    path: str
    what: str
    victim: str
    content: str = ""
    first: int = 1
    end: int = 2


def replace(path: str, content: bytes) -> None:
    """Save a file as editors do, but that the new one is made outside of what is copied."""
    new = path.partition("/source")[0] + "/edited"
    with open(new, "wb") as file:
        file.write(content)
    os.rename(new, path)


def rewrite(path: str, content: bytes) -> None:
    """Write into a file, with another time."""
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path)


def rewrite_keeping_time(path: str, content: bytes) -> None:
    """Write into a file, and give it the time that it had."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def chmod(path: str, content: bytes) -> None:
    """Move the change time alone."""
    os.chmod(path, os.stat(path).st_mode ^ 0o010)


WAYS: dict[str, Callable[[str, bytes], None]] = {
    each.__name__: each for each in (replace, rewrite, rewrite_keeping_time, chmod)
}


def _meddle(name: str, real: Callable[..., Any], deeds: Sequence[Deed]) -> Callable[..., Any]:
    seen = dict.fromkeys(deeds, 0)
    busy = False

    @functools.wraps(real)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal busy
        paths = [] if busy else [os.fsdecode(path) for path in paths_of(name, arguments, named)]
        for deed in deeds:
            if deed.path in paths:
                seen[deed] += 1
                if deed.first <= seen[deed] < deed.end:
                    busy = True
                    # Of the same length, but not the same from one time to the next.
                    text = f"{deed.content}{seen[deed]}".encode()
                    size = os.stat(deed.victim).st_size
                    WAYS[deed.what](deed.victim, (text * (size // len(text) + 1))[:size])
                    busy = False
        return real(*arguments, **named)

    return call


def meddling(tool: str, place: str, deeds: Sequence[Deed]) -> tuple[str, ...]:
    """The module, with what comes before the tool's own arguments; the plan is left in `place`."""
    plan = os.path.join(place, "plan")
    with open(plan, "w") as file:
        json.dump(deeds, file)
    return "tests.tools.fcp.meddling", tool, plan


def main(arguments: list[str]) -> int:
    """Run a tool beside the deeds of a file."""
    _, tool, plan, *sys.argv[1:] = arguments
    with open(plan, "rb") as stream:
        deeds = [Deed(*each) for each in json.load(stream)]
    for name in {deed.operation for deed in deeds}:
        mine = [deed for deed in deeds if deed.operation == name]
        setattr(os, name, _meddle(name, getattr(os, name), mine))
    with without_native():
        main = importlib.import_module(f"pcircle.tools.{tool}.__main__").main
        return int(main())


if __name__ == "__main__":
    sys.exit(main(sys.argv))
