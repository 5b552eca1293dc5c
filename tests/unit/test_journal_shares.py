"""Journals reserve one share per rank, which is used once until a full disk has space again."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

import pytest

from pcircle.core.errors import NoSpace
from pcircle.ops.checkpoint.journal import CreatedDirectoryRecord, Journal, journal_name
from pcircle.ops.checkpoint.store import Checkpoint
from tests.unit.checkpoints import KEYS, checkpoint

__all__ = ["checkpoint"]  # a fixture


def test_a_share_is_whole_again_after_space_was_reserved(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for the second time leaves a rank as much room as the first time."""
    real, is_full = os.posix_fallocate, False

    def allocate(fd: int, offset: int, length: int) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "full")
        real(fd, offset, length)

    def write_all() -> int:
        number = 0
        with suppress(NoSpace):
            while number < 1000:
                journal.add([CreatedDirectoryRecord(b"%016d" % number)], now=True)
                number += 1
        return number

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    journal = Journal(checkpoint.fd, 1, 0, KEYS, 16 << 10)
    written = []
    for _ in range(2):
        is_full = False
        journal.add([CreatedDirectoryRecord(b"%016d" % 0)], now=True)
        is_full = True
        written.append(write_all())
    journal.leave()
    assert 10 < written[0] < 1000
    assert written[1] == written[0]


def test_a_journal_of_one_rank_reserves_one_share(checkpoint: Checkpoint) -> None:
    """No space is reserved for ranks that do not exist."""
    journal = Journal(checkpoint.fd, 1, 0, KEYS, 16 << 10)
    journal.reserve()
    assert os.stat(journal_name(1, 0), dir_fd=checkpoint.fd).st_size == 16 << 10
    journal.leave()
