"""Compare attributes, access control lists and link targets of many entries.

Hardly any entry has extended attributes. One native call per side finds the entries that have some,
and `DetailComparer` compares only these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence

from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS, lists_all
from pcircle.fs.native.pure import ASK_LISTS, KEEP_ATTRIBUTES, KEEP_LISTS
from pcircle.fs.stats import Stats, StatusRow, within_limit
from pcircle.ops.compare.details import DetailComparer
from pcircle.ops.compare.fields import ACL, TARGET, XATTR
from pcircle.ops.compare.sides import Fds

_AT_ONCE_NS = 200_000_000  # time limit of a call, so that a slow file system can be interrupted

Holders = int | list[int]
"""The descriptor of the directory of all names, or one for each name."""


class BatchedDetails:
    """Compares details for one worker thread."""

    def __init__(self, details: DetailComparer, *, flags: bool) -> None:
        """With `flags`, directories must have the same inode flags on both sides."""
        self._details = details
        self._flags = USER_FLAGS if flags else 0
        self._listing: dict[int, bool] = {}  # by device: whether names include lists
        self._native = within_limit()

    def differ(
        self,
        names: list[bytes],
        fds: tuple[Holders, Holders],
        looks: tuple[Stats, Stats],
        places: Sequence[int],
        links: Collection[int] | None,
    ) -> set[int]:
        """Return the places of the names whose details may differ. All names were looked up.

        `links` are the places of symbolic links; None means that all names are links.
        """
        details, count = self._details, len(names)
        found: set[int] = set()
        keeps = [self._keep(look.column("device", 0, count)) for look in looks]
        rows: list[tuple[StatusRow, StatusRow]] = []

        def compare(start: int, stop: int) -> None:
            batch = places[start:stop]
            if details.fields & TARGET:
                of_links = batch if links is None else [place for place in batch if place in links]
                found.update(place for place in of_links if _lead_apart(names, fds, place))
            for place in self._have_any(names, fds, keeps, batch):
                if not rows:
                    rows.extend(zip(*(look.rows(count) for look in looks), strict=True))
                if self._differ(names[place], _both(fds, place), *rows[place]):
                    found.add(place)

        (looks[1] if looks[1].is_slow else looks[0]).beside(compare, 0, len(places))
        return found

    def have_any(self, fds: Sequence[int], device: int) -> set[int]:
        """Return the places of open directories that have attributes, lists or inode flags."""
        names, places = [b"."] * len(fds), range(len(fds))
        return set(self._asked(names, list(fds), self._keep([device]), places))

    def _have_any(
        self,
        names: list[bytes],
        fds: tuple[Holders, Holders],
        keeps: Sequence[int],
        places: Sequence[int],
    ) -> list[int]:
        found: set[int] = set()
        for side, keep in enumerate(keeps):
            if keep:
                found.update(self._asked(names, fds[side], keep, places))
        return sorted(found)

    def _asked(
        self, names: list[bytes], fds: Holders, keep: int, places: Sequence[int]
    ) -> Iterable[int]:
        """Return the places that have attributes, or may have some because time ran out."""
        is_all = len(places) == len(names)
        batch = names if is_all else [names[place] for place in places]
        if not (is_all or isinstance(fds, int)):
            fds = [fds[place] for place in places]
        until_ns = time.monotonic_ns() + _AT_ONCE_NS
        outcomes = self._native.ask_attributes(fds, batch, keep, self._flags, IGNORED, until_ns)
        if not any(outcomes):
            return ()
        numbers = memoryview(outcomes).cast("q")
        return [place for place, number in zip(places, numbers, strict=True) if number]

    def _keep(self, devices: list[int]) -> int:
        """Return the attributes to query on these devices, as `KEEP_` bits."""
        fields = self._details.fields
        keep = KEEP_ATTRIBUTES if fields & XATTR else 0
        if fields & ACL:
            known = self._listing
            found = set(devices) - {0}  # 0: a name that was not looked up
            for device in found.difference(known):
                known[device] = lists_all(device)
            keep |= KEEP_LISTS if all(known[device] for device in found) else ASK_LISTS
        return keep

    def _differ(self, name: bytes, fds: Fds, a: StatusRow, b: StatusRow) -> bool:
        """Return whether the details of two entries differ, or cannot be read."""
        try:
            return bool(self._details.compare_names(name, fds, a, b))
        except OSError:  # the copy fails in the same way, and reports it
            return True


def _both(fds: tuple[Holders, Holders], place: int) -> Fds:
    first, second = (side_fds if isinstance(side_fds, int) else side_fds[place] for side_fds in fds)
    return first, second


def _lead_apart(names: list[bytes], fds: tuple[Holders, Holders], place: int) -> bool:
    """Return whether two symbolic links have different targets, or cannot be read."""
    name, (source_fd, target_fd) = names[place], _both(fds, place)
    try:
        return os.readlink(name, dir_fd=source_fd) != os.readlink(name, dir_fd=target_fd)
    except OSError:
        return True
