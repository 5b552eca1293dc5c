"""Which entries of a source directory are part of the copy, and as what.

Between the scan and everything else: what the rules leave out is never seen
again, a directory that is left out is not entered, and where links are
followed a link is what it leads to. A copy without such options reads the
blocks of `pcircle.fs.scan` as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pcircle.copying.collisions import Siblings, afresh
from pcircle.fs.directories import HOLDER, Directories
from pcircle.fs.scan import Block, blocks, encoded
from pcircle.transfer.plan import Plan
from pcircle.walk.attributes import ANY
from pcircle.walk.choosing import choosing
from pcircle.walk.following import follow

Blocks = Callable[[bytes, int], Iterator[Block]]


def chosen_blocks(plan: Plan) -> Blocks:
    """A function of a directory's path below its root, and its descriptor, as `scan.blocks`."""
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
