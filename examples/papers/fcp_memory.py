"""Memory for each file and each chunk, as in Wang et al. 2016.

Their fcp keeps an object of 112 bytes in memory for each file, and one of 64 bytes for each chunk
(section II-F). Here both are measured. For files, it is the peak memory of fcp's largest process of
two ranks, for several numbers of files in one flat directory. That section calls such a directory
one of the worst cases. For chunks, it is the size of a queue item that represents a chunk, in
memory and on disk. A queue keeps only about 400 of these in memory, however long it is.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tracemalloc
from pathlib import Path

import msgspec

from examples.papers.command import Figure
from examples.papers.fcp_paper import CHUNK_BYTES, FILE_BYTES
from examples.papers.measured import Surroundings, scratch
from examples.papers.output import Cell, write_table
from pcircle.circle import Parcel
from pcircle.ops.copy.tree.items import CopyChunk
from tests.benchmarks import measure, tools

__all__ = ["FIGURES"]

_FILES, _SMALL_FILES = (100_000, 400_000), (100, 200)
_CHUNKS = 10_000
_TIMEOUT_S = 300.0


def chunk_bytes() -> tuple[float, float]:
    """Return the size of a chunk in a queue, and in a segment on disk."""
    source, target = (66, 10**9), (67, 10**6)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        parcels = [
            Parcel(
                CopyChunk(b"output", b".fcp-1", source, target, number << 24, 1 << 24,
                          1.5e-5 + number, False, 0, b"runs/2016", 1 << 20),
                None,
            )
            for number in range(_CHUNKS)
        ]  # fmt: skip
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / _CHUNKS, len(msgspec.msgpack.encode(parcels)) / _CHUNKS


def peak_bytes(files: int) -> int:
    """Return the peak memory of fcp's largest process when it copies *files* empty files."""
    with tempfile.TemporaryDirectory(prefix="pcircle-fcp-", dir=scratch()) as place:
        source, log = Path(place, "source"), str(Path(place, "log"))
        source.mkdir()
        for number in range(files):
            os.mknod(source / f"a name of some length, {number}")
        words = ("-m", "pcircle.tools.fcp", "-T", "--no-checkpoint", "-j", "2")
        command = [sys.executable, *words, str(source), str(Path(place, "copy"))]
        cost = measure.run(command, tools.environment(), log, _TIMEOUT_S)
        if cost.exit_code:
            raise RuntimeError(measure.last_words(log))
        return cost.peak_rss_bytes


def memory(out: Path, small: bool) -> list[Path]:
    """Section II-F: bytes for each file and each chunk."""
    before = Surroundings.now()
    few, many = _SMALL_FILES if small else _FILES
    peaks = {files: peak_bytes(files) for files in (few, many)}
    in_queue, on_disk = chunk_bytes()
    per_file = (peaks[many] - peaks[few]) / (many - few)
    rows: list[list[Cell]] = [
        ["each file", per_file, FILE_BYTES.value],
        ["each chunk in memory", in_queue, CHUNK_BYTES.value],
        ["each chunk on disk", on_disk, ""],
    ]
    rows += [[f"largest process, {files} files", peak, ""] for files, peak in peaks.items()]
    setup = f"bytes; fcp -j 2, {few} and {many} empty files in one directory"
    note = before.note(f"{setup}; paper: {FILE_BYTES.source}")
    return [write_table(out / "fcp-memory.csv", ["what", "ours", "paper"], rows, note)]


FIGURES = [Figure("memory", "bytes for each file and each chunk", 30.0, memory)]
