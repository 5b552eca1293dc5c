"""Buffers for reading: alignment, lifetime and ownership."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pcircle.aio.composite import copy_file
from pcircle.core.buffers import Pool, aligned
from pcircle.tools.fcp.cli import main as fcp
from pcircle.tools.fsum.cli import main as fsum
from tests.tools.fcp.faulty import without_native

KIB = 1 << 10
MIB = 1 << 20


def address(buffer: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


@pytest.mark.parametrize("size", [1, 4095, 4096, 128 * KIB + 1, MIB, 3 * MIB + 5])
def test_a_buffer_is_page_aligned_and_has_the_right_size(size: int) -> None:
    buffer = aligned(size)
    assert (len(buffer), address(buffer) % mmap.PAGESIZE) == (size, 0)
    assert bytes(buffer) == bytes(size)
    buffer[-1] = 1
    assert buffer[-1] == 1


def test_a_buffer_lives_as_long_as_its_slices() -> None:
    buffer = aligned(MIB)
    memory = weakref.ref(buffer.obj)
    buffer[7:10] = b"abc"
    part = buffer[7:10]
    del buffer
    gc.collect()
    assert memory() is not None
    assert bytes(part) == b"abc"
    del part
    gc.collect()
    assert memory() is None


def test_a_fork_has_a_copy() -> None:
    buffer = aligned(MIB)
    buffer[:5] = b"ours."
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        seen = bytes(buffer[:5])
        buffer[:5] = b"other"
        os.write(writing, seen)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 5) == b"ours."
    assert bytes(buffer[:5]) == b"ours."
    os.close(reading)
    os.close(writing)


def test_threads_have_buffers_of_their_own(tmp_path: Path) -> None:
    wrong: list[int] = []
    ready = threading.Barrier(8)

    def read(number: int) -> None:
        path = tmp_path / str(number)
        content = bytes([number]) * (256 * KIB)
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        ready.wait()
        for _ in range(20):
            buffer = aligned(256 * KIB)
            if os.preadv(fd, [buffer], 0) != len(buffer) or buffer.tobytes() != content:
                wrong.append(number)
        os.close(fd)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- pools -----------------------------------------------------------------------------------


def test_returned_buffers_are_reused() -> None:
    pool = Pool()
    first = pool.take(200 * KIB)
    other = pool.take(200 * KIB)
    where = address(first)
    assert where % mmap.PAGESIZE == address(other) % mmap.PAGESIZE == 0
    assert where != address(other)
    pool.give(first)
    again, more = pool.take(256 * KIB), pool.take(256 * KIB)
    assert (address(again), len(again)) == (where, 256 * KIB)
    assert address(more) not in (where, address(other))


def test_returned_buffers_cannot_be_used() -> None:
    pool = Pool()
    for size in (10, MIB):
        buffer = pool.take(size)
        pool.give(buffer)
        with pytest.raises(ValueError, match="released"):
            buffer[0] = 1
        with pytest.raises(ValueError, match="released"):
            pool.give(buffer)
    assert address(pool.take(MIB)) != address(pool.take(MIB))


def test_the_pool_has_a_limit() -> None:
    pool = Pool(kept_bytes=3 * MIB)
    taken = [pool.take(MIB) for _ in range(5)] + [pool.take(64 * MIB)]
    memories = [weakref.ref(buffer.obj) for buffer in taken]
    while taken:
        pool.give(taken.pop(0))
    gc.collect()
    assert [memory() is not None for memory in memories] == [True] * 3 + [False] * 3
    for _ in range(10):  # a returned buffer makes room
        pool.give(pool.take(MIB))
    buffers = [pool.take(MIB) for _ in range(3)]
    assert {id(buffer.obj) for buffer in buffers} == {id(memory()) for memory in memories[:3]}


def test_small_and_empty_buffers() -> None:
    pool = Pool()
    for size in (0, 1, 1000):
        assert bytes(pool.take(size)) == bytes(size)
        pool.give(pool.take(size))


# ---- users of pools ---------------------------------------------------------------------------


@contextmanager
def _read_into(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Return the offset within a page and the size of each large read into a buffer."""
    seen: list[tuple[int, int]] = []

    def watched(real: Callable[..., int]) -> Callable[..., int]:
        def call(fd: int, buffers: list[Any], *more: int) -> int:
            count = real(fd, buffers, *more)
            if count >= 32 * KIB:
                seen.append((address(buffers[0]) % mmap.PAGESIZE, count))
            return count

        return call

    with without_native(), monkeypatch.context() as patch:
        for name in ("readv", "preadv"):
            patch.setattr(os, name, watched(getattr(os, name)))
        yield seen


COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "verified": (fcp, ["-q", "-j1", "--verify"]),
    "signed": (fcp, ["-q", "-j1", "-s"]),
    "searched for zeros": (fcp, ["-q", "-j1", "--sparse=always"]),
    "small": (fcp, ["-q", "-j1", "--reflink=never"]),
    "signature": (fsum, ["-q", "-j1"]),
    "digests": (fsum, ["-q", "-j1", "--format=coreutils"]),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_tools_read_into_aligned_buffers(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    (source / "small").write_bytes(os.urandom(100 * KIB))
    if what != "small":
        (source / "large").write_bytes(os.urandom(3 * MIB))
    main, arguments = COMMANDS[what]
    operands = [str(source), str(copy)] if main is fcp else [str(source)]
    with _read_into(monkeypatch) as seen:
        assert main([*arguments, *operands]) == 0
    assert sum(count for _, count in seen) >= 100 * KIB + (what != "small") * 3 * MIB
    assert {where for where, _ in seen} == {0}


def test_a_file_that_is_copied_by_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    (tmp_path / "source").write_bytes(os.urandom(3 * MIB))
    steps = copy_file(source, copy)
    value: Any = None
    with _read_into(monkeypatch) as seen, suppress(StopIteration):
        while True:
            step = steps.send(value)
            # Simulate a file system that cannot copy by itself.
            value = 0 if step.name == "copy_file_range" else step()
    assert seen == [(0, MIB)] * 3
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "source").read_bytes()
