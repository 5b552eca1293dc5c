"""The copies of Wang et al. 2016 in virtual time: pcircle's engine on a model of Lustre.

A file is striped over some of the storage targets, and each target serves one request after the
other, at a fixed rate. So does the network between the nodes and the targets, which all nodes
share. So does each node, which has eight processes and a link. A node's time for a byte grows with
the number of stripes of the file. In figure 6 of the paper, copies with 512 stripes take three
times as long on one node. They speed up with the nodes, so the cost arises in the client. The block
that is being copied waits in all of these queues at the same time. This models a pipeline of
reading ahead and writing behind.

The ranks, their chunks and their distribution are pcircle's. The engine is the real one, and chunks
have the sizes of `pcircle.ops.copy.tree.large_files`. After `SPLIT_S` the rest of a chunk is split
into two.

`calibrated` derives four rates from four of the 59 bars of figures 6 to 9, all of them in figure 6.
A fifth number, the time of a small file, is derived from one bar of figure 9. *Chosen by us:* the
number of targets, stripes of 1 MiB, the targets of a file (consecutive from a random one), blocks
of 8 MiB, and 10 us for a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from examples.papers.engine_player import EnginePlayer, Steps
from examples.papers.fcp_paper import (
    EACH_BYTES,
    FILES,
    LINK_BYTES_PER_S,
    NODES,
    NODES_S,
    PROCESSES,
)
from pcircle.circle import EngineSettings
from pcircle.ops.copy.tree.large_files import chunk_bytes
from pcircle.transport._sim import Conditions, Network, Program

__all__ = ["CALIBRATED", "SETS", "Copied", "FileSet", "Setup", "calibrated", "copy_set"]

STRIPE_BYTES = 1 << 20
BLOCK_BYTES = 8 << 20
SPLIT_S = 0.25
BATCH_S = 0.1
LARGE_BYTES = 16 << 20
NAMES = 64


class FileSet(msgspec.Struct, frozen=True):
    """A number of files of equal size."""

    files: int
    file_bytes: int


# The files of set 4 have many sizes (section III-A); figure 11 shows 5 MB/s for its 227 s.
_MIXED_FILE_BYTES = 12_000
SETS = {
    name: FileSet(files, EACH_BYTES.value.get(name, _MIXED_FILE_BYTES))
    for name, files in FILES.value.items()
}


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of the model."""

    targets: int = 1008
    target_bytes_per_s: float
    network_bytes_per_s: float
    node_s_per_byte: float
    stripe_s_per_byte: float  # a node's, for each stripe of the file
    small_file_s: float  # a process's


# By set, stripes and nodes.
CALIBRATED = (
    ("set 1", 4, 1),
    ("set 1", 4, 8),
    ("set 1", 32, 8),
    ("set 1", 512, 1),
    ("set 4", 4, 1),
)


def calibrated() -> Setup:
    """Return the rates for which one queue each limits the bars of `CALIBRATED`."""
    node_s, targets_s, network_s, wide_node_s, small_s = (
        NODES_S[name].value[stripes][NODES.value.index(nodes)] or 0.0
        for name, stripes, nodes in CALIBRATED
    )
    size = SETS["set 1"].file_bytes
    few, many = 4, 512
    stripe_s_per_byte = (wide_node_s - node_s) / size / (many - few)
    return Setup(
        target_bytes_per_s=size / few / targets_s,
        network_bytes_per_s=size / network_s,
        node_s_per_byte=node_s / size - few * stripe_s_per_byte,
        stripe_s_per_byte=stripe_s_per_byte,
        small_file_s=small_s * PROCESSES.value / SETS["set 4"].files,
    )


