"""A session knows whether its checkpoint is inside the copy, whose times it then preserves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcircle.ops.checkpoint.plan import CheckpointOptions
from pcircle.ops.checkpoint.resume import CheckpointJob, open_session
from pcircle.ops.checkpoint.store import CopyIdentity, checkpoint_paths


@pytest.mark.parametrize("is_inside", [False, True])
def test_the_times_of_the_copy_stay_if_its_checkpoint_is_inside(
    tmp_path: Path, is_inside: bool
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    copies = (CopyIdentity(b"/source", 1, os.fsencode(copy)),)
    job = CheckpointJob(copies, {}, b"01234567", 1 << 20, os.fsencode(copy))
    if is_inside:
        os.mkdir(checkpoint_paths(copies, None)[1])  # an earlier run could create none beside it
    session = open_session(job, CheckpointOptions())
    assert session is not None
    assert session.inside is is_inside
    above = os.path.dirname(session.checkpoint.path)
    os.utime(above, (10**9, 10**9))
    session.remove()
    session.close()
    assert (os.stat(above).st_mtime == 10**9) is is_inside
