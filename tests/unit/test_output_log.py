"""The output log: a restarted job repeats no output, and omits none."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from pcircle.runtime.restart import OutputLog
from pcircle.tools.ffind.language.formats import ends_of
from pcircle.tools.ffind.language.parser import parse
from pcircle.tools.ffind.language.words import split


@pytest.mark.parametrize("end", [b"\n", b"\0"])
@pytest.mark.parametrize("seed", range(8))
def test_each_record_is_output_as_often_as_it_occurs(seed: int, end: bytes) -> None:
    """Two of three runs end early, and each finds the records in a different order."""
    rng = Random(seed)
    found = [b"%d" % rng.randrange(300) for _ in range(rng.randrange(1, 2000))]
    log, out = OutputLog(), b""
    for share in (rng.random(), rng.random(), 1):
        rng.shuffle(found)
        remaining = found[: round(len(found) * share)]
        while remaining:
            count = rng.randrange(1, 100)
            pack, remaining = remaining[:count], remaining[count:]
            out += log.fresh("found", b"".join(record + end for record in pack), end)
        log.begin_again()
    assert Counter(out.split(end)[:-1]) == Counter(found)
    log.close()


def test_long_output_is_stored_in_a_file() -> None:
    log, text = OutputLog(), b"x" * 99 + b"\n"
    for number in range(30):
        assert log.fresh("found", text * 1000 + b"%d\n" % number)
    log.begin_again()
    assert log.fresh("found", text * 30_001 + b"7\n8\n99\n") == text + b"99\n"
    log.close()


def test_output_beyond_the_limit_is_not_stored() -> None:
    log = OutputLog(max_bytes=1000)
    assert log.fresh("found", b"x" * 999 + b"\n")
    assert log.is_whole
    assert log.fresh("found", b"x\n") == b"x\n"
    assert not log.is_whole


def test_an_action_is_recognised_on_any_rank() -> None:
    log = OutputLog()
    line = b'{"path":"a","state":"done","errno":null,"rank":%d,"t":%f}\n'
    log.fresh("actions", line % (1, 0.5))
    log.begin_again()
    assert log.fresh("actions", line % (0, 1.5)) == b""
    assert log.fresh_lines("said", ["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ("-name x", {0: b"\n"}),
        ("-print0", {0: b"\0"}),
        ("-print -o -print0", None),
        (r"-printf %p\n", {0: b"\n"}),
        (r"-printf %p\n%s\n", None),
        (r"-printf %p", None),
        (r"-printf %p\n%c", None),
        ("-fprint0 a -fprint b", {1: b"\0", 2: b"\n"}),
        ("-count", {}),
        ("-ls , -json", {0: b"\n"}),
    ],
)
def test_records_that_are_distinguished(words: str, ends: dict[int, bytes] | None) -> None:
    words_with_path = ["x", *words.split()]
    found = split(words_with_path, lambda word: False)
    assert ends_of(parse(words_with_path, found.tokens).expression) == ends
