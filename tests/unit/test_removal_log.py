"""The removals of a killed thread are known from its log."""

from __future__ import annotations

import os
from pathlib import Path

from pcircle.ops.remove.plan import WHOLE, RemovalCounters
from pcircle.ops.remove.removal_log import RemovalLog
from pcircle.walk.roots import Root


def test_removed_names_of_an_intent(tmp_path: Path) -> None:
    (tmp_path / "d" / "inner").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "d" / name).touch()
    roots = Root(bytes(tmp_path), b"", b"d", b"d"), Root(bytes(tmp_path), b"", b"e", b"e")
    log = RemovalLog(3)
    counts = RemovalCounters()
    assert log.count_removed(roots, b"/") == {}
    notes, other = log.thread_log(1), log.thread_log(2)
    notes.write(counts, "f", 0, b"", [b"a", b"b", b"c"])
    assert log.count_removed(roots, b"/") == {"files": 0, **dict.fromkeys(_OTHERS, 0)}
    (tmp_path / "d" / "b").unlink()
    assert log.count_removed(roots, b"/") == {"files": 1, **dict.fromkeys(_OTHERS, 0)}
    counts.files = 3
    notes.write(counts, "d", 0, b"", [b"inner"])
    other.write(RemovalCounters(links=4), WHOLE, 1, b"", [b"gone\0x\0y\0", b"empty\0"])
    assert log.count_removed(roots, b"/") == {
        "files": 5,
        "directories": 2,
        "links": 4,
        "special": 0,
    }
    (tmp_path / "d" / "inner").rmdir()
    assert log.count_removed(roots, b"/") == {
        "files": 5,
        "directories": 3,
        "links": 4,
        "special": 0,
    }
    log.close()


def test_too_long_intents_are_unknown(tmp_path: Path) -> None:
    log = RemovalLog(1)
    notes = log.thread_log(0)
    notes.write(RemovalCounters(), "f", 0, b"x" * (3 << 16), [b"a"])
    notes.write(RemovalCounters(), "f", 0, b"x", [b"a"])
    assert log.count_removed((Root(bytes(tmp_path), b"", b"d"),), b"/") is None
    log.close()


def test_each_thread_has_a_place_of_its_own() -> None:
    log = RemovalLog(2)
    for rank in range(2):
        for _ in range(32):
            log.thread_log(rank).write(RemovalCounters(files=1), "l", 0, os.sep.encode(), [b"none"])
    found = log.count_removed((Root(b"/", b"", b"/"),), b"/")
    assert found == {"files": 64, "links": 64, "directories": 0, "special": 0}
    log.close()


_OTHERS = ("directories", "links", "special")
