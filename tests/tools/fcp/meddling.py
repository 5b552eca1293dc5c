"""A tool whose files are changed at the worst moment, which is the same in each run.

``python -m tests.tools.fcp.meddling TOOL PLAN ARGUMENT...`` replaces functions of `os` in this
process like `tests.tools.fcp.faulty` does, and then runs fcp or fsum normally. Before a call and
path that the plan names, a file is changed: by a rename over it, as in editors; in place, with
its time restored, as by ``cp -p``; in place with a new time; or by ``chmod``, which changes only
the change time.
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
    """The change of `victim` before calls `first` up to `end` of `operation` on `path`."""

    operation: str
    path: str
    what: str
    victim: str
    content: str = ""
    first: int = 1
    end: int = 2


def replace(path: str, content: bytes) -> None:
    """Save a file like an editor, but with the new file created outside of the source."""
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
    """Write into a file, and restore its time."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def chmod(path: str, content: bytes) -> None:
    """Change only the change time."""
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
                    # The length is constant, but the content varies from one call to the next.
                    text = f"{deed.content}{seen[deed]}".encode()
                    size = os.stat(deed.victim).st_size
                    WAYS[deed.what](deed.victim, (text * (size // len(text) + 1))[:size])
                    busy = False
        return real(*arguments, **named)

    return call


def meddling(tool: str, place: str, deeds: Sequence[Deed]) -> tuple[str, ...]:
    """Return the module with its arguments; the plan is written to `place`."""
    plan = os.path.join(place, "plan")
    with open(plan, "w") as file:
        json.dump(deeds, file)
    return "tests.tools.fcp.meddling", tool, plan


def main(arguments: list[str]) -> int:
    """Run a tool with the changes of a plan."""
    _, tool, plan, *sys.argv[1:] = arguments
    with open(plan, "rb") as stream:
        deeds = [Deed(*fields) for fields in json.load(stream)]
    for name in {deed.operation for deed in deeds}:
        mine = [deed for deed in deeds if deed.operation == name]
        setattr(os, name, _meddle(name, getattr(os, name), mine))
    with without_native():
        main = importlib.import_module(f"pcircle.tools.{tool}.__main__").main
        return int(main())


if __name__ == "__main__":
    sys.exit(main(sys.argv))
