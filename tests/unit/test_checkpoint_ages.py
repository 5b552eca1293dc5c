"""The age of a file in a checkpoint is its own, whatever it is."""

from __future__ import annotations

import os

from pcircle.ops.checkpoint.store import Checkpoint
from tests.unit.checkpoints import checkpoint

__all__ = ["checkpoint"]  # a fixture


def test_the_age_of_a_symbolic_link_is_its_own(checkpoint: Checkpoint) -> None:
    """A link in place of the lock is not followed, so it leads to no other file's time."""
    elsewhere = os.path.join(os.path.dirname(checkpoint.path), b"elsewhere")
    with open(elsewhere, "wb"):
        pass
    os.utime(elsewhere, (0, 0))
    os.symlink(elsewhere, b"lock", dir_fd=checkpoint.fd)
    assert checkpoint.age_s(b"lock") < 3600
