"""The plan of a profile, which rank 0 decides for all ranks."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Sequence

import msgspec

from pcircle.core.errors import UsageError, operand_error
from pcircle.core.names import show
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.roots import Root, root_of


class Plan(msgspec.Struct, frozen=True):
    """The roots and the resolved options.

    `directory` is the working directory, and `one_node` means that all ranks run on one node.
    `volumes` has the same number for roots on the same file system. `rules` and `wanted` select
    entries below the roots, with ages relative to `now_ns`. With `one_file_system` mount points are
    not entered. `facets` are the sums in addition to sizes, `top` is the length of top lists, and
    `edges` are the edges of an exact histogram. `threads` is the number of concurrent operations of
    a rank (None: adaptive), and `pieces` the size of the sample to compress. `index` is the path
    prefix of the parts of an index; each of the `ranks` appends its number. `lists` are the
    requested lists of files, with their terminator.
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
    """Return the name of the index file that belongs to a profile."""
    from pcircle.walk.index import ENDING  # imported late, as few runs write an index

    return save + os.fsdecode(ENDING)


def resolve(paths: Sequence[bytes]) -> tuple[tuple[Root, ...], tuple[int, ...]]:
    """Return the roots, and the numbers of their file systems. Symbolic links are followed.

    Raise UsageError if a root does not exist, or if a root contains another root, whose entries
    would count twice.
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
        # Bind mounts give a directory a second path. Files may repeat, as hard links count once.
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
