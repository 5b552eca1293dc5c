"""The selection of entries of a source directory, and their kinds.

It works between the scan and everything else: excluded entries are not seen again, an excluded
directory is not entered, and with followed links a link has the kind of its target. A copy without
such options reads the blocks of `pcircle.fs.scan` unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pcircle.fs.directories import HOLDER, Directories
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.ops.copy.entry.collisions import Siblings, reopened
from pcircle.ops.copy.tree.plan import Plan
from pcircle.walk.attributes import ANY
from pcircle.walk.filter import choosing
from pcircle.walk.following import follow

Blocks = Callable[[bytes, int], Iterator[Block]]


def chosen_blocks(plan: Plan) -> Blocks:
    """Return a function of a directory, by path and descriptor, that yields selected blocks."""
    if not plan.rules and not plan.follow and plan.wanted == ANY:
        return lambda path, directory_fd: blocks(directory_fd)
    choose = choosing(plan.rules, plan.wanted, plan.now_ns, follow=plan.follow)

    def read(path: bytes, directory_fd: int) -> Iterator[Block]:
        for block in blocks(directory_fd):
            if plan.follow:
                follow(block, directory_fd)
            choose(block, path, directory_fd)
            yield block

    return read


def siblings_of(plan: Plan) -> Siblings:
    """Return a function that yields the copied names in a source's directory."""
    roots, read = plan.roots, chosen_blocks(plan)

    def siblings(sources: Directories, root: int, path: bytes) -> Iterable[bytes]:
        """Yield copied names; of the parent of roots, the names of the roots."""
        if path == HOLDER:
            holder = roots[root].target_holder
            return [each.target_name for each in roots if each.target_holder == holder]
        names: list[bytes] = []
        with sources.lease(root, path, readable=True) as source, reopened(source.fd) as fd:
            for block in read(path, fd):
                for kind in (block.files, block.links, block.directories):
                    names += encoded(kind)
                if plan.keep.special:
                    names += encoded(block.specials)
        return names

    return siblings
