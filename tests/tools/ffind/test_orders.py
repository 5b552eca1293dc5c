"""Generated orders of options, paths, operators and primaries have the same meaning as for find.

Each command runs in a tree of its own, because some delete. Nothing outside it is named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from pcircle.core.errors import UsageError
from tests.conftest import SOAK
from tests.tools.ffind.calling import find

Unit = tuple[str, ...]

COUNT = int(os.environ.get("FFIND_ORDERS", "2000" if SOAK else "250"))
NAMES = (",", ")", "(", "!", "a", "-", "-a")
PATHS: list[Unit] = [("a",), ("-",)]
"""Paths in any position; `,` and `)` are paths or operators."""
LEADING: list[Unit] = [("-P",), ("-H",), ("-L",), ("-O1",), ("-D", "stat"), ("--",)]
EXPRESSION: list[Unit] = [
    *((word,) for word in (",", ")", "(", "!", "-o", "-a", "-not", "-,", "-!", "-(", "-)")),
    ("-type", "f"), ("-name", ","), ("-print",), ("-maxdepth", "1"), ("-depth",), ("-daystart",),
    ("-delete",), ("-name", "g", "-delete"), ("-files0-from", "../list"),
]  # fmt: skip
KNOWN = [
    "-P , -delete", "-H , -delete", "-L ,", "-O1 , -delete", "-D stat , -delete", "-- , -delete",
    "-P -- , ) -delete", ", -P", "-- -P", "a --", "a -L", ") , -delete", "-type f , -delete", "! ,",
    "( , )", "-P ! -delete", ", ( -type f )", "-files0-from ../list -delete",
    "-files0-from ../list , -delete", "-P , -files0-from ../list -delete",
    "-files0-from ../none -delete", "a -files0-from ../list", "-P -o -print", "-O2 -a -print",
    "-daystart -o -delete", "! -daystart -delete", "! -maxdepth 1 -delete", "-maxdepth 1 , -print",
    "- -delete", ", -type f -, -delete", "-O -delete", "-Ox ,", "-D", "-P -P , a -delete",
]  # fmt: skip


class Outcome(NamedTuple):
    """A command: whether it was refused, its output, and the remaining entries."""

    refused: bool
    code: int
    output: list[bytes]
    left: list[str]


def _sequences() -> list[list[Unit]]:
    """Draw known commands, then generated ones: mostly of the form that find accepts."""
    rng = Random(os.environ.get("FFIND_SEED", "orders"))
    # In KNOWN the words of a unit are separate units, which is equivalent for commands.
    found: list[list[Unit]] = [[(word,) for word in line.split()] for line in KNOWN]
    for _ in range(COUNT):
        parts = [
            rng.choices(LEADING, k=rng.choice((0, 1, 1, 2))),
            rng.choices([*PATHS, (",",), (")",)], k=rng.choice((0, 1, 2))),
            rng.choices(EXPRESSION, k=rng.choice((0, 1, 2, 3, 4))),
            rng.choices(PATHS, k=rng.choice((0, 0, 0, 1))),
        ]
        units = [unit for part in parts for unit in part]
        if rng.random() < 0.3:
            rng.shuffle(units)
        found.append(units)
    return found


def _begin(units: list[Unit]) -> int:
    """Return where the expression begins."""
    before = [*LEADING, *PATHS, (",",), (")",)]
    return next((at for at, unit in enumerate(units) if unit not in before), len(units))


def _paths_first(units: list[Unit]) -> list[Unit]:
    """Move paths after the expression, where only ffind accepts them, before it."""
    before, behind = units[: _begin(units)], units[_begin(units) :]
    late = [unit for unit in behind if unit in PATHS]
    return [*before, *late, *(unit for unit in behind if unit not in PATHS)]


def _is_odd(units: list[Unit]) -> bool:
    """Return whether find 4.9 has a defect here, or ffind a documented difference.

    find accepts `-type f ) ( -print`, and may take the value of `a` for that of `a , b`. ffind does
    not fail to delete a file for the second time, and refuses to delete with -L. It may look up a
    path that was given twice before it deletes it, so only find always fails at the second.
    """
    depth = lowest = 0
    paths = [*units[: _begin(units)], *(unit for unit in units[_begin(units) :] if unit in PATHS)]
    paths = [unit for unit in paths if unit not in LEADING]
    words = [unit[-1].removeprefix("-") for unit in units[_begin(units) :]]
    for word in words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        lowest = min(lowest, depth)
    follows = ("print", "delete")
    return (
        (lowest < 0 and "(" in words)
        or any(word == "," and before not in follows for before, word in pairwise(words))
        or words.count("delete") > 1
        or ("delete" in words and len(set(paths)) < len(paths))
        or (("-L",) in units and "delete" in words)
    )


def _make(top: Path) -> None:
    shutil.rmtree(top, ignore_errors=True)
    for name in NAMES:
        (top / name / "in").mkdir(parents=True)
        for file in ("g", "in/,"):
            (top / name / file).touch()


def _left(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def _by_find(cage: Path, units: list[Unit]) -> Outcome:
    _make(cage)
    words = [word for unit in units for word in unit]
    done = subprocess.run(
        ["find", *words],
        cwd=cage,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        check=False,
    )
    failures = (b"find: cannot delete", b"find: '")
    said = [line for line in done.stderr.splitlines() if line.startswith(b"find: ")]
    refused = done.returncode != 0 and not any(line.startswith(failures) for line in said)
    if refused:
        return Outcome(refused=True, code=2, output=[], left=_left(cage))
    return Outcome(False, done.returncode, sorted(done.stdout.splitlines()), _left(cage))


def _by_ffind(cage: Path, units: list[Unit], monkeypatch: pytest.MonkeyPatch) -> Outcome:
    _make(cage)
    words = [word for unit in units for word in unit]
    monkeypatch.chdir(cage)
    try:
        found = find(*words, jobs=1, threads=1)
    except UsageError:
        return Outcome(refused=True, code=2, output=[], left=_left(cage))
    return Outcome(False, found.report.exit_code, sorted(found.text.splitlines()), _left(cage))


def _difference(expected: Outcome, got: Outcome) -> str:
    pairs = zip(Outcome._fields, expected, got, strict=True)
    return ", ".join(f"{name} {theirs} {ours}" for name, theirs, ours in pairs if theirs != ours)


def test_orders_have_the_meaning_of_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cage = tmp_path / "cage"
    (tmp_path / "list").write_bytes(b"a\0,\0(\0!\0-a\0")
    (tmp_path / "none").touch()
    different = []
    for units in _sequences():
        expected = _by_find(cage, _paths_first(units))
        got = _by_ffind(cage, units, monkeypatch)
        if got != expected and not _is_odd(units):
            words = " ".join(word for unit in units for word in unit)
            different.append(f"{words}: {_difference(expected, got)}")
    assert not different, "\n".join(different[:20])
