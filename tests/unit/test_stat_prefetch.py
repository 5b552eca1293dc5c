"""`StatPrefetch` uses threads only while single look-ups are slow."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pcircle.tools.ffind.eval.evaluator import StatPrefetch


@pytest.mark.parametrize("alone_s", [0.0, 2e-3])
def test_a_fast_look_up_ends_prefetching(
    tmp_path: Path, alone_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefetched names take long in both cases, of which only one is due to the file system."""
    now_s = 0.0

    def stat(name: bytes, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        nonlocal now_s
        now_s += alone_s
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr("pcircle.tools.ffind.eval.evaluator.os", SimpleNamespace(stat=stat))
    clock = SimpleNamespace(perf_counter=lambda: now_s)
    monkeypatch.setattr("pcircle.tools.ffind.eval.evaluator.time", clock)
    names = [b"%d" % number for number in range(8)]
    for name in names:
        (tmp_path / os.fsdecode(name)).touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    prefetch = StatPrefetch(2, follow=False)
    prefetch.look(fd, names)
    now_s += 1.0
    prefetch.done(len(names))
    counts = []
    for _ in range(17):
        counts.append(sum(status is not None for status in prefetch.look(fd, names)))
        now_s += 8e-4 if counts[-1] < len(names) else 0.5  # to evaluate them
        prefetch.done(len(names))
    prefetch.close()
    os.close(fd)
    assert counts == ([8] * 17 if alone_s else [8] * 15 + [1, 0])
