"""Memory for what is read: content of files, and messages.

A `bytearray` of 128 KiB or more begins 16 bytes into a page, because malloc takes it from the
kernel by itself and puts its own head before it. Where the kernel copies by one instruction (`rep
movsb`) that place costs: AMD EPYC was seen to copy at 1.6 GB/s to what begins 8 to 16 bytes into a
page and at 6 GB/s elsewhere, and an Intel Xeon loses 5 to 15% where that is no multiple of 64 bytes
(`docs/benchmarks.rst`; `python -m tests.benchmarks.alignment` measures it). So whoever reads takes
memory from here, which begins with a page.

It is private to the process: what is forked gets a copy, and neither sees what the other reads.
Nobody has to release it, it goes with the last view of it. Pages that were never touched take no
memory; touching them for the first time costs far more than the place in a page, so take a buffer
once and use it often. Messages, which come in all sizes and one at a time, go through a `Pool`.

What is to be a `bytes` object in the end is best read as one: its content begins 48 bytes into a
page if it is large, and a buffer between would be one more copy.
"""

from __future__ import annotations

import mmap

__all__ = ["Pool", "aligned", "anonymous"]

_SMALL_BYTES = 64 << 10
_KEPT_BYTES = 8 << 20


def anonymous(size: int) -> mmap.mmap:
    """So many bytes of zeros that begin with a page. OSError if there is no memory."""
    # Without these flags it would be shared with what is forked.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def aligned(size: int) -> memoryview:
    """As `anonymous`, to be read into and cut."""
    return memoryview(anonymous(size))


class Pool:
    """Buffers that are lent and given back, so that the next one has been touched. One thread's.

    It keeps some megabytes at most. Small buffers are not worth it, and begin anywhere.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._room = kept_bytes
        self._free: dict[int, list[mmap.mmap]] = {}

    def take(self, size: int) -> memoryview:
        """A buffer of so many bytes, with anything in it. OSError if there is no memory."""
        if size < _SMALL_BYTES:
            return memoryview(bytearray(size))
        whole = 1 << (size - 1).bit_length()
        free = self._free.get(whole)
        if free:
            self._room += whole
            return memoryview(free.pop())[:size]
        return memoryview(anonymous(whole))[:size]

    def give(self, buffer: memoryview) -> None:
        """Give back what was taken; it, and what was cut from it, may not be used any more.

        What is not given back is released with its last view. ValueError if it was given before.
        """
        memory = buffer.obj
        buffer.release()
        if isinstance(memory, mmap.mmap) and len(memory) <= self._room:
            self._room -= len(memory)
            self._free.setdefault(len(memory), []).append(memory)