class _Storage:
    """The queues, as the times when each becomes free."""

    def __init__(self, setup: Setup, nodes: int, stripes: int, rng: Random) -> None:
        self._setup, self._stripes, self._rng = setup, stripes, rng
        self._node_s_per_byte = max(
            1 / LINK_BYTES_PER_S.value, setup.node_s_per_byte + stripes * setup.stripe_s_per_byte
        )
        self._targets_s = [0.0] * setup.targets
        self._nodes_s = [0.0] * nodes
        self._network_s = 0.0
        self._firsts: dict[int, tuple[int, int]] = {}

    def copied_s(self, node: int, file: int, offset: int, length: int, now_s: float) -> float:
        """Return when a block whose copy begins now has been written."""
        setup = self._setup
        node_s = max(now_s, self._nodes_s[node]) + length * self._node_s_per_byte
        self._nodes_s[node] = node_s
        network_s = max(now_s, self._network_s) + length / setup.network_bytes_per_s
        self._network_s = network_s
        end_s = max(node_s, network_s)
        units = -(-length // STRIPE_BYTES)
        used = min(units, self._stripes)
        part_s = length / used / setup.target_bytes_per_s
        targets_s, count = self._targets_s, setup.targets
        begin = offset // STRIPE_BYTES
        for first in self._layout(file):  # of the source, of the copy
            for unit in range(begin, begin + used):
                target = (first + unit % self._stripes) % count
                target_s = targets_s[target]
                target_s = (target_s if target_s > now_s else now_s) + part_s
                targets_s[target] = target_s
                if target_s > end_s:
                    end_s = target_s
        return end_s

    def _layout(self, file: int) -> tuple[int, int]:
        found = self._firsts.get(file)
        if found is None:
            count = self._setup.targets
            found = self._rng.randrange(count), self._rng.randrange(count)
            self._firsts[file] = found
        return found


class _Files(msgspec.Struct, frozen=True):
    """The files of the set from `first` on."""

    first: int
    count: int


class _Chunk(msgspec.Struct, frozen=True):
    """A range of a file."""

    file: int
    offset: int
    length: int


_Item = _Files | _Chunk


class _Player(EnginePlayer[_Item]):
    """A process of fcp, with one worker."""

    def __init__(
        self, rank: int, nodes: Sequence[int], files: FileSet, storage: _Storage, setup: Setup,
        seed: int,
    ) -> None:  # fmt: skip
        settings = EngineSettings(structured=False)
        rng = Random(f"fcp engine {seed} {rank}")
        super().__init__(rank, nodes, settings, rng, [_Files(0, files.files)])
        self._node, self._ranks = nodes[rank], len(nodes)
        self._files, self._storage, self._setup = files, storage, setup
        self.bytes = 0

    def steps(self, item: _Item) -> Steps[_Item]:
        if isinstance(item, _Chunk):
            return self._copy(item)
        return self._begin_file(item) if item.count == 1 else self._go_through(item)

    def _go_through(self, item: _Files) -> Steps[_Item]:
        """Create an item for each large file; copy small files until the time is up."""
        end = item.first + item.count
        if self._files.file_bytes >= LARGE_BYTES:
            yield self.now_s
            return [_Files(number, 1) for number in range(item.first, end)], 0
        if item.count > NAMES:
            yield self.now_s
            firsts = range(item.first, end, NAMES)
            return [_Files(first, min(NAMES, end - first)) for first in firsts], 0
        until_s, number = self.now_s + BATCH_S, item.first
        while number < end and self.now_s < until_s:
            yield self.now_s + self._setup.small_file_s
            self.bytes += self._files.file_bytes
            number += 1
        rest = [_Files(number, end - number)] if number < end else []
        return list(rest), number - item.first

    def _begin_file(self, item: _Files) -> Steps[_Item]:
        size = self._files.file_bytes
        if size < LARGE_BYTES:
            yield self.now_s + self._setup.small_file_s
            self.bytes += size
            return [], 1
        yield self.now_s
        length = chunk_bytes(size, self._ranks, STRIPE_BYTES)
        offsets = range(0, size, length)
        return [_Chunk(item.first, at, min(length, size - at)) for at in offsets], 1

    def _copy(self, item: _Chunk) -> Steps[_Item]:
        """Copy block by block; when the time is up, split the remainder into two items."""
        until_s = self.now_s + SPLIT_S
        offset, end = item.offset, item.offset + item.length
        while offset < end and self.now_s < until_s:
            length = min(BLOCK_BYTES, end - offset)
            yield self._storage.copied_s(self._node, item.file, offset, length, self.now_s)
            self.bytes += length
            offset += length
        middle = min(end, -(-(offset + end) // 2 // STRIPE_BYTES) * STRIPE_BYTES)
        halves = (offset, middle), (middle, end)
        return [_Chunk(item.file, at, upto - at) for at, upto in halves if upto > at], 0


class Copied(msgspec.Struct, frozen=True):
    """A copy in virtual time: its seconds, the engine's messages, and the bytes of each rank."""

    time_s: float
    messages: int
    bytes: list[int]


def copy_set(files: FileSet, nodes: int, stripes: int, setup: Setup, seed: int = 1) -> Copied:
    """Copy a set with eight processes on each of *nodes* nodes."""
    places = [rank // PROCESSES.value for rank in range(nodes * PROCESSES.value)]
    storage = _Storage(setup, nodes, stripes, Random(f"fcp layouts {seed}"))
    network = Network(
        places, Random(f"fcp network {seed}"), Conditions(far_s=1e-5, jitter=0.0, step_s=5e-6)
    )
    players = [_Player(rank, places, files, storage, setup, seed) for rank in range(len(places))]
    programs: list[Program] = [player.play for player in players]
    network.run(programs)
    return Copied(network.now_s, network.messages, [player.bytes for player in players])
