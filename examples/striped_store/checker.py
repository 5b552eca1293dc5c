"""Find what a change leaves behind if it is not completed on all ranks, like fsck."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from examples.striped_store.changes import ROOT, holders, home, is_directory


class Checked(NamedTuple):
    """The names of a store, objects that no name leads to, missing parts, and intents.

    `repeated` lists objects with two names. Objects that are prepared count as intents.
    """

    names: int
    orphans: list[str]
    missing: list[str]
    repeated: list[str]
    intents: int


def check(place: Path, ranks: int) -> Checked:
    """Check all parts of a store that no rank serves."""
    parts = [place / f"rank-{rank}" for rank in range(ranks)]
    found = {
        (rank, folder, path.name)
        for rank, part in enumerate(parts)
        for folder in ("data", "metadata", "entry")
        for path in (part / folder).iterdir()
    }
    expected: set[tuple[int, str, str]] = set()
    reached, repeated = {ROOT}, []
    left, names = [ROOT], 0
    while left:
        id = left.pop()
        expected |= _expected(id, ranks)
        folder = parts[home(id)] / "entry" / id
        if not is_directory(id) or not folder.is_dir():
            continue
        for entry in folder.iterdir():
            names += 1
            child = entry.read_text()
            if child in reached:
                repeated.append(child)
            else:
                reached.add(child)
                left.append(child)
    prepared = sum(len(list((part / "prepared").iterdir())) for part in parts)
    intents = sum(len(list((part / "intents").iterdir())) for part in parts)
    return Checked(
        names, _lines(found - expected), _lines(expected - found), repeated, intents + prepared
    )


def _expected(id: str, ranks: int) -> set[tuple[int, str, str]]:
    """Return the files that an object consists of."""
    folder = "entry" if is_directory(id) else "data"
    return {(home(id), "metadata", id)} | {(rank, folder, id) for rank in holders(id, ranks)}


def _lines(files: set[tuple[int, str, str]]) -> list[str]:
    return [f"rank {rank}: {folder} of {id}" for rank, folder, id in sorted(files)]
