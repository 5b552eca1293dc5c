"""Looks up the files, users and dates of an expression once, on rank 0.

All ranks use the same results, so *now* is the same moment on all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pcircle.cli.attribute_filters import moment_of
from pcircle.cli.times import date_ns
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.units import timestamp
from pcircle.fs.status import birth_ns
from pcircle.tools.ffind.eval.entry import FIELDS, TIMES
from pcircle.tools.ffind.language.nodes import ExpressionNode
from pcircle.tools.ffind.language.words import refused

_MAX_ID = (1 << 32) - 1


def _newer(field: str, than_ns: int) -> ExpressionNode:
    return ExpressionNode("newer", (field, *timestamp(than_ns)))


class Resolver:
    """Looks up references.

    If `follow` is P, a symbolic link stands for itself, otherwise (H, L) for its target. Errors
    refer to positions in `words`.
    """

    def __init__(self, words: Sequence[str], follow: str, now_ns: int) -> None:
        self._words = words
        self._follows = follow != "P"
        self._now_ns = now_ns

    def resolved(self, node: ExpressionNode) -> ExpressionNode:
        """Return the node with all references resolved. Raise UsageError if that fails."""
        if node.children:
            return ExpressionNode(node.name, node.args, tuple(map(self.resolved, node.children)))
        look = _LOOKS.get(node.name)
        if look is None:
            return node
        try:
            return look(self, *node.args)
        except (ValueError, OSError, UsageError) as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise refused(self._words, node.at, node.count, text) from None

    def _status(self, path: bytes) -> os.stat_result:
        try:
            if self._follows:
                try:
                    return os.stat(path)
                except (FileNotFoundError, NotADirectoryError):
                    # A dangling link stands for itself, even if its target would be below a file.
                    return os.lstat(path)
            return os.lstat(path)
        except OSError as error:
            raise ValueError(f"cannot look up '{show(path)}': {error.strerror}") from None

    def _newer_than_file(self, field: str, other: str, path: bytes) -> ExpressionNode:
        status = self._status(path)
        if other == "B":
            born_ns = birth_ns(path, None, follow=self._follows)
            if born_ns is None:
                raise ValueError(f"the birth time of '{show(path)}' is unknown")
            return _newer(field, born_ns)
        return _newer(field, FIELDS[TIMES[other]](status))

    def _newer_than_date(self, field: str, text: bytes) -> ExpressionNode:
        try:
            return _newer(field, date_ns("date", os.fsdecode(text)))
        except UsageError:
            return _newer(field, _by_date(text))

    def _since_moment(self, text: bytes) -> ExpressionNode:
        return _newer("m", self._moment_ns("-since", text))

    def _until_moment(self, text: bytes) -> ExpressionNode:
        return ExpressionNode("not", (), (_newer("m", self._moment_ns("-until", text)),))

    def _moment_ns(self, option: str, text: bytes) -> int:
        return moment_of(option, os.fsdecode(text)).at_ns(self._now_ns)

    def _samefile(self, path: bytes) -> ExpressionNode:
        status = self._status(path)
        return ExpressionNode("samefile", (status.st_dev, status.st_ino))

    def _user(self, text: bytes) -> ExpressionNode:
        import pwd  # few expressions name a user

        return _number("uid", text, lambda name: pwd.getpwnam(name).pw_uid)

    def _group(self, text: bytes) -> ExpressionNode:
        import grp  # few expressions name a group

        return _number("gid", text, lambda name: grp.getgrnam(name).gr_gid)


def _number(field: str, text: bytes, number_of: Callable[[str], int]) -> ExpressionNode:
    """Return the test for an owner, given as a name or number."""
    name = os.fsdecode(text)
    try:
        return ExpressionNode("number", (field, "=", number_of(name)))
    except (KeyError, ValueError):
        if name.isascii() and name.isdecimal() and int(name) <= _MAX_ID:
            return ExpressionNode("number", (field, "=", int(name)))
    raise ValueError(f"unknown name '{show(text)}'")


def _by_date(text: bytes) -> int:
    """Return a time such as `yesterday` or `2 hours ago`, as date(1) reads it."""
    import subprocess  # few expressions contain a date

    command: list[str | bytes] = ["date", b"--date=" + text, "+%s%N"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=10
        )
        return int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise ValueError(f"'{show(text)}' is not a date") from None


_LOOKS: dict[str, Callable[..., ExpressionNode]] = {
    "newer_than_file": Resolver._newer_than_file,
    "newer_than_date": Resolver._newer_than_date,
    "since_moment": Resolver._since_moment,
    "until_moment": Resolver._until_moment,
    "samefile": Resolver._samefile,
    "user": Resolver._user,
    "group": Resolver._group,
}
