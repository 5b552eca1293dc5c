"""Buffers into which file content and messages are read.

A `bytearray` of 128 KiB or more begins 16 bytes into a page, because malloc allocates it with mmap
and puts its own header first. If the kernel copies with one instruction (`rep movsb`), that offset
is expensive. An AMD EPYC copied at 1.6 GB/s to addresses 8 to 16 bytes into a page and at 6 GB/s
elsewhere. An Intel Xeon loses 5 to 15% if the offset is not a multiple of 64 bytes
(`docs/benchmarks.rst`; `python -m tests.benchmarks.alignment` measures it). Buffers from this
module therefore begin at a page boundary.

The memory is private to the process: a forked child gets a copy, and neither process sees data that
the other reads. It is freed with its last view and needs no explicit release. Pages that were never
touched take no memory. Touching them for the first time costs far more than the alignment gains, so
allocate a buffer once and reuse it. Messages vary in size and arrive one at a time, so they use a
`Pool`.

Data that ends up in a `bytes` object should be read directly into one, because an intermediate
buffer would cost another copy. The content of a large `bytes` object begins 48 bytes into a page.
"""

from __future__ import annotations

import mmap

_SMALL_BYTES = 64 << 10
_KEPT_BYTES = 8 << 20


def anonymous(size: int) -> mmap.mmap:
    """Allocate `size` zero bytes at a page boundary. Raises OSError if there is no memory."""
    # Without these flags, forked processes would share the memory.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def aligned(size: int) -> memoryview:
    """Return the memory of `anonymous` as a view that can be read into and sliced."""
    return memoryview(anonymous(size))


class Pool:
    """Buffers that are lent and returned, so that later users get touched pages.

    A pool keeps a few megabytes at most and belongs to one thread. Small buffers are not pooled or
    aligned.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._room = kept_bytes
        self._free: dict[int, list[mmap.mmap]] = {}

    def take(self, size: int) -> memoryview:
        """Return an uninitialised buffer of `size` bytes. Raises OSError if there is no memory."""
        if size < _SMALL_BYTES:
            return memoryview(bytearray(size))
        whole = 1 << (size - 1).bit_length()
        free = self._free.get(whole)
        if free:
            self._room += whole
            return memoryview(free.pop())[:size]
        return memoryview(anonymous(whole))[:size]

    def give(self, buffer: memoryview) -> None:
        """Return a buffer to the pool. The buffer and its slices must not be used afterwards.

        A buffer that is not returned is freed with its last view. Raises ValueError if the buffer
        was already returned.
        """
        memory = buffer.obj
        buffer.release()
        if isinstance(memory, mmap.mmap) and len(memory) <= self._room:
            self._room -= len(memory)
            self._free.setdefault(len(memory), []).append(memory)
