"""The plan of a signature, decided on rank 0 and then the same on every rank."""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from pcircle.core.errors import operand_error
from pcircle.core.names import show
from pcircle.fs.directories import Directories
from pcircle.walk.attributes import ANY, Attributes
from pcircle.walk.globs import Rule
from pcircle.walk.roots import Root, open_roots, root_of
from pcircle.walk.walker import Scope

BLOCK_BYTES = 4 << 20
LARGE_BYTES = 32 << 20
"""Larger files are read in chunks, unless a chunk size is given."""


class Own(msgspec.Struct, frozen=True, array_like=True):
    """A manifest in the directory of this path below the root, or with `parts` its parts.

    It cannot be an entry of itself.
    """

    directory: bytes
    name: bytes
    parts: bool = False

    def names(self, name: bytes) -> bool:
        """Return whether a file of the directory is such a manifest."""
        return name == self.name or (self.parts and name.startswith(self.name + b"-"))


Against: TypeAlias = Literal["check", "quick", "update", "rot"]


class Plan(msgspec.Struct, frozen=True):
    """The roots and the resolved options.

    `large_bytes` is the size above which files are read in chunks, `chunk_bytes` the size of
    chunks, None for an adaptive size. `directory` is the working directory; `one_node` means that
    all ranks run on one node. `rules` and `wanted` select entries below the roots, with ages
    relative to `now_ns`; `listing` means that a list does; with `one_file_system` mount points are
    not entered. `own` are files of this run below the root, which are excluded. `parts` is the path
    prefix of the parts of a manifest, to which each of the `ranks` appends its number; `against` is
    the manifest to compare with, in this `mode`. With `whole` files have digests of their own, and
    with `listed` those of a list are checked. `threads` is the number of worker threads of a rank,
    None for an adaptive number.
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
        """Return what is walked."""
        return Scope(self.rules, self.one_file_system, wanted=self.wanted, now_ns=self.now_ns)

    @property
    def whole_tree(self) -> bool:
        """Return whether no option excludes entries."""
        some = self.rules or self.one_file_system or self.listing or self.own
        return not some and self.wanted == ANY

    @property
    def detailed(self) -> bool:
        """Return whether sizes and times are stored with the digests."""
        return self.parts is not None or self.against is not None

    def shown(self, root: int, path: bytes) -> bytes:
        """Return the path of an entry, beginning as the user typed it."""
        base = self.roots[root]
        if self.listed:
            return path
        return base.shown if base.name or not path else os.path.join(base.shown, path)

    def reach(self, *, is_first: bool) -> Directories:
        """Return the directories below the roots, for a part of a rank's task."""
        return open_roots(self.roots, self.directory, self.identify, is_first=is_first)

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return the identity of a file on all ranks: device and inode.

        Nodes number the device of a network file system differently, so on several nodes it is the
        inode alone.
        """
        return (status.st_dev if self.one_node else 0), status.st_ino


def resolve(paths: Sequence[bytes]) -> tuple[Root, ...]:
    """Return the roots. Symbolic links are followed. UsageError."""
    return tuple(_root(path)[0] for path in paths)


def _root(path: bytes) -> tuple[Root, os.stat_result]:
    try:
        return root_of(path)
    except OSError as error:
        raise operand_error(f"cannot sign '{show(path)}': {error.strerror}", error) from None
