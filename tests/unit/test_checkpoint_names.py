"""The name of a checkpoint depends on the paths of the copies alone, in all versions."""

from __future__ import annotations

import pytest

from pcircle.ops.checkpoint.store import CopyIdentity, checkpoint_paths

ONE = (CopyIdentity(b"/from/a", 7, b"/to/b"),)
TWO = (*ONE, CopyIdentity(b"/from/c", 7, b"/to/d"))


@pytest.mark.parametrize(
    ("copies", "directory", "paths"),
    [
        (
            ONE,
            None,
            (b"/to/.fcp-checkpoint-ac70d9ecf939719d", b"/to/b/.fcp-checkpoint-ac70d9ecf939719d"),
        ),
        (
            TWO,
            b"/elsewhere",
            (
                b"/elsewhere/.fcp-checkpoint-dec8fb8c7ca33d06",
                b"/to/b/.fcp-checkpoint-dec8fb8c7ca33d06",
            ),
        ),
    ],
)
def test_the_path_of_a_checkpoint_is_that_of_earlier_versions(
    copies: tuple[CopyIdentity, ...], directory: bytes | None, paths: tuple[bytes, bytes]
) -> None:
    """A copy that an earlier version began is found, next to the copy and inside it."""
    assert checkpoint_paths(copies, directory) == paths
