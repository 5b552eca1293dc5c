"""The owners and modes of copies: `--chown`, `--chmod`, `--usermap` and `--groupmap`."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.attributes.owners import Bits, Given, read_modes


def owning(keep: PreservedAttributes, given: Given, *, numeric: bool) -> PreservedAttributes:
    """Add the given owners and modes to the attributes to preserve.

    Raise UsageError if the options conflict; `numeric` (`--numeric-ids`) excludes maps of names.
    """
    if given == Given():
        return keep
    if numeric and given.by_name:
        raise UsageError("--numeric-ids cannot be combined with maps that contain name patterns")
    _refuse_owners(given, keep)
    return msgspec.structs.replace(keep, given=given)


def _refuse_owners(given: Given, keep: PreservedAttributes) -> None:
    if given.uid is not None and given.users:
        raise UsageError("--usermap cannot be combined with an owner of --chown")
    if given.gid is not None and given.groups:
        raise UsageError("--groupmap cannot be combined with a group given to --chown")
    gives_users = given.uid is not None or bool(given.users)
    owns = gives_users or given.gid is not None or bool(given.groups)
    if owns and not keep.ownership:
        raise UsageError("--chown, --usermap and --groupmap require --preserve=ownership")
    if given.modes and not keep.mode:
        raise UsageError("--chmod requires --preserve=mode")
    if gives_users and os.geteuid():
        raise UsageError("only root may give files to other users: --chown, --usermap")


def modes_of(name: str, texts: Iterable[str]) -> tuple[Bits, ...]:
    """Return the mode changes in order. Raise UsageError if one is invalid."""
    umask = os.umask(0)
    os.umask(umask)
    found: list[Bits] = []
    for text in texts:
        try:
            found += read_modes(text, umask)
        except ValueError as error:
            raise UsageError(f"{name}: {show(os.fsencode(str(error)))}") from None
    return tuple(found)
