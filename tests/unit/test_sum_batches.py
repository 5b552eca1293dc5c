"""fsum reads many names without opening any of them twice needlessly, and shares its work."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcircle.fs import native
from pcircle.fs.directories import HOLDER
from pcircle.fs.native.interface import MAX_FILE_BYTES, NOT_PLAIN
from pcircle.ops.digest import Signer
from pcircle.runtime import Context
from pcircle.tools.fsum.plan import SignedPart, SumCounters, SumPlan
from pcircle.tools.fsum.reader import EntryReader
from pcircle.tools.fsum.visitor import SumVisitor
from pcircle.walk import open_directory as module
from pcircle.walk.items import Batch, DirectoryIdentity
from pcircle.walk.open_directory import ItemContext
from pcircle.walk.visitor import Names

SMALL, LARGER = 100, 200 << 10
PLAN = SumPlan(roots=(), directory=b"/", algorithm="xxh128", large_bytes=1 << 30, chunk_bytes=None)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def _make(path: Path, sizes: Sequence[int]) -> list[bytes]:
    names = [b"%03d" % number for number in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        (path / name.decode()).write_bytes(os.urandom(size))
    return names


def _reader() -> tuple[EntryReader, SumCounters, Signer]:
    counters, signer = SumCounters(), Signer("xxh128", HOLDER)
    return EntryReader(PLAN, counters, signer), counters, signer


@pytest.mark.parametrize(
    ("sizes", "tried", "skipped"),
    [
        ([SMALL] * 50, 50, []),
        ([LARGER] * 50, 4, [0, 1, 2, 3]),
        ([SMALL, LARGER, LARGER, LARGER] * 5, 20, [n for n in range(20) if n % 4]),
        ([SMALL] * 10 + [LARGER] * 40 + [SMALL], 28, list(range(10, 28))),
    ],
)
def test_small_files_are_read_in_batches_while_there_are_any(
    tmp_path: Path, folder: int, sizes: list[int], tried: int, skipped: list[int]
) -> None:
    names = _make(tmp_path, sizes)
    reader, counters, _ = _reader()
    assert reader.small(names, folder, bool) == (tried, [names[number] for number in skipped])
    assert counters.files == counters.sized == tried - len(skipped)
    assert counters.bytes_done == SMALL * (tried - len(skipped))


class _Line:
    """A channel that records the notices of an item and simulates idle ranks."""

    def __init__(self, *, hungry: bool) -> None:
        self.hungry = hungry
        self.items: list[Batch] = []

    def spawn(self, ticket: int, items: Sequence[Any]) -> None:
        self.items += items

    def is_stopping(self) -> bool:
        return False

    def has_idle_workers(self) -> bool:
        return self.hungry


@pytest.mark.parametrize(
    ("hungry", "each_s", "done"), [(True, 0.003, 4), (False, 0.003, 34), (True, 0.0, 60)]
)
def test_waiting_ranks_get_remaining_files_after_a_while(
    tmp_path: Path,
    folder: int,
    monkeypatch: pytest.MonkeyPatch,
    hungry: bool,
    each_s: float,
    done: int,
) -> None:
    names = _make(tmp_path, [LARGER] * 60)
    reader, counters, _ = _reader()
    visitor = SumVisitor(reader)
    line: Any = _Line(hungry=hungry)
    # Simulate a clock on which each file takes a fixed time.
    clock = SimpleNamespace(monotonic=lambda: each_s * counters.files)
    monkeypatch.setattr(module, "time", clock)
    where = Batch(0, b"", b"", b"", 1 / 60, DirectoryIdentity((0, 0)), b"", 1)
    context: ItemContext[SignedPart] = ItemContext(Context(0, line))
    visitor.names(where, Names(names, [], []), (folder, -1), context)
    context.flush()
    assert counters.files == done
    left = b"\0".join(item.files for item in line.items).split(b"\0")
    assert [name for name in left if name] == names[done:]
    assert len(line.items) == (2 if done < 60 else 0)


def test_larger_files_are_opened_once(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = _make(tmp_path, [LARGER] * 40)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=float))
    opened: list[Any] = []
    real = os.open

    def watched(path: Any, *arguments: Any, **named: Any) -> int:
        opened.append(path)
        return real(path, *arguments, **named)

    line: Any = _Line(hungry=False)
    where = Batch(0, b"", b"", b"", 1 / 40, DirectoryIdentity((0, 0)), b"", 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", watched)
        reader, counters, _ = _reader()
        visitor = SumVisitor(reader)
        visitor.names(where, Names(names, [], []), (folder, -1), ItemContext(Context(0, line)))
    # Four files were treated as small; calls of the C module are not visible here.
    assert sorted(opened) == sorted(names + names[: 0 if native.is_native else 4])
    assert counters.files == 40


def test_larger_files_of_small_directories_are_read_where_these_are_open(
    tmp_path: Path, folder: int
) -> None:
    names = _make(tmp_path, [SMALL, LARGER, MAX_FILE_BYTES, MAX_FILE_BYTES + 1])
    reader, counters, signer = _reader()
    sizes, entries = reader.bare(names, [folder] * 4, bool)
    assert sizes == [SMALL, LARGER, MAX_FILE_BYTES, NOT_PLAIN]
    for name in names:
        assert reader.file(name, folder, bool)
        signer.add_entry(name)
    assert [*entries[:3], b""] == entries
    assert signer.take_new_entries().startswith(b"".join(entries))
    assert counters.files == 0
