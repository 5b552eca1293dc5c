"""Large files that a later run resumes: their temporary files, and the ranges that remain."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pcircle.core.units import timestamp
from pcircle.ops.checkpoint.journal import RangeRecord, StartedFileRecord
from pcircle.ops.copy.entry.content_hash import ExpectedContent, Rereader, digest_of
from pcircle.ops.copy.entry.files import ONE_READ_BYTES
from pcircle.ops.copy.entry.settings import Stamp
from pcircle.ops.copy.tree.resume import open_again, temporary_of, without

KEY = b"k" * 16
TEMPORARY = b".fcp-01234567-0-1"
SIZE = 100


def _range(offset: int, length: int) -> RangeRecord:
    return RangeRecord(KEY, TEMPORARY, offset, length)


def test_ranges_without_the_copied_ones() -> None:
    assert without([(0, 10)], [_range(0, 4)]) == [(4, 6)]
    assert without([(0, 10), (10, 10)], [_range(8, 4)]) == [(0, 8), (12, 8)]
    assert without([(0, 10)], [_range(0, 4), _range(4, 6)]) == []


def test_temporary_file_is_found_but_not_through_a_link(tmp_path: Path) -> None:
    made = tmp_path / os.fsdecode(TEMPORARY)
    made.write_bytes(bytes(SIZE))
    made.chmod(0o600)
    source = Stamp(1, 2, SIZE, timestamp(3), timestamp(4))
    started = StartedFileRecord(KEY, KEY, TEMPORARY, made.stat().st_ino, source.version)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        parts = [_range(0, 4)]
        found = temporary_of([(started, parts)], source, fd, b"name")
        assert found is not None
        assert (found[0], found[2]) == (TEMPORARY, parts)
        made.rename(tmp_path / "elsewhere")
        made.symlink_to("elsewhere")
        assert temporary_of([(started, parts)], source, fd, b"name") is None
        assert made.is_symlink(), "a file of another kind is not removed"
    finally:
        os.close(fd)


def test_large_copy_is_read_back(tmp_path: Path) -> None:
    data = os.urandom(ONE_READ_BYTES + 1)
    (tmp_path / "copy").write_bytes(data)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        rereader = Rereader()
        assert rereader.reads(fd, b"copy", ExpectedContent(len(data), digest_of(data)))
        changed = digest_of(data[:-1] + bytes([data[-1] ^ 1]))
        assert not rereader.reads(fd, b"copy", ExpectedContent(len(data), changed))
    finally:
        os.close(fd)


def test_a_closed_directory_of_an_earlier_run_is_opened(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        for before, after in ((0o550, 0o750), (0o2711, 0o2711)):
            (tmp_path / "directory").mkdir(exist_ok=True)
            (tmp_path / "directory").chmod(before)
            open_again(fd, b"directory", flags=False)
            assert stat.S_IMODE((tmp_path / "directory").stat().st_mode) == after
    finally:
        os.close(fd)
