"""`--chown`, `--chmod`, `--usermap` and `--groupmap`: owners and modes of copies."""

from __future__ import annotations

import argparse
import os

import msgspec

from pcircle.cli.ids import Owner, read_map, read_owner
from pcircle.core.errors import UsageError
from pcircle.core.names import show
from pcircle.fs.attributes.metadata import Keep
from pcircle.fs.attributes.owners import Bits, Given, IdRule, read_modes


def owning(args: argparse.Namespace, keep: Keep) -> Keep:
    """Return the attributes to keep, with the given owners and modes. UsageError."""
    owner = Owner(None, None)
    if args.chown is not None:
        owner = read_owner("--chown", args.chown, login=False)
        if owner == (None, None):
            raise UsageError(f"--chown: invalid value '{args.chown}': must be USER:GROUP")
    users, groups = _map("--usermap", args.usermap), _map("--groupmap", args.groupmap)
    given = Given(owner.uid, owner.gid, users, groups, _modes(args.chmod or ()))
    if given == Given():
        return keep
    if args.numeric_ids and given.by_name:
        raise UsageError("--numeric-ids cannot be combined with maps of patterns of names")
    _refuse(given, keep)
    return msgspec.structs.replace(keep, given=given)


def _refuse(given: Given, keep: Keep) -> None:
    if given.uid is not None and given.users:
        raise UsageError("--usermap cannot be combined with an owner of --chown")
    if given.gid is not None and given.groups:
        raise UsageError("--groupmap cannot be combined with a group of --chown")
    gives_users = given.uid is not None or bool(given.users)
    owns = gives_users or given.gid is not None or bool(given.groups)
    if owns and not keep.ownership:
        raise UsageError("--chown, --usermap and --groupmap require --preserve=ownership")
    if given.modes and not keep.mode:
        raise UsageError("--chmod requires --preserve=mode")
    if gives_users and os.geteuid():
        raise UsageError("only root may give files to other users: --chown, --usermap")


def _map(option: str, text: str | None) -> tuple[IdRule, ...]:
    return () if text is None else read_map(option, text)


def _modes(texts: tuple[str, ...] | list[str]) -> tuple[Bits, ...]:
    """Return the mode changes in order. UsageError."""
    umask = os.umask(0)
    os.umask(umask)
    found: list[Bits] = []
    for text in texts:
        try:
            found += read_modes(text, umask)
        except ValueError as error:
            raise UsageError(f"--chmod: {show(os.fsencode(str(error)))}") from None
    return tuple(found)
