"""The plan of a signature, which rank 0 decides for all ranks."""

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
    """A manifest of this run in a directory below the root, or with `parts` its parts.

    A manifest cannot be an entry of itself.
    """

    directory: bytes
    name: bytes
    parts: bool = False

    def names(self, name: bytes) -> bool:
        """Return whether a name in the directory belongs to the manifest or its parts."""
        return name == self.name or (self.parts and name.startswith(self.name + b"-"))


Against: TypeAlias = Literal["check", "quick", "update", "rot"]


class Plan(msgspec.Struct, frozen=True):
    """The roots and the resolved options.

    Files of more than `large_bytes` are read in chunks of `chunk_bytes`; None is an adaptive size.
    `directory` is the working directory, and `one_node` means that all ranks run on one node.
    `rules` and `wanted` select entries below the roots, with ages relative to `now_ns`. `listing`
    means that a list selects entries. With `one_file_system` mount points are not entered. `own`
    are files of this run below the root, which are excluded.

    `parts` is the path prefix of the parts of a manifest, to which each of the `ranks` appends its
    number. `against` is the manifest to compare with, in this `mode`. With `whole` each file has a
    digest of its own, and with `listed` the digests of a list are checked. `threads` is the number
    of worker threads of a rank; None is an adaptive number.
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
        """Return the scope of the walk."""
        return Scope(self.rules, self.one_file_system, wanted=self.wanted, now_ns=self.now_ns)

    @property
    def whole_tree(self) -> bool:
        """Return whether no option excludes entries."""
        excludes = self.rules or self.one_file_system or self.listing or self.own
        return not excludes and self.wanted == ANY

    @property
    def detailed(self) -> bool:
        """Return whether sizes and times are stored with the digests."""
        return self.parts is not None or self.against is not None

    def shown(self, root: int, path: bytes) -> bytes:
        """Return the path of an entry, with the root as the user typed it."""
        base = self.roots[root]
        if self.listed:
            return path
        return base.shown if base.name or not path else os.path.join(base.shown, path)

    def reach(self, *, is_first: bool) -> Directories:
        """Return the directories below the roots, for one thread of a rank."""
        return open_roots(self.roots, self.directory, self.identify, is_first=is_first)

    def identify(self, status: os.stat_result) -> tuple[int, int]:
        """Return the identity of a file on all ranks: device and inode.

        Nodes number the devices of network file systems differently, so on several nodes the
        identity is the inode alone.
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
