"""Subtrees that are compared before the walk enters them."""

from __future__ import annotations

import os
import shutil

import pytest

from pcircle import mirror
from pcircle.tools.fmirror.work import unchanged
from pcircle.tools.fmirror.work.unchanged import Subtrees

from .running import as_root

pytestmark = as_root


def test_few_directories_are_open_at_once(place: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run compares a comb: each directory has the next one, and others."""
    source, target = os.fsdecode(place) + "/a", os.fsdecode(place) + "/b"
    for number in range(3):
        path = f"{source}/{number}"
        for _ in range(12):
            for side in range(14):
                os.makedirs(f"{path}/{side}/x")
            path += "/0"
    shutil.copytree(source, target)
    opens: list[int] = []
    real = Subtrees._compare

    def watched(self: Subtrees, *given: object) -> None:
        real(self, *given)  # type: ignore[arg-type]
        opens.append(len(self._open))

    monkeypatch.setattr(Subtrees, "_compare", watched)
    monkeypatch.setattr(unchanged, "affordable", lambda: 200)
    for limit in ("_SOON_S", "_LATE_S"):
        monkeypatch.setattr(unchanged, limit, 3600.0)
    report = mirror(source, target, jobs=1)
    assert report.exit_code == 0
    assert max(opens) > 1
    assert max(opens) <= 200 // 20
