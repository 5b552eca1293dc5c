"""What is to be signed, decided once on rank 0 and then the same on every rank."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from pcircle.errors import operand_error
from pcircle.fs.directories import Directories
from pcircle.ui.names import show
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.roots import Root, open_roots, root_of
from pcircle.walk.walker import Scope

BLOCK_BYTES = 4 << 20
LARGE_BYTES = 32 << 20
"""Files above this are read in chunks unless a chunk size is given."""


class Own(msgspec.Struct, frozen=True, array_like=True):
    """A manifest in the directory of this path below the root, or with `parts` what it grows from.

    It can't be an entry of itself.
    """

    directory: bytes
    name: bytes
    parts: bool = False

    def names(self, name: bytes) -> bool:
        """Whether a file of the directory is meant."""
        return name == self.name or (self.parts and name.startswith(self.name + b"-"))


Against: TypeAlias = Literal["check", "quick", "update", "rot"]


class Plan(msgspec.Struct, frozen=True):
    """The roots and the resolved options.

    `large_bytes` is the size above which files are read in chunks, `chunk_bytes`
    the chunks' size, None to adapt it. `directory` is the working directory;
    `one_node` tells that all ranks share a node. `rules` choose what is signed of
    what is below the roots, as `wanted` does, with times counted from `now_ns`; `listing`
    tells that a list does; `one_file_system`: of a mount point the directory alone. `own`
    are files of this run that lie below the root: they are left out as well.
    `parts` is where each of so many `ranks` writes its part of a manifest, its number to be
    added;
    `against` is the manifest that the tree is held against, in this `mode`. With
    `whole` files have digests of their own, and `listed`: those of a list, to be checked.
    `threads` is how many worker threads each rank has, None: adaptive.
    """

    roots: tuple[Root, ...]
    algorithm: str
    large_bytes: int
    chunk_bytes: int | None
    directory: bytes
    one_node: bool = True
    rules: tuple[Rule, ...] = ()
    wanted: Attributes = ANY
    now_ns: int = 0
    listing: bool = False
    own: tuple[Own, ...] = ()
    one_file_system: bool = False
    parts: bytes | None = None
    ranks: int = 1
    against: bytes | None = None
    mode: Against = "check"
    whole: bool = False
    listed: bool = False
    threads: int | None = None

    @property
    def scope(self) -> Scope:
        """What is walked."""
        return Scope(self.rules, self.one_file_system, wanted=self.wanted, now_ns=self.now_ns)

    @property
    def whole_tree(self) -> bool:
        """Whether nothing of the roots was left out by options."""
        some = self.rules or self.one_file_system or self.listing or self.own
        return not some and self.wanted == ANY

    @property
    def detailed(self) -> bool:
        """Whether sizes and times are wanted beside the digests."""
        return self.parts is not None or self.against is not None

    def shown(self, root: int, path: bytes) -> bytes:
        """An entry's path, as the user knows it."""
        base = self.roots[root]
        if self.listed:
            return path
        return base.shown if base.name or not path else os.path.join(base.shown, path)

    def reach(self, *, is_first: bool) -> Directories:
        """The directories below the roots, for a part of a rank's task; `is_first` as there."""
        return open_roots(self.roots, self.directory, self.identify, is_first=is_first)

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """What tells one file from another on all ranks: device and inode.

        Nodes number the same network file system's device each in their own
        way, so among several nodes the inode alone must do.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino


def resolve(paths: Sequence[bytes]) -> tuple[Root, ...]:
    """The roots. A symbolic link is followed. UsageError if there is nothing."""
    return tuple(_root(path)[0] for path in paths)


def _root(path: bytes) -> tuple[Root, os.stat_result]:
    try:
        return root_of(path)
    except OSError as error:
        raise operand_error(f"cannot sign '{show(path)}': {error.strerror}", error) from None
