"""`--json-lines`: a line of JSON for each action on an entry, while the job runs.

The rank that acts makes its lines and keeps them until its item ends; then they go to rank 0 as
notices do, packed and answered (`pcircle.circle.notices`): so lines are whole, those of a rank in
their order, memory is bounded, and who acts faster than rank 0 writes waits.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pcircle.runtime import Here

_VERSION = 1
_FEW_BYTES = 1 << 15  # of lines in a notice


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """Some lines of actions, whole ones."""

    text: bytes


class Action(msgspec.Struct, frozen=True):
    """What was done with an entry, or would be.

    `path` is below PATH number `root`, `.` for that itself; one that is not UTF-8 is `path_b64`.
    `kind` is a letter as of `find -type`, `t` the seconds since the rank began.
    """

    v: int
    tool: str
    action: str
    path: str | UnsetType
    path_b64: str | UnsetType
    root: int
    kind: str
    why: tuple[str, ...]
    bytes: int
    state: str
    errno: int | None
    rank: int
    t: float


class Actions:
    """What one thread of a rank has to tell of actions. `planned`: none is done."""

    def __init__(
        self, tool: str, rank: int, first: Actions | None = None, *, planned: bool = False
    ) -> None:
        """`first` are those of the rank's first thread."""
        self._tool = tool
        self._rank = rank
        self._done = "planned" if planned else "done"
        self._began_s: float = time.monotonic() if first is None else first._began_s
        self._encode = msgspec.json.Encoder().encode
        self._kept: list[tuple[int, bytes, bytes]] = []  # by entry

    def done(self, action: str, root: int, path: bytes, kind: str, size: int = 0) -> None:
        """An entry was acted on, or would be."""
        self._add(action, root, path, kind, size, self._done, None)

    def skipped(self, root: int, path: bytes, kind: str) -> None:
        """An entry is left as it is."""
        state = "skipped" if self._done == "done" else self._done
        self._add("skip", root, path, kind, 0, state, None)

    def failed(self, action: str, root: int, path: bytes, errno: int | None) -> None:
        """An action has failed: what this item has told of the entry last does not hold."""
        if self._kept and self._kept[-1][:2] == (root, path):
            self._kept.pop()
        self._add(action, root, path, "", 0, "failed", errno)

    def _add(
        self,
        action: str,
        root: int,
        path: bytes,
        kind: str,
        size: int,
        state: str,
        errno: int | None,
    ) -> None:
        text: str | UnsetType = UNSET
        coded: str | UnsetType = UNSET
        try:
            text = (path or b".").decode()
        except UnicodeDecodeError:
            coded = b64encode(path).decode()
        seconds = round(time.monotonic() - self._began_s, 3)
        line = Action(
            v=_VERSION,
            tool=self._tool,
            action=action,
            path=text,
            path_b64=coded,
            root=root,
            kind=kind,
            why=(),
            bytes=size,
            state=state,
            errno=errno,
            rank=self._rank,
            t=seconds,
        )
        self._kept.append((root, path, self._encode(line) + b"\n"))

    def tell(self, here: Here[Any]) -> None:
        """The item ends: have rank 0 told."""
        if self._kept:
            kept, self._kept = self._kept, []
            here.note(list(_packed([line for _, _, line in kept])))


def _packed(lines: Sequence[bytes]) -> list[Lines]:
    """Lines as notices of some size."""
    packs: list[Lines] = []
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size >= _FEW_BYTES:
            packs.append(Lines(b"".join(some)))
            some, size = [], 0
    if some:
        packs.append(Lines(b"".join(some)))
    return packs
