"""The four data sets of Wang et al.'s Table I, scaled down to one machine.

The paper has one file of 1 TB, one of 100 GB, 1,000 of 100 MB, and 100,000 of 4 KB to 100 MB
(section III-A). Here every set has the fraction `Scale.bytes_factor` of its bytes, so that the
proportions between sets remain. The paper does not state how the sizes in the last set are
distributed, so we chose a power law that is cut off at both ends. In it, 85 % of files are below
256 KiB, as the paper says of the site's file system (section II-C). The full set would have 84 GB,
close to the 100 GB of the two sets before it. Its number of files is scaled as well, to a tenth,
and the sizes of the files by the remaining factor.

Contents are random, and no block occurs twice in a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from examples.papers.fcp_paper import EACH_BYTES, FILES, MIXED_BYTES
from pcircle.core.writing import write_at

_BLOCK_BYTES = 1 << 20
# 85 % below 256 KiB: (4 KiB / 256 KiB) ** exponent = 15 %.
_EXPONENT = 0.456


class Scale(msgspec.Struct, frozen=True):
    """The fraction of the paper's bytes, and the numbers of files in the sets with many files."""

    bytes_factor: float
    equal_files: int
    mixed_files: int


FULL = Scale(1 / 250, 1_000, 10_000)
SMALL = Scale(1 / 1_000_000, 10, 100)


class DataSet(msgspec.Struct, frozen=True):
    """A set: its name, and the sizes of its files. A single file is copied without a directory."""

    name: str
    sizes: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)

    def source(self, place: Path) -> Path:
        return place / self.name / ("file" if len(self.sizes) == 1 else "tree")


def _mixed(count: int, factor: float, random: Random) -> Iterator[int]:
    low, high = (float(size) for size in MIXED_BYTES.value)
    beyond = (low / high) ** _EXPONENT  # share of the law beyond the cut
    for _ in range(count):
        size_bytes = low * (1 - random.random() * (1 - beyond)) ** (-1 / _EXPONENT)
        yield max(1, round(size_bytes * factor))


def data_sets(scale: Scale) -> list[DataSet]:
    """Return the sets; they depend only on the scale."""
    factor = scale.bytes_factor
    equal_bytes = FILES.value["set 3"] * EACH_BYTES.value["set 3"]
    each = round(equal_bytes * factor / scale.equal_files)
    per_file = factor * FILES.value["set 4"] / scale.mixed_files
    return [
        DataSet("set 1", (round(EACH_BYTES.value["set 1"] * factor),)),
        DataSet("set 2", (round(EACH_BYTES.value["set 2"] * factor),)),
        DataSet("set 3", (each,) * scale.equal_files),
        DataSet("set 4", tuple(_mixed(scale.mixed_files, per_file, Random(4)))),
    ]


NOTHING = DataSet("start", (0,))
"""One empty file, to measure the time that a tool takes to start and end."""


def make(one: DataSet, place: Path) -> Path:
    """Write a set to *place*, with 100 files in each directory; return the path to copy."""
    source = one.source(place)
    source.parent.mkdir(parents=True)
    random = Random(1)
    block = bytearray(random.randbytes(_BLOCK_BYTES))
    for number, size_bytes in enumerate(one.sizes):
        path = source
        if len(one.sizes) > 1:
            path = source / f"{number // 100}" / f"{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for offset in range(0, size_bytes, _BLOCK_BYTES):
                block[:16] = random.randbytes(16)
                write_at(fd, memoryview(block)[: size_bytes - offset], offset)
        finally:
            os.close(fd)
    return source


def fault(one: DataSet, copy: Path) -> str | None:
    """Return a description of the copy if its sizes are wrong, otherwise None."""
    paths = [copy] if copy.is_file() else [path for path in copy.rglob("*") if path.is_file()]
    found = sorted(path.stat().st_size for path in paths)
    return None if found == sorted(one.sizes) else f"{len(found)} files, {sum(found)} bytes"
