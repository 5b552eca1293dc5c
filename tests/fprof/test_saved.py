"""Profiles that are kept: merged, compared, and read with distrust."""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

from pcircle.errors import UsageError
from pcircle.fprof import saved
from pcircle.fprof.profile import Profile, merge
from tests.fcp.running import ONE, TWO
from tests.fprof.running import profiled, run_fprof

EVERYTHING = ("--by", "age,owner,group,ext,depth,dirsize", "--top", "5", "--blocks", "4k,1M")


def build(root: bytes, seed: int) -> bytes:
    dice = random.Random(seed)
    os.makedirs(root)
    folders = [root]
    for number in range(20):
        folders.append(os.path.join(dice.choice(folders), b"d%d-%d" % (seed, number)))
        os.mkdir(folders[-1])
    for number in range(300):
        path = os.path.join(dice.choice(folders), b"f%d.%d" % (number, number % 7))
        with open(path, "wb") as file:
            file.truncate(dice.randrange(100_000))
        os.utime(path, (0, dice.randrange(2 * 10**9)))
    return root


def kept(tree: bytes, file: bytes, *options: str) -> bytes:
    finished = run_fprof(TWO, "-q", "--save", file, *options, tree)
    assert (finished.code, finished.said) == (0, "")
    return file


def without_run(document: dict[str, Any]) -> dict[str, Any]:
    left_out = ("elapsed_s", "entries_per_s", "ranks", "taken", "roots")
    return {key: value for key, value in document.items() if key not in left_out}


def test_merged_profiles_tell_what_profiling_both_tells(place: bytes) -> None:
    trees = [build(place + b"/a", 1), build(place + b"/b", 2)]
    files = [kept(tree, tree + b".profile") for tree in trees]
    together = without_run(profiled(TWO, *EVERYTHING, *trees))
    for order in (files, files[::-1]):
        assert without_run(profiled(None, "--merge", *EVERYTHING, *order)) == together
    kept_again = run_fprof(None, "-q", "--merge", "--save", place + b"/both", *files)
    assert kept_again.code == 0
    assert without_run(profiled(None, "--merge", *EVERYTHING, place + b"/both")) == together


def test_a_kept_profile_tells_what_the_walk_told(place: bytes) -> None:
    tree = build(place + b"/a", 3)
    first = profiled(TWO, *EVERYTHING, "--save", place + b"/kept", tree)
    again = profiled(None, "--merge", *EVERYTHING, place + b"/kept")
    assert without_run(again) == without_run(first)
    assert again["taken"] == first["taken"]


def compared(old: bytes, new: bytes) -> dict[str, Any]:
    finished = run_fprof(None, "-q", "--json", "-", "--diff", old, new)
    assert finished.code == 0, finished.said
    found = json.loads(finished.out)
    assert isinstance(found, dict)
    return found


def test_a_difference_names_exactly_what_was_changed(place: bytes) -> None:
    tree = build(place + b"/a", 4)
    before = kept(tree, place + b"/before")
    assert compared(before, kept(tree, place + b"/same"))["directories"] == []
    folders = sorted(folder for folder, _, _ in os.walk(tree))
    grown, emptied = folders[3], folders[7]
    with open(grown + b"/new.data", "wb") as file:
        file.truncate(123_456)
    lost = [os.path.join(emptied, n) for n in os.listdir(emptied) if n.startswith(b"f")]
    lost_bytes = sum(os.lstat(path).st_size for path in lost)
    for path in lost:
        os.unlink(path)
    os.mkdir(tree + b"/made")
    found = compared(before, kept(tree, place + b"/after"))
    directories = {os.fsencode(each["path"]): each for each in found["directories"]}
    assert sorted(directories) == sorted([grown, emptied, tree, tree + b"/made"])
    assert {each["what"] for path, each in directories.items() if path != tree + b"/made"} == {
        "changed"
    }
    assert directories[tree + b"/made"]["what"] == "new"
    assert (directories[grown]["entries"], directories[grown]["bytes"]) == (1, 123_456)
    assert directories[emptied]["entries"] == -len(lost) < 0
    assert directories[emptied]["bytes"] == -lost_bytes
    assert directories[tree]["entries"] == 1
    kinds = {each["label"]: each for each in found["kinds"]}
    assert kinds["file"]["number"] == 1 - len(lost)
    assert kinds["file"]["bytes"] == 123_456 - lost_bytes
    assert [each["label"] for each in found["by"]["ext"] if each["number"] > 0] == [".data"]
    (size,) = (each for each in found["sizes"] if each["label"] == "up to 128.0 KiB")
    assert size["number"] >= 1 - len(lost)
    text = run_fprof(None, "--diff", before, place + b"/after").out
    assert grown in text
    assert b"no difference" in run_fprof(None, "--diff", before, place + b"/same").out


