"""Following symbolic links to directories, without cycles.

A link may lead to one of its own parents, so each directory carries the identities (device, inode)
of those on its path, sixteen bytes each; a repeated identity is a cycle. A link may also lead into
the copy, which grows meanwhile: no link target may lie in one of the copies. A directory that is
not a link lies where its parent does, so only links are checked. This costs nothing unless links
are followed.
"""

from __future__ import annotations

import os
import stat
import struct
from typing import Any

from pcircle.fs.directories import Directories, Lease, at_and_above
from pcircle.fs.entry_errors import LOOP, Trouble
from pcircle.walk.items import Place
from pcircle.walk.open_directory import Open

_ONE = struct.Struct("<QQ")


def below(ancestors: bytes, place: Place) -> bytes:
    """Return the ancestors of entries of a directory with these ancestors."""
    return ancestors + _ONE.pack(*place.source)


def ancestors_of(opened: Open[Any], holder: Open[Any] | None) -> bytes:
    """Return the identities of the directories on the path to one."""
    return b"" if holder is None else holder.ancestors


def refuse_cycle(
    where: tuple[int, bytes, bytes], found: Lease, sources: Directories, copies: Directories
) -> None:
    """Raise Trouble if the directory `found` must not be entered."""
    root, path, ancestors = where
    one = _ONE.pack(*found.identity)
    status = os.fstat(found.fd)
    names = path.split(b"/")
    for depth in range(len(ancestors) // _ONE.size):
        if ancestors.startswith(one, depth * _ONE.size):
            # Among several nodes identities are inodes alone: it may be on another file system.
            with sources.lease(root, b"/".join(names[:depth])) as ancestor:
                if os.path.samestat(status, os.fstat(ancestor.fd)):
                    raise Trouble(LOOP, "it leads back to a directory above it")
    with sources.lease(root, b"/".join(names[:-1])) as holder:
        name_status = os.stat(names[-1], dir_fd=holder.fd, follow_symlinks=False)
    if stat.S_ISLNK(name_status.st_mode):
        roots = copies.roots()
        if any(identity in roots for identity in at_and_above(found.fd)):
            raise Trouble(LOOP, "it leads into the copy that is being made")
