"""How long one rank processes names of a directory before it shares the remaining names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pcircle.runtime import Context
from pcircle.walk import open_directory as opened
from pcircle.walk.open_directory import ItemContext


@pytest.mark.parametrize(
    ("after_s", "has_idle_workers", "is_enough"),
    [(0.005, True, False), (0.02, True, True), (0.02, False, False), (0.2, False, True)],
)
def test_waiting_ranks_get_remaining_names_sooner(
    monkeypatch: pytest.MonkeyPatch, after_s: float, has_idle_workers: bool, is_enough: bool
) -> None:
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(opened, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    line = SimpleNamespace(is_stopping=bool, has_idle_workers=lambda: has_idle_workers)
    context: ItemContext[Any] = ItemContext(Context(0, cast("Any", line)))
    enough = context.time_limit()
    clock.now_s += after_s
    assert enough() is is_enough
