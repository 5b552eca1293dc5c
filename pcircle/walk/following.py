"""Following symbolic links: each is what it leads to."""

from __future__ import annotations

import os
import stat

from pcircle.fs.scan import Block


def follow(block: Block, directory_fd: int) -> None:
    """Put links to where what they lead to belongs."""
    links, block.links = block.links, []
    for name in links:
        try:
            mode = os.stat(name, dir_fd=directory_fd).st_mode
        except OSError:
            mode = stat.S_IFREG  # to open it will fail, and that is told
        if stat.S_ISDIR(mode):
            block.directories.append(name)
        elif stat.S_ISREG(mode):
            block.files.append(name)
        else:
            block.specials.append(name)
