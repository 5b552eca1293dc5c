"""What is to be profiled, decided once on rank 0 and then the same on every rank."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Sequence

import msgspec

from pcircle.errors import UsageError, operand_error
from pcircle.ui.names import show
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.roots import Root, root_of


class Plan(msgspec.Struct, frozen=True):
    """The roots and the resolved options.

    `directory` is the working directory; `one_node` tells that all ranks share a node, and
    `volumes` which of the roots lie on one file system: they have the same number. `rules`
    choose what is counted of what is below the roots; `one_file_system`: of a mount point the
    directory alone. `facets` are what is to be added up besides sizes, `top` how long lists of
    the best are, `edges` those of a histogram that is to be exact there; `threads` how many
    operations of a rank may be under way at once, None: adaptive; `pieces` how many pieces
    of files are to be compressed. `wanted` is what entries must be, with times counted from
    `now_ns`. `index` is where each of so many `ranks` writes its part of an index, its number to be
    added. `lists` are the kinds of files of which each has a line, with this end.
    """

    roots: tuple[Root, ...]
    directory: bytes
    volumes: tuple[int, ...]
    one_node: bool = True
    rules: tuple[Rule, ...] = ()
    one_file_system: bool = False
    facets: tuple[str, ...] = ()
    top: int = 1
    edges: tuple[int, ...] = ()
    threads: int | None = None
    pieces: int = 0
    wanted: Attributes = ANY
    now_ns: int = 0
    index: bytes | None = None
    lists: tuple[str, ...] = ()
    list_end: bytes = b"\n"
    ranks: int = 1


def index_of(save: str) -> str:
    """The file of the index beside a profile."""
    from pcircle.walk.index import ENDING  # few runs write one

    return save + os.fsdecode(ENDING)


def resolve(paths: Sequence[bytes]) -> tuple[tuple[Root, ...], tuple[int, ...]]:
    """The roots, and numbers of their file systems. A symbolic link is followed.

    UsageError if there is nothing, or if one is in another or the same: what is in both would count
    twice.
    """
    found = [_root(path) for path in paths]
    real = [os.path.realpath(path) for path in paths]
    places: dict[bytes, int] = {}
    for place, path in enumerate(real):
        if places.setdefault(path, place) != place:
            raise UsageError(f"'{show(paths[place])}' is in '{show(paths[places[path]])}'")
    for place, path in enumerate(real):
        outer = path
        while outer != b"/":
            outer = os.path.dirname(outer)
            if outer in places:
                raise UsageError(f"'{show(paths[place])}' is in '{show(paths[places[outer]])}'")
    same: dict[tuple[int, int], int] = {}
    for place, (root, status) in enumerate(found):
        # Mounted at two places, a directory has two names; hard-linked files count once anyway.
        other = same.setdefault((status.st_dev, status.st_ino), place)
        if other != place and not root.name:
            raise UsageError(f"'{show(paths[place])}' is '{show(paths[other])}'")
    devices = [status.st_dev for _, status in found]
    return tuple(root for root, _ in found), tuple(map(devices.index, devices))


def _root(path: bytes) -> tuple[Root, os.stat_result]:
    try:
        return root_of(path)
    except OSError as error:
        raise operand_error(f"cannot profile '{show(path)}': {error.strerror}", error) from None
