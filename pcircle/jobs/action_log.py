"""The output of `--json-lines` and `--list-out`: a record, or a path, for each action.

The rank that performs an action formats its line and stores it until the item ends. It then sends
the lines to rank 0 as notices, which are batched and acknowledged (`pcircle.circle.notices`). So
lines are complete, the lines of each rank are in order, memory is bounded, and a rank that acts
faster than rank 0 can write must wait.

Alternatively, each rank could write a file, and these could be merged at the end. But then the
output could not be a pipe, the ranks would need a shared directory, and the output would be lost if
the job ended early.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from pcircle.core.encoding import COMMENT, show
from pcircle.fs.directories import HOLDER, join_path
from pcircle.jobs.failures import NoticeSink

_VERSION = 1
NOTICE_BYTES = 1 << 15  # size of lines at which a notice is full
_MANY = 1024  # entries after which an item should end
NOTICE_LINES = 256  # maximum number of plan lines in a notice


class ActionLines(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """A notice with complete lines of the action log, and terminated paths for the list.

    `unlisted` is the number of paths that cannot be listed because they contain the terminator.
    `said` contains the lines for standard output, and `planned` those for a plan.
    """

    text: bytes
    paths: bytes = b""
    unlisted: int = 0
    said: bytes = b""
    planned: bytes = b""


class ActionOutput(msgspec.Struct, frozen=True, array_like=True):
    """The requested output: lines of the action log, and paths terminated by `end`.

    If `word` is not empty, a line with this word and the path is printed on standard output for
    each action. With `plan`, the actions are written to a plan.
    """

    lines: bool = False
    end: bytes = b""
    word: str = ""
    plan: bool = False

    @property
    def any(self) -> bool:
        return self.lines or bool(self.end) or bool(self.word) or self.plan


Said = bytes | None
"""Lines for standard output; None for the usual line, which `ActionOutput.word` defines."""


class _ActionOutput(msgspec.Struct, frozen=True):
    """The output for one action, stored until the item ends."""

    root: int
    path: bytes
    line: bytes
    listed: bytes
    is_unlisted: bool
    said: bytes


class Action(msgspec.Struct, frozen=True):
    """A line of the action log: an action on an entry, and its state.

    `path` is relative to PATH number `root`, and `.` for the root itself; a path that is not UTF-8
    is stored in `path_b64`. `kind` is a letter as in `find -type`, and `t` is the time in seconds
    since the rank started.
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


class ActionLog:
    """The actions of one worker thread. With `planned`, they are planned but not carried out."""

    def __init__(
        self,
        tool: str,
        output: ActionOutput,
        rank: int,
        first: ActionLog | None = None,
        *,
        planned: bool = False,
        shown: Sequence[bytes] = (),
    ) -> None:
        """`first` is the log of the rank's first thread; `shown` contains the roots as typed."""
        self._shown = shown
        self._tool = tool
        self.output = output
        self._rank = rank
        self._done = "planned" if planned else "done"
        self._began_s: float = time.monotonic() if first is None else first._began_s
        self._encode = msgspec.json.Encoder().encode
        self._outputs: list[_ActionOutput] = []
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
        """Record an action; `said` replaces the usual line on standard output."""
        self._add(action, root, path, kind, size, self._done, None, said, why)

    def entry(self, action: str, root: int, directory: bytes, name: bytes) -> None:
        """Record an action on a name in a directory, or on a root; its directory is HOLDER."""
        path = b"" if directory == HOLDER else join_path(directory, name)
        self.done(action, root, path, "")

    def planned(self, line: bytes) -> None:
        """Record a line of the plan."""
        self._planned.append(line)

    def skipped(self, root: int, path: bytes, kind: str, *, said: Said = None) -> None:
        """Record an entry that is left unchanged; see `done` for `said`."""
        state = "skipped" if self._done == "done" else self._done
        self._add("skip", root, path, kind, 0, state, None, said)

    def vanished(self, action: str, root: int, path: bytes, kind: str) -> None:
        """Record an entry that vanished before the action."""
        self._add(action, root, path, kind, 0, "vanished", None)

    def failed(self, action: str, root: int, path: bytes, errno: int | None) -> None:
        """Record a failed action; replace the last record if it is of the same entry."""
        if (outputs := self._outputs) and (outputs[-1].root, outputs[-1].path) == (root, path):
            self._outputs.pop()
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
        output = self.output
        if said is None and not (output.lines or output.end or output.word):
            return  # only a plan is requested; its lines are recorded separately
        line = b""
        if output.lines:
            text, coded = _as_text(path or b".")
            record = Action(
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
            line = self._encode(record) + b"\n"
        listed, end, is_unlisted = b"", self.output.end, False
        if end and state == self._done and action != "skip":
            is_unlisted = end in path
            listed = b"" if is_unlisted else _listed(path, end)
        if said is None and self.output.word and state == self._done and action != "skip":
            whole = os.path.join(self._shown[root], path) if path else self._shown[root]
            said = f"{self.output.word} '{show(whole)}'\n".encode()
        self._outputs.append(_ActionOutput(root, path, line, listed, is_unlisted, said or b""))

    @property
    def is_full(self) -> bool:
        """Return whether the item should end because the limit on records is reached."""
        return len(self._outputs) >= _MANY or len(self._planned) >= _MANY

    def tell(self, context: NoticeSink) -> None:
        """Send all records to rank 0 at the end of an item."""
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            context.note(_packed(outputs))
        if self._planned:
            planned, self._planned = self._planned, []
            for at in range(0, len(planned), NOTICE_LINES):
                context.note([ActionLines(b"", planned=b"".join(planned[at : at + NOTICE_LINES]))])


def _as_text(path: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    """Return a path as text or, if it is not UTF-8, in base 64."""
    try:
        return path.decode(), UNSET
    except UnicodeDecodeError:
        from base64 import b64encode  # rarely needed

        return UNSET, b64encode(path).decode()


def _listed(path: bytes, end: bytes) -> bytes:
    """Return a path as `--files-from` reads it, with `./` before a leading comment character."""
    path = path or b"."
    return (b"./" if end == b"\n" and path.startswith(COMMENT) else b"") + path + end


def _packed(outputs: Sequence[_ActionOutput]) -> list[ActionLines]:
    """Return the records as notices of about 32 KiB."""
    packs: list[ActionLines] = []
    begin = size = 0
    for at, output in enumerate(outputs, 1):
        size += len(output.line) + len(output.listed) + len(output.said)
        if size >= NOTICE_BYTES or at == len(outputs):
            batch = outputs[begin:at]
            lines = b"".join(output.line for output in batch)
            paths = b"".join(output.listed for output in batch)
            said = b"".join(output.said for output in batch)
            packs.append(
                ActionLines(lines, paths, sum(output.is_unlisted for output in batch), said)
            )
            begin, size = at, 0
    return packs
