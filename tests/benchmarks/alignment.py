"""``python -m tests.benchmarks.alignment DIR``: kernel copy rate by offset within a page.

Reads a cached file, preferably on a tmpfs, into memory at several offsets within a page, into byte
arrays and new objects, and from a local socket. The cases take turns, and medians are printed: 10^9
bytes per second of this process's time, so other load matters little. The kernel must provide the
pages of a new object if malloc does not have them.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

from pcircle.cli.listing import render
from pcircle.core.buffers import aligned, anonymous

PLACES = (0, 8, 12, 16, 24, 32, 64, 128, 256, 1024, 2048, 4088)
SIZES = (4 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20)
RECEIVED = (0, 16, 64)
_ROUND_BYTES = 24 << 20
_MAX_CALLS = 2000

Call = Callable[[], object]


def _place_of(buffer: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % mmap.PAGESIZE


def _ways(fd: int, size: int) -> Iterator[tuple[str, Call]]:
    page = mmap.PAGESIZE
    memory = aligned(size + page)
    for place in PLACES:
        yield f"at {place}", partial(os.preadv, fd, [memory[place : place + size]], 0)
    array = bytearray(size)
    yield "byte array", partial(os.preadv, fd, [array], 0)
    yield "new byte array", lambda: os.preadv(fd, [bytearray(size)], 0)
    yield "new mapping", lambda: os.preadv(fd, [anonymous(size)], 0)
    yield "new bytes", partial(os.pread, fd, size, 0)


def _received(size: int) -> Iterator[tuple[str, Call]]:
    """Yield receiving calls; the constant cost of sending is included."""
    one, other = socket.socketpair()
    for end in (one, other):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        end.setblocking(False)
    data, memory = bytes(size), aligned(size + mmap.PAGESIZE)

    def exchange(into: memoryview) -> None:
        sent = received = 0
        while received < size:
            with suppress(BlockingIOError):
                sent += one.send(data[sent:] if sent else data)
            received += other.recv_into(into[received:])

    for place in RECEIVED:
        yield f"socket, at {place}", partial(exchange, memory[place : place + size])


def _measure(fd: int, size: int, rounds: int) -> dict[str, str]:
    ways = dict([*_ways(fd, size), *_received(size)])
    rates: dict[str, list[float]] = {name: [] for name in ways}
    calls = min(_MAX_CALLS, max(4, _ROUND_BYTES // size))
    for _ in range(rounds):
        for name, call in ways.items():
            call()
            begun_s = time.process_time()
            for _ in range(calls):
                call()
            rates[name].append(size * calls / (time.process_time() - begun_s) / 1e9)
    return {name: f"{median(found):.1f}" for name, found in rates.items()}


def _processor() -> str:
    """Return the processor's model, and its flags for fast copies by one instruction."""
    with open("/proc/cpuinfo") as stream:
        facts = dict(line.split("\t", 1) for line in stream if "\t" in line)
    known = {name.strip(): value.strip(" \t:\n") for name, value in facts.items()}
    flags = [flag for flag in ("erms", "fsrm") if flag in known.get("flags", "").split()]
    return " ".join([known.get("model name", "unknown processor"), *flags])


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.alignment")
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    print(f"{_processor()}; a byte array begins at {_place_of(bytearray(512 << 10))}")
    with tempfile.TemporaryFile(dir=args.folder) as file:
        file.write(os.urandom(max(SIZES)))
        file.flush()
        found = [_measure(file.fileno(), size, args.rounds) for size in SIZES]
    rows = [[name, *(timings[name] for timings in found)] for name in found[0]]
    header = ["GB/s", *(f"{size >> 10} KiB" for size in SIZES)]
    print(render(rows, align="l" + "r" * len(SIZES), header=header))
    return 0


if __name__ == "__main__":
    sys.exit(main())
