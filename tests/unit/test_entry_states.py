"""Changes of an entry from one state to another."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pcircle.tools.fchmod import state


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("with_lists", [False, True])
def test_a_new_owner_never_has_the_old_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_lists: bool
) -> None:
    file = tmp_path / "file"
    file.touch(0o755)
    file.chmod(0o755)
    old = state.state_of(file.stat())._replace(with_lists=with_lists)
    change_owner, modes = os.chown, []

    def observed(path: bytes, uid: int, gid: int) -> None:
        modes.append(stat.S_IMODE(os.stat(path).st_mode))
        change_owner(path, uid, gid)

    monkeypatch.setattr(os, "chown", observed)
    state.apply(os.fsencode(file), old, old._replace(uid=1, gid=1, mode=0o640))
    assert modes == [0o640]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert (file.stat().st_uid, file.stat().st_gid) == (1, 1)
