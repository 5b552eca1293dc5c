"""Following symbolic links: each stands for its target."""

from __future__ import annotations

import os
import stat
import struct

from pcircle.fs.entry_errors import LOOP, Trouble
from pcircle.fs.scan import Block
from pcircle.walk.items import Identity

_ONE = struct.Struct("<QQ")


def descent(above: bytes, identity: Identity) -> bytes:
    """Return the `ancestors` of entries of a directory with these `above`. Trouble for a cycle."""
    one = _ONE.pack(*identity)
    if any(above.startswith(one, at) for at in range(0, len(above), _ONE.size)):
        raise Trouble(LOOP, "it leads back to a directory above it")
    return above + one


def follow(block: Block, directory_fd: int) -> None:
    """Sort links by the kinds of their targets."""
    links, block.links = block.links, []
    for name in links:
        try:
            mode = os.stat(name, dir_fd=directory_fd).st_mode
        except OSError:
            mode = stat.S_IFREG  # opening it will fail, which is reported
        if stat.S_ISDIR(mode):
            block.directories.append(name)
        elif stat.S_ISREG(mode):
            block.files.append(name)
        else:
            block.specials.append(name)
