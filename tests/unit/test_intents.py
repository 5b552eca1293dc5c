"""What a killed thread had removed is known by what it had written down."""

from __future__ import annotations

import os
from pathlib import Path

from pcircle.removing.intents import Intents
from pcircle.removing.plan import WHOLE, Counters
from pcircle.walk.roots import Root


def test_what_has_gone_of_an_intent(tmp_path: Path) -> None:
    (tmp_path / "d" / "inner").mkdir(parents=True)
    for name in "abc":
        (tmp_path / "d" / name).touch()
    roots = Root(bytes(tmp_path), b"", b"d", b"d"), Root(bytes(tmp_path), b"", b"e", b"e")
    intents = Intents(3)
    counts = Counters()
    assert intents.removed(roots, b"/") == {}
    notes, other = intents.notes(1), intents.notes(2)
    notes.intend(counts, "f", 0, b"", [b"a", b"b", b"c"])
    assert intents.removed(roots, b"/") == {"files": 0, **dict.fromkeys(_OTHERS, 0)}
    (tmp_path / "d" / "b").unlink()
    assert intents.removed(roots, b"/") == {"files": 1, **dict.fromkeys(_OTHERS, 0)}
    counts.files = 3
    notes.intend(counts, "d", 0, b"", [b"inner"])
    other.intend(Counters(links=4), WHOLE, 1, b"", [b"gone\0x\0y\0", b"empty\0"])
    assert intents.removed(roots, b"/") == {"files": 5, "directories": 2, "links": 4, "special": 0}
    (tmp_path / "d" / "inner").rmdir()
    assert intents.removed(roots, b"/") == {"files": 5, "directories": 3, "links": 4, "special": 0}
    intents.close()


def test_what_is_too_long_is_not_known(tmp_path: Path) -> None:
    intents = Intents(1)
    notes = intents.notes(0)
    notes.intend(Counters(), "f", 0, b"x" * (3 << 16), [b"a"])
    notes.intend(Counters(), "f", 0, b"x", [b"a"])
    assert intents.removed((Root(bytes(tmp_path), b"", b"d"),), b"/") is None
    intents.close()


def test_each_thread_has_a_place_of_its_own() -> None:
    intents = Intents(2)
    for rank in range(2):
        for _ in range(32):
            intents.notes(rank).intend(Counters(files=1), "l", 0, os.sep.encode(), [b"none"])
    found = intents.removed((Root(b"/", b"", b"/"),), b"/")
    assert found == {"files": 64, "links": 64, "directories": 0, "special": 0}
    intents.close()


_OTHERS = ("directories", "links", "special")
