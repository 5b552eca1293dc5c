"""Sort keys of entries: bytes whose order is the requested order.

Paths are compared byte by byte, like ``sort -z`` in the C locale. All keys end with the path, so
keys are unique.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from pcircle.cli.listing import groups, users
from pcircle.core.errors import UsageError
from pcircle.tools.ffind.eval.entry import FindEntry, Status
from pcircle.tools.ffind.eval.output import SortKeys
from pcircle.tools.ffind.plan import Order

_WIDTH = 12  # bytes: a time in nanoseconds needs 94 bits
_DIGITS = 10
_OFFSET = 1 << 95
_INVERTED = bytes(255 - byte for byte in range(256))
_USERS, _GROUPS = users(), groups()

_OF_STATUS: dict[str, Callable[[Status], int]] = {
    "size": lambda status: status.st_size,
    "blocks": lambda status: status.st_blocks,
    "mtime": lambda status: status.st_mtime_ns,
    "ctime": lambda status: status.st_ctime_ns,
    "atime": lambda status: status.st_atime_ns,
    "inode": lambda status: status.st_ino,
    "links": lambda status: status.st_nlink,
    "uid": lambda status: status.st_uid,
    "gid": lambda status: status.st_gid,
}
_OF_NAME: dict[str, Callable[[FindEntry], bytes]] = {
    "path": lambda entry: entry.path,
    "name": lambda entry: entry.basename,
    "ext": lambda entry: os.path.splitext(entry.basename)[1],
}
_OF_OWNER: dict[str, Callable[[Status], bytes]] = {
    "user": lambda status: _USERS[status.st_uid],
    "group": lambda status: _GROUPS[status.st_gid],
}
FIELDS = (*_OF_NAME, *_OF_STATUS, *_OF_OWNER, "depth")


def order_of(sort: str | None, top: str | None, by: str | None) -> Order | None:
    """Return the order of --sort, --top and --by. UsageError."""
    if top is None:
        if by is not None:
            raise UsageError("--by requires --top")
        return None if sort is None else Order(_fields("--sort", sort))
    if sort is not None:
        raise UsageError("--top cannot be combined with --sort; it takes --by")
    if not (top.isascii() and top.isdecimal() and 0 < int(top) <= 1_000_000):
        raise UsageError(f"--top: invalid value '{top}': must be 1 to 1,000,000")
    # The largest and newest entries come first unless a dash reverses the order.
    fields = _fields("--by", by or "size")
    turned = tuple(key[1:] if key.startswith("-") else f"-{key}" for key in fields)
    return Order(turned, int(top))


def _fields(option: str, text: str) -> tuple[str, ...]:
    fields = tuple(text.split(","))
    for field in fields:
        if field.removeprefix("-") not in FIELDS:
            choices = ", ".join(FIELDS)
            raise UsageError(f"{option}: unknown key '{field}'; choose from {choices}")
    return fields


def ordered(order: Order, now_ns: int) -> SortKeys:
    """Return the object that computes keys."""
    parts = [_part(field) for field in (*order.fields, "path")]
    return SortKeys(lambda entry: b"".join([part(entry) for part in parts]), order.top)


def _part(field: str) -> Callable[[FindEntry], bytes]:
    name = field.removeprefix("-")
    is_down = name != field
    if name in _OF_STATUS or name == "depth":
        number = _number(name)
        if is_down:
            return lambda entry: (_OFFSET - number(entry)).to_bytes(_WIDTH, "big")
        return lambda entry: (_OFFSET + number(entry)).to_bytes(_WIDTH, "big")
    text = _text(name)
    if is_down:
        # Longer texts with this prefix sort before it. The terminator is unique because no name
        # contains NUL.
        return lambda entry: text(entry).translate(_INVERTED) + b"\xff"
    return lambda entry: text(entry) + b"\0"


def _number(name: str) -> Callable[[FindEntry], int]:
    if name == "depth":
        return lambda entry: entry.depth
    of = _OF_STATUS[name]

    def number(entry: FindEntry) -> int:
        status = entry.look() if entry.st is None else entry.st
        return 0 if status is False else of(status)

    return number


def _text(name: str) -> Callable[[FindEntry], bytes]:
    if name in _OF_NAME:
        return _OF_NAME[name]
    of = _OF_OWNER[name]

    def text(entry: FindEntry) -> bytes:
        status = entry.look() if entry.st is None else entry.st
        return b"" if status is False else of(status)

    return text


def packed(key: bytes, text: bytes) -> bytes:
    """Return a key and a text as a record that sorts by the key."""
    return b"%b%b%0*d" % (key, text, _DIGITS, len(text))


def text_of(record: bytes) -> bytes:
    """Return the text of a record."""
    end = len(record) - _DIGITS
    return record[end - int(record[end:]) : end]
