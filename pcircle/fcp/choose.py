"""Which entries of a source directory are part of the copy, and as what.

Between the scan and everything else: what the rules leave out is never seen
again, a directory that is left out is not entered, and where links are
followed a link is what it leads to. A copy without such options reads the
blocks of `pcircle.fs.scan` as they come.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator

from pcircle.copying.collisions import Siblings, afresh
from pcircle.fcp.items import Tree
from pcircle.fcp.plan import Plan
from pcircle.fs.choosing import choosing
from pcircle.fs.directories import HOLDER, Directories
from pcircle.fs.scan import Block, blocks, encoded

Blocks = Callable[[bytes, int], Iterator[Block]]


def chosen_blocks(plan: Plan) -> Blocks:
    """A function of a directory's path below its root, and its descriptor, as `scan.blocks`."""
    if not plan.rules and not plan.follow:
        return lambda path, directory_fd: blocks(directory_fd)
    choose = choosing(plan.rules)

    def read(path: bytes, directory_fd: int) -> Iterator[Block]:
        for block in blocks(directory_fd):
            if plan.follow:
                _follow(block, directory_fd)
            choose(block, path)
            yield block

    return read


def is_left_empty(plan: Plan, item: Tree, directory_fd: int, sources: Directories) -> bool:
    """Whether a directory is not entered, being on another file system than what it lies in."""
    if item.above is None or not plan.one_file_system:
        return False
    # Both are asked for here: another node may number the same device differently.
    with sources.lease(item.root, item.path.rpartition(b"/")[0]) as holder:
        return os.fstat(holder.fd).st_dev != os.fstat(directory_fd).st_dev


def siblings_of(plan: Plan) -> Siblings:
    """A function that gives the names in a source's directory that are copied."""
    roots, read = plan.roots, chosen_blocks(plan)

    def siblings(sources: Directories, root: int, path: bytes) -> Iterable[bytes]:
        """Of the holder those of the roots."""
        if path == HOLDER:
            holder = roots[root].target_holder
            return [each.target_name for each in roots if each.target_holder == holder]
        names: list[bytes] = []
        with sources.lease(root, path, readable=True) as source, afresh(source.fd) as fd:
            for block in read(path, fd):
                for kind in (block.files, block.links, block.directories):
                    names += encoded(kind)
                if plan.keep.special:
                    names += encoded(block.specials)
        return names

    return siblings


def _follow(block: Block, directory_fd: int) -> None:
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
