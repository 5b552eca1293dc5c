"""`--stripe`: the requested layout, and whether both sides support it.

Rank 0 determines once whether a side is on Lustre, by one system call for each file system of a
source and one for the destination. `pcircle.ops.copy.entry.layouts` sets layouts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.core.units import parse_size
from pcircle.fs.attributes.lustre import (
    ALL_STRIPES,
    MAX_STRIPES,
    STRIPE_UNIT_BYTES,
    Stripes,
    compose,
    default_of_file_system,
    is_lustre,
    wanted,
)
from pcircle.fs.attributes.metadata import Keep
from pcircle.ops.copy.entry.settings import Striping
from pcircle.ops.copy.tree.plan import DIRECTORY, CopyRoot

KEEP, DEFAULT = "keep", "default"


def read_wish(text: str) -> str | Stripes:
    """Parse the value of `--stripe`: `KEEP`, `DEFAULT` or a layout. UsageError."""
    if text in (KEEP, DEFAULT):
        return text
    many, colon, size = text.partition(":")
    if many in ("all", "-1"):
        count = ALL_STRIPES
    elif many.isascii() and many.isdecimal() and len(many) < 9 and int(many) <= MAX_STRIPES:
        count = int(many)
    else:
        raise UsageError(
            f"--stripe: '{text}' is not keep, default, COUNT or COUNT:SIZE "
            f"(COUNT up to {MAX_STRIPES}, or all)"
        )
    if not colon:
        return Stripes(count=count)
    try:
        stripe_bytes = parse_size(size)
    except ValueError as error:
        raise UsageError(f"--stripe: {error}") from None
    if stripe_bytes % STRIPE_UNIT_BYTES or not 0 < stripe_bytes < 1 << 32:
        raise UsageError(f"--stripe: '{size}' is not a multiple of 64k below 4G")
    return Stripes(count=count, stripe_bytes=stripe_bytes)


def demand(text: str | None, keep: Keep) -> Keep:
    """Return the attributes to keep, with `--stripe` included. UsageError."""
    if text is None:
        return keep
    wish = read_wish(text)
    if wish != KEEP and keep.stripe_demanded:
        raise UsageError(f"--stripe={text} cannot be combined with --preserve=stripe")
    return replace(keep, stripe=wish == KEEP, stripe_demanded=wish != DEFAULT)


def striping_of(text: str | None, keep: Keep, roots: Sequence[CopyRoot]) -> Striping:
    """Return the treatment of layouts, from `--stripe` and the result of `demand`.

    UsageError if a file system is not Lustre but must be.
    """
    wish = DEFAULT if text is None else read_wish(text)
    targets = {root.target_holder: root.target_shown for root in roots}
    strange = [shown for holder, shown in targets.items() if not is_lustre(holder)]
    on_target = not strange
    sources = _sources(roots)
    on_source = {place: is_lustre(place) for place in sources}
    if wish != DEFAULT and strange:
        raise UsageError(f"--stripe={text}: '{show(strange[0])}' is not on Lustre")
    for place, found in on_source.items():
        if wish == KEEP and not found:
            raise UsageError(f"--stripe={text}: '{show(sources[place])}' is not on Lustre")
    keeps = keep.stripe and any(on_source.values()) and (on_target or keep.stripe_demanded)
    return Striping(
        source=any(on_source.values()),
        target=on_target,
        keep=keeps,
        layout=compose(wish) if isinstance(wish, Stripes) else b"",
        defaults=_defaults(on_source) if keeps else (),
    )


def _sources(roots: Sequence[CopyRoot]) -> dict[bytes, bytes]:
    """Return a directory on each file system of a source, with the path to print."""
    first: dict[int, CopyRoot] = {}
    for root in roots:
        first.setdefault(root.file_system, root)
    return {
        os.path.join(root.source_holder, root.source_name)
        if root.kind == DIRECTORY
        else root.source_holder: root.source_shown
        for root in first.values()
    }


def _defaults(places: dict[bytes, bool]) -> tuple[bytes, ...]:
    found = set()
    for place in (place for place, lustre in places.items() if lustre):
        # If the default is unreadable or cannot be preserved, no directory returns it either.
        with suppress(OSError, ValueError):
            value = default_of_file_system(place)
            if value is not None:
                found.add(wanted(value))
    return tuple(sorted(found))
