"""`--json-lines` and `--list-out`: each action on an entry, and each entry that was acted on.

The rank that acts makes their lines and keeps them until its item ends; then they go to rank 0 as
notices do, packed and answered (`pcircle.circle.notices`): so lines are whole, those of a rank in
their order, memory is bounded, and who acts faster than rank 0 writes waits. A list that ranks
write to files, to be merged, would be in order, which no reader of it needs; but it could be no
pipe, wants a directory that all ranks see, and after an early end nobody would have it.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pcircle.fs.listed import COMMENT
from pcircle.runtime import Context
from pcircle.ui.names import show

_VERSION = 1
_FEW_BYTES = 1 << 15  # of lines in a notice
_MANY = 1024  # entries
_FEW = 256  # entries in a notice


class Lines(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """Some lines of actions, whole ones, and paths of a list, each with its end.

    `unlisted` is how many have a newline in their paths, with which these end; `said` are
    lines for the user, and `planned` those of a plan.
    """

    text: bytes
    paths: bytes = b""
    unlisted: int = 0
    said: bytes = b""
    planned: bytes = b""


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """What is to be told of actions: their lines, and paths that end with `end`, if any.

    To the user they are told by this word, if it is not empty, and the path.
    """

    lines: bool = False
    end: bytes = b""
    word: str = ""
    plan: bool = False

    @property
    def any(self) -> bool:
        return self.lines or bool(self.end) or bool(self.word) or self.plan


Said = bytes | None
"""Lines for the user, or None for those that the word of `Wanted` makes."""


class _Kept(msgspec.Struct, frozen=True):
    """What happened to an entry."""

    root: int
    path: bytes
    line: bytes
    listed: bytes
    is_unlisted: bool
    said: bytes


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
        self,
        tool: str,
        wanted: Wanted,
        rank: int,
        first: Actions | None = None,
        *,
        planned: bool = False,
        shown: Sequence[bytes] = (),
    ) -> None:
        """`first` are those of the rank's first thread, `shown` the roots as users know them."""
        self._shown = shown
        self._tool = tool
        self.wanted = wanted
        self._rank = rank
        self._done = "planned" if planned else "done"
        self._began_s: float = time.monotonic() if first is None else first._began_s
        self._encode = msgspec.json.Encoder().encode
        self._kept: list[_Kept] = []
        self._planned: list[bytes] = []

    def done(
        self,
        action: str,
        root: int,
        path: bytes,
        kind: str,
        size: int = 0,
        *,
        said: Said = None,
        why: tuple[str, ...] = (),
    ) -> None:
        """An entry was acted on, or would be; `said` to the user are lines of the tool's own."""
        self._add(action, root, path, kind, size, self._done, None, said, why)

    def planned(self, line: bytes) -> None:
        """An entry is planned to be acted on: its line of the plan."""
        self._planned.append(line)

    def skipped(self, root: int, path: bytes, kind: str, *, said: Said = None) -> None:
        """An entry is left as it is; `said` as of `done`."""
        state = "skipped" if self._done == "done" else self._done
        self._add("skip", root, path, kind, 0, state, None, said)

    def vanished(self, action: str, root: int, path: bytes, kind: str) -> None:
        """An entry was gone before it could be acted on."""
        self._add(action, root, path, kind, 0, "vanished", None)

    def failed(self, action: str, root: int, path: bytes, errno: int | None) -> None:
        """An action has failed: what this item has told of the entry last does not hold."""
        if (kept := self._kept) and (kept[-1].root, kept[-1].path) == (root, path):
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
        said: Said = None,
        why: tuple[str, ...] = (),
    ) -> None:
        wanted = self.wanted
        if said is None and not (wanted.lines or wanted.end or wanted.word):
            return  # only a plan is, and that has lines of its own
        line = b""
        if wanted.lines:
            text, coded = _as_text(path or b".")
            told = Action(
                v=_VERSION,
                tool=self._tool,
                action=action,
                path=text,
                path_b64=coded,
                root=root,
                kind=kind,
                why=why,
                bytes=size,
                state=state,
                errno=errno,
                rank=self._rank,
                t=round(time.monotonic() - self._began_s, 3),
            )
            line = self._encode(told) + b"\n"
        listed, end, is_unlisted = b"", self.wanted.end, False
        if end and state == self._done and action != "skip":
            is_unlisted = end in path
            listed = b"" if is_unlisted else _listed(path, end)
        if said is None and self.wanted.word and state == self._done and action != "skip":
            whole = os.path.join(self._shown[root], path) if path else self._shown[root]
            said = f"{self.wanted.word} '{show(whole)}'\n".encode()
        self._kept.append(_Kept(root, path, line, listed, is_unlisted, said or b""))

    @property
    def is_full(self) -> bool:
        """There is enough to be told that an item should not go on to gather more."""
        return len(self._kept) >= _MANY or len(self._planned) >= _MANY

    def tell(self, context: Context[Any]) -> None:
        """The item ends: have rank 0 told."""
        if self._kept:
            kept, self._kept = self._kept, []
            context.note(_packed(kept))
        if self._planned:
            planned, self._planned = self._planned, []
            for at in range(0, len(planned), _FEW):
                context.note([Lines(b"", planned=b"".join(planned[at : at + _FEW]))])


def _as_text(path: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    """A path as text, or else in base 64."""
    try:
        return path.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, b64encode(path).decode()


def _listed(path: bytes, end: bytes) -> bytes:
    """A path as `--files-from` reads it: a line that begins like a comment is none."""
    path = path or b"."
    return (b"./" if end == b"\n" and path.startswith(COMMENT) else b"") + path + end


def _packed(kept: Sequence[_Kept]) -> list[Lines]:
    """What was kept as notices of some size."""
    packs: list[Lines] = []
    begin = size = 0
    for at, each in enumerate(kept, 1):
        size += len(each.line) + len(each.listed) + len(each.said)
        if size >= _FEW_BYTES or at == len(kept):
            some = kept[begin:at]
            lines, paths = b"".join(k.line for k in some), b"".join(k.listed for k in some)
            said = b"".join(k.said for k in some)
            packs.append(Lines(lines, paths, sum(k.is_unlisted for k in some), said))
            begin, size = at, 0
    return packs
