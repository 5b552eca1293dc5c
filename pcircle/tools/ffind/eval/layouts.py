"""Tests of Lustre layouts, which are false on other file systems."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from pcircle.fs.attributes.lustre import ATTRIBUTE, RELEASED, Component, Layout, Stripes, parse
from pcircle.tools.ffind.eval.entry import FindEntry, Test

_METADATA = "lustre.lmv"


def _layout(entry: FindEntry) -> Layout | None:
    """Return the layout of a file or directory; None without a valid layout."""
    if entry.letter() not in ("f", "d"):
        return None
    try:
        value = os.getxattr(entry.opened, ATTRIBUTE, follow_symlinks=entry.follow)
        return parse(value)
    except (OSError, ValueError):
        return None


def _stripes(layout: Layout | None) -> Iterator[Stripes]:
    """Yield the plain layouts of a composite layout."""
    if isinstance(layout, Stripes):
        yield layout
    elif layout is not None:
        parts: tuple[Component, ...] = layout.components
        yield from (part.stripes for part in parts if part.stripes is not None)


def _number(name: str, compare: str, wanted: int) -> Test:
    def fits(number: int) -> bool:
        if compare == "+":
            return number > wanted
        return number < wanted if compare == "-" else number == wanted

    if name == "ost":
        return lambda entry: any(
            fits(target) for component in _stripes(_layout(entry)) for target in component.targets
        )
    if name == "mdt":
        return lambda entry: any(map(fits, _metadata_targets(entry)))
    field = {"stripe-count": "count", "stripe-size": "stripe_bytes"}[name]

    def test(entry: FindEntry) -> bool:
        # The last component with data counts, as in `lfs find`.
        found = list(_stripes(_layout(entry)))
        return bool(found) and fits(getattr(found[-1], field))

    return test


def _metadata_targets(entry: FindEntry) -> Iterator[int]:
    """Yield the metadata targets of a directory, or of the directory of a file."""
    where = entry.opened if entry.letter() == "d" else b"/proc/self/fd/%d" % entry.fd
    try:
        value = os.getxattr(where, _METADATA)
    except OSError:
        return
    if len(value) >= 12:
        yield int.from_bytes(value[8:12], "little")


def _pool(name: bytes) -> Test:
    return lambda entry: any(component.pool == name for component in _stripes(_layout(entry)))


def _released() -> Test:
    def test(entry: FindEntry) -> bool:
        status = entry.look() if entry.st is None else entry.st
        if status is False or not stat.S_ISREG(status.st_mode):
            return False
        return any(component.pattern & RELEASED for component in _stripes(_layout(entry)))

    return test


LAYOUT_TESTS: dict[str, Callable[..., Test]] = {
    "layout_number": _number,
    "pool": _pool,
    "released": _released,
}
