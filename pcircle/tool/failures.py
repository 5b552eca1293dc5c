"""A failed entry: what every tool tells of one, to the user, to the error log and to rank 0."""

from __future__ import annotations

import msgspec


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """An entry of which the work failed: what was tried, on which path, and why.

    `path` is as the user knows it, `entry` the path below root number `root`. Where the
    system has no `errno` for it, there is a `kind` of `pcircle.fs.trouble`.
    """

    path: bytes
    doing: str
    errno: int | None
    reason: str
    root: int
    entry: bytes
    kind: str = ""