def test_a_moved_tree_is_compared_with_what_it_was(place: bytes) -> None:
    tree = build(place + b"/a", 5)
    before = kept(tree, place + b"/before")
    os.rename(tree, place + b"/moved")
    assert compared(before, kept(place + b"/moved", place + b"/after"))["directories"] == []


# ---- distrust ------------------------------------------------------------------------


def as_file(path: Path, body: bytes, version: int = 1) -> str:
    digest = xxhash.xxh3_128_hexdigest(body).encode()
    path.write_bytes(b"pcircle profile %d %b\n" % (version, digest) + body)
    return str(path)


def empty() -> Profile:
    profile = Profile(taken_s=0, facets=(), roots=(b"/a",))
    profile.kinds = {kind: [0, 0, 0] for kind in ("file", "directory", "link", "special")}
    return profile


def test_a_newer_version_is_refused_as_that(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is of version 2, which is newer"):
        saved.read(as_file(tmp_path / "x", b"whatever it may be", 2))
    finished = run_fprof(None, "--merge", os.fsencode(tmp_path / "x"))
    assert finished.code == 2
    assert "newer than this fprof can read (1)" in finished.said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no profile"),
        (b"pcircle profile 1\n", "is no profile"),
        (b"pcircle profile 99999999999 " + b"0" * 32 + b"\n", "is no profile"),
        (b"pcircle profile 1 " + b"0" * 32 + b"\nxyz", "its digest is another one"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        saved.read(str(tmp_path / "x"))


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": {"file": [1, 2, 3]}},
        {"sizes": {5: [1]}},
        {"sizes": {-5: [1, 1, 1]}},
        {"sizes": {1 << 60: [1, 1, 1]}},
        {"unit_counts": [1]},
        {"owners": {1: [1, 2, -3]}},
        {"names": []},
        {"edges": (1,)},
        {"top": 0},
        {"largest": [[5, 3, b"path"]]},
        {"weights": [[-1, b"", 0, 0, 0, 0, 0]]},
        {"sample": [[1, -1, 1]]},
        {"kinds": "file"},
        {"taken_s": "now"},
        {"roots": ()},
        {"age_sizes": {1 << 90: [1, 1, 1]}},
    ],
    ids=str,
)
def test_a_hostile_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    good = msgspec.to_builtins(empty(), builtin_types=(bytes,))
    path = as_file(tmp_path / "x", zlib.compress(msgspec.msgpack.encode(good)))
    assert saved.read(path).roots == (b"/a",)
    made = {**good, **change}
    if change == {"roots": ()}:
        made["largest"] = [[5, 0, b"path"]]
    try:
        packed = msgspec.msgpack.encode(made)
    except (OverflowError, ValueError):  # what can't even be written
        packed = b"\x81\xa5sizes\x81\xcf" + b"\xff" * 8
    with pytest.raises(UsageError, match="is damaged"):
        saved.read(as_file(tmp_path / "y", zlib.compress(packed)))


def test_a_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "_MOST_UNPACKED_BYTES", 1 << 20)
    bomb = as_file(tmp_path / "x", zlib.compress(bytes(1 << 22)))
    with pytest.raises(UsageError, match="is damaged"):
        saved.read(bomb)


def test_damage_anywhere_is_found(tmp_path: Path) -> None:
    saved.write(empty(), str(tmp_path / "x"))
    good = (tmp_path / "x").read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1
        (tmp_path / "y").write_bytes(bad)
        with pytest.raises(UsageError):
            saved.read(str(tmp_path / "y"))
    assert merge(saved.read(str(tmp_path / "x")), empty()).roots == (b"/a",)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--merge"], "FILE is missing"),
        (["--merge", "-x", "f"], "nothing is left out now"),
        (["--merge", "/nonexistent/f"], "cannot read '/nonexistent/f'"),
        (["--diff", "a", "b", "c"], "two kept profiles, and nothing else"),
        (["--diff", "a"], "--diff"),
        (["--save", "/nonexistent/f", "."], "its directory does not exist"),
    ],
)
def test_mistakes_are_refused(arguments: list[str], said: str) -> None:
    finished = run_fprof(ONE if arguments[0] == "--save" else None, *arguments)
    assert finished.code == 2
    assert said in finished.said
