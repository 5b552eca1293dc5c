"""Helpers that create an empty checkpoint and the secret for its journals."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.ops.checkpoint.journal import RecordKeys
from pcircle.ops.checkpoint.store import Checkpoint, CheckpointHeader

SECRET = b"8 bytes!"
KEYS = RecordKeys(SECRET)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    made = Checkpoint.create(os.fsencode(tmp_path) + b"/checkpoint")
    made.write_header(CheckpointHeader(1, SECRET, 0, (), {}, (b"01234567",), 1))
    yield made
    made.close()
