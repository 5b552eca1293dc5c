"""The space that the files would take elsewhere: in blocks of a given size, and within inodes.

A file system that allocates in units takes a whole number of units for each file. GPFS (Spectrum
Scale) has large blocks, and stores the end of a file in subblocks, so its unit is a subblock. The
profile has the number of units of all files for each power of two, so the result is exact. Small
files may be stored within their inodes and take no unit. They are subtracted by the fine bins of
sizes, in which all files take the same number of units unless units are far smaller.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pcircle.tools.fprof.profile.bins import bin_of, edge_of
from pcircle.tools.fprof.profile.groups import share
from pcircle.tools.fprof.profile.model import UNITS, Profile

KiB, MiB = 1 << 10, 1 << 20
# Subblocks by block size in GPFS since version 5. Other blocks have 32 subblocks, as before.
_SUBBLOCKS = {
    64 * KiB: 2 * KiB,
    128 * KiB: 4 * KiB,
    **dict.fromkeys((256 * KiB, 512 * KiB, MiB, 2 * MiB, 4 * MiB), 8 * KiB),
    **dict.fromkeys((8 * MiB, 16 * MiB), 16 * KiB),
}


class Blocks(msgspec.Struct, frozen=True):
    """The space of files in blocks, in whole blocks and with subblocks.

    An efficiency is the share of the space that holds data.
    """

    block_bytes: int
    subblock_bytes: int
    space_bytes: int
    efficiency: float
    subblocks: int
    subblocks_space_bytes: int
    subblocks_efficiency: float


class InInode(msgspec.Struct, frozen=True):
    """Files of at most `limit_bytes`, whose data would fit into their inodes.

    The limit is the edge of a bin: the largest that does not exceed `asked_bytes`, the requested
    size.
    """

    asked_bytes: int
    limit_bytes: int
    number: int
    bytes: int
    number_share: float
    bytes_share: float


LARGEST_INODE_BYTES = 128 << UNITS[0]
"""The size of the largest inode.

Up to this size, all files of a bin take the same number of units.
"""


def subblock_of(block_bytes: int) -> int:
    """Return the size of the subblocks that GPFS uses for a block size, in bytes."""
    return _SUBBLOCKS.get(block_bytes) or max(1 << UNITS[0], block_bytes // 32)


def is_unit(size_bytes: int) -> bool:
    """Return whether a profile knows the space for units of this size."""
    return size_bytes in {1 << bits for bits in UNITS}


def blocks_of(
    profile: Profile, wanted: Sequence[tuple[int, int]], inode: InInode | None
) -> tuple[Blocks, ...]:
    """Return the space for each pair of block and subblock."""
    data = profile.kinds["file"][1] - (inode.bytes if inode else 0)
    limit = inode.limit_bytes if inode else -1
    rows = []
    for block, subblock in wanted:
        whole = block * _units(profile, block, limit)
        count = _units(profile, subblock, limit)
        rows.append(
            Blocks(
                block_bytes=block,
                subblock_bytes=subblock,
                space_bytes=whole,
                efficiency=share(data, whole),
                subblocks=count,
                subblocks_space_bytes=count * subblock,
                subblocks_efficiency=share(data, count * subblock),
            )
        )
    return tuple(rows)


def _units(profile: Profile, unit: int, limit: int) -> int:
    """Return the number of units of files above a size. Hard-linked files count once."""
    total = profile.unit_counts[UNITS.index(unit.bit_length() - 1)]
    if limit <= 0:
        return total
    for number, (_, _, files) in profile.sizes.items():
        edge = edge_of(number)
        if 0 < edge <= limit:
            total -= files * -(-edge // unit)
    return total


def in_inode(profile: Profile, limit_bytes: int) -> InInode:
    """Return the files that would fit into inodes, up to the limit or the edge below it."""
    last = bin_of(limit_bytes)
    if edge_of(last) > limit_bytes:
        last -= 1
    number = sum(tally[0] for place, tally in profile.sizes.items() if place <= last)
    total = sum(tally[1] for place, tally in profile.sizes.items() if place <= last)
    files = profile.kinds["file"]
    shares = share(number, files[0]), share(total, files[1])
    return InInode(limit_bytes, edge_of(last), number, total, *shares)
