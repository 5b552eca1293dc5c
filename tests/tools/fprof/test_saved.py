"""Saved profiles: merged, compared, and validated."""

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

from pcircle.core.errors import UsageError
from pcircle.tools.fprof.cli import main
from pcircle.tools.fprof.profile import saved
from pcircle.tools.fprof.profile.model import Profile, _with_extensions, merge
from tests.conftest import SOAK
from tests.tools.fcp.running import ONE, TWO
from tests.tools.fprof.running import profiled, run_fprof

KINDS = {kind: [0, 0, 0] for kind in ("file", "directory", "link", "special")}
NESTED = [msgspec.msgpack.Ext(1, b"x"), msgspec.Raw(b"\x91" * 100_000 + b"\xc0")]
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


def save_profile(tree: bytes, file: bytes, *options: str) -> bytes:
    finished = run_fprof(TWO, "-q", "--save", file, *options, tree)
    assert (finished.code, finished.said) == (0, "")
    return file


def without_run(document: dict[str, Any]) -> dict[str, Any]:
    left_out = ("elapsed_s", "entries_per_s", "ranks", "taken", "roots")
    return {key: value for key, value in document.items() if key not in left_out}


def test_merged_profiles_equal_a_joint_profile(place: bytes) -> None:
    trees = [build(place + b"/a", 1), build(place + b"/b", 2)]
    files = [save_profile(tree, tree + b".profile") for tree in trees]
    together = without_run(profiled(TWO, *EVERYTHING, *trees))
    for order in (files, files[::-1]):
        assert without_run(profiled(None, "--merge", *EVERYTHING, *order)) == together
    kept_again = run_fprof(None, "-q", "--merge", "--save", place + b"/both", *files)
    assert kept_again.code == 0
    assert without_run(profiled(None, "--merge", *EVERYTHING, place + b"/both")) == together


def test_a_saved_profile_equals_that_of_the_walk(place: bytes) -> None:
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


def test_a_difference_names_exactly_the_changes(place: bytes) -> None:
    tree = build(place + b"/a", 4)
    before = save_profile(tree, place + b"/before")
    assert compared(before, save_profile(tree, place + b"/same"))["directories"] == []
    folders = sorted(folder for folder, _, _ in os.walk(tree))
    grown, emptied = folders[3], folders[7]
    with open(grown + b"/new.data", "wb") as file:
        file.truncate(123_456)
    lost = [os.path.join(emptied, n) for n in os.listdir(emptied) if n.startswith(b"f")]
    lost_bytes = sum(os.lstat(path).st_size for path in lost)
    for path in lost:
        os.unlink(path)
    os.mkdir(tree + b"/made")
    found = compared(before, save_profile(tree, place + b"/after"))
    directories = {os.fsencode(row["path"]): row for row in found["directories"]}
    assert sorted(directories) == sorted([grown, emptied, tree, tree + b"/made"])
    assert {row["what"] for path, row in directories.items() if path != tree + b"/made"} == {
        "changed"
    }
    assert directories[tree + b"/made"]["what"] == "new"
    assert (directories[grown]["entries"], directories[grown]["bytes"]) == (1, 123_456)
    assert directories[emptied]["entries"] == -len(lost) < 0
    assert directories[emptied]["bytes"] == -lost_bytes
    assert directories[tree]["entries"] == 1
    kinds = {row["label"]: row for row in found["kinds"]}
    assert kinds["file"]["number"] == 1 - len(lost)
    assert kinds["file"]["bytes"] == 123_456 - lost_bytes
    assert [row["label"] for row in found["by"]["ext"] if row["number"] > 0] == [".data"]
    (size,) = (row for row in found["sizes"] if row["label"] == "up to 128.0 KiB")
    assert size["number"] >= 1 - len(lost)
    text = run_fprof(None, "--diff", before, place + b"/after").out
    assert grown in text
    assert b"no difference" in run_fprof(None, "--diff", before, place + b"/same").out


def test_a_moved_tree_is_compared_with_its_old_profile(place: bytes) -> None:
    tree = build(place + b"/a", 5)
    before = save_profile(tree, place + b"/before")
    os.rename(tree, place + b"/moved")
    assert compared(before, save_profile(place + b"/moved", place + b"/after"))["directories"] == []


def test_too_long_lists_are_refused(place: bytes) -> None:
    tree = build(place + b"/a", 9)
    file = save_profile(tree, place + b"/kept", "--top", "150")
    assert len(profiled(None, "--merge", "--top", "150", file)["top"]["largest"]) == 150
    finished = run_fprof(None, "--merge", "--top", "151", file)
    assert finished.code == 2
    assert "--top: these profiles keep the first 150 of each list" in finished.said


# ---- validation ----------------------------------------------------------------------


def as_file(path: Path, body: bytes, version: int = 1) -> str:
    digest = xxhash.xxh3_128_hexdigest(body).encode()
    path.write_bytes(b"pcircle profile %d %b\n" % (version, digest) + body)
    return str(path)


def empty() -> Profile:
    profile = Profile(taken_s=0, facets=(), roots=(b"/a",))
    profile.kinds = {kind: [0, 0, 0] for kind in ("file", "directory", "link", "special")}
    return profile


def test_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has version 2, which is newer"):
        saved.read(as_file(tmp_path / "x", b"whatever it may be", 2))
    finished = run_fprof(None, "--merge", os.fsencode(tmp_path / "x"))
    assert finished.code == 2
    assert "newer than this fprof can read (1)" in finished.said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a profile"),
        (b"pcircle profile 1\n", "is not a profile"),
        (b"pcircle profile 99999999999 " + b"0" * 32 + b"\n", "is not a profile"),
        (b"pcircle profile 1 " + b"0" * 32 + b"\nxyz", "is damaged: checksum mismatch"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
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
        {"sizes": {3777: [1, 1, 1]}, "kinds": {**KINDS, "file": [1, 1, 0]}},
        {"sizes": {5: [1, 1 << 79, 1]}},
        {"sizes": {5: [1, 5, 1]}},
        {"sizes": {5: [1, 6, 1]}, "kinds": {**KINDS, "file": [1, 6, 0]}},
        {"sizes": {200: [1, 5, 1]}, "kinds": {**KINDS, "file": [1, 5, 0]}},
        {"sizes": {5: [1, 5, 0]}, "kinds": {**KINDS, "file": [1, 5, 0]}},
        {"kinds": {**KINDS, "file": [1, 5, 0]}},
        {"directory_sizes": {4_000_000_000: [1, 1]}},
        {"depths": {256: [1, 1, 1]}},
        {"extensions": {"\x1b[2J": [1, 1, 1]}},
        {"extensions": {"a\nb": [1, 1, 1]}},
        {"extensions": {"e" * 17: [1, 1, 1]}},
        {"stripes": {"\x07": [1, 1, 1]}},
        {"stripes": {"s" * 5000: [1, 1, 1]}},
        {"largest": [[-5, 0, b"path"]]},
        {"largest": [[1 << 90, 0, b"path"]]},
        {"oldest": [[5, 0, b"a\0b"]]},
        {"weights": [[0, b"", 0, -1, 0, 0, 0]]},
        {"crowds": [[0, b"", 0, 0, 0, 0, -7]]},
        {"wide": [[0, b"", -2, 0, 0, 0, 0]]},
        {"sample": [[5, 1, 2]], "sampled": 1},
        {"sample": [[5, 1 << 40, 2]], "sampled": 1},
        {"sample": [[-1, 1, 1]], "sampled": 1},
        {"sample": [[7, 1, 1], [5, 1, 1]], "sampled": 2},
        {"sample": [[5, 1, 1]]},
        {"top": 1 << 70},
        {"roots": (b"/a", b"/a")},
        {"roots": (b"",)},
        {"largest_bytes": 1 << 64},
        {"taken_s": msgspec.msgpack.Ext(2, b"xx")},
        {"taken_s": msgspec.msgpack.Ext(1, b"x" * 17)},
        {"facets": NESTED},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_hostile_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    good = msgspec.to_builtins(empty(), builtin_types=(bytes,))
    path = as_file(tmp_path / "x", zlib.compress(msgspec.msgpack.encode(good)))
    assert saved.read(path).roots == (b"/a",)
    made = {**good, **change}
    if change == {"roots": ()}:
        made["largest"] = [[5, 0, b"path"]]
    try:
        packed = msgspec.msgpack.encode(_with_extensions(made))
    except (OverflowError, ValueError):  # values that cannot be written
        packed = b"\x81\xa5sizes\x81\xcf" + b"\xff" * 8
    with pytest.raises(UsageError, match="is damaged"):
        saved.read(as_file(tmp_path / "y", zlib.compress(packed)))


def test_a_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "_MAX_UNPACKED_BYTES", 1 << 20)
    bomb = as_file(tmp_path / "x", zlib.compress(bytes(1 << 22)))
    with pytest.raises(UsageError, match="is damaged"):
        saved.read(bomb)


def test_trailing_data_is_damage(tmp_path: Path) -> None:
    body = zlib.compress(msgspec.msgpack.encode(empty()))
    with pytest.raises(UsageError, match="is damaged"):
        saved.read(as_file(tmp_path / "x", body + b"more"))


def test_only_readable_profiles_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "_MAX_UNPACKED_BYTES", 100)
    with pytest.raises(OSError, match="File too large"):
        saved.write(empty(), str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="session")
def genuine(shared_place: bytes) -> dict[str, Any]:
    """Return a profile of a walk with all fields, as plain data."""
    tree = build(os.path.join(shared_place, b"genuine"), 8)
    file = save_profile(tree, tree + b".profile", "--compress=20", "--sparse", "--stripe")
    profile = saved.read(os.fsdecode(file))
    plain = msgspec.to_builtins(profile, builtin_types=(bytes,))
    assert isinstance(plain, dict)
    return plain


NUMBERS = (-1, 0, 1, 64, 3776, 3777, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))


def disturbed(value: Any, dice: random.Random) -> Any:
    """Return the same value with one element changed or removed."""
    if isinstance(value, dict) and value:
        key = dice.choice(list(value))
        changed = {k: disturbed(v, dice) if k == key else v for k, v in value.items()}
        if isinstance(key, int) and dice.random() < 0.5:
            changed[dice.choice(NUMBERS)] = changed.pop(key)
        return changed
    if isinstance(value, (list, tuple)) and value:
        place = dice.randrange(len(value))
        if dice.random() < 0.1:
            return [*value[:place], *value[place + 1 :]]
        return [disturbed(v, dice) if p == place else v for p, v in enumerate(value)]
    if isinstance(value, int):
        return dice.choice(NUMBERS)
    if isinstance(value, str):
        return dice.choice(["", "\x1b[31m", "a" * 3000, "\ud7ff\n"])
    return dice.choice([b"", b"\xff\n\x1b[31m", b"x" * 5000, b"../..", b"a//b", 0, None])


@pytest.mark.parametrize("seed", range(200 if SOAK else 5))
def test_an_accepted_file_can_be_reported(
    genuine: dict[str, Any], tmp_path: Path, seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Any file is refused, or each output can be made from it, and nothing else happens."""
    dice = random.Random(seed)
    good = as_file(tmp_path / "good", zlib.compress(msgspec.msgpack.encode(genuine)))
    outputs = ["--json", str(tmp_path / "j"), "--html", str(tmp_path / "h"), "--csv", str(tmp_path)]
    more = ["--by", "age,owner,group,ext,depth,dirsize", "--top", "20", "--blocks", "512,64M/512"]
    more += ["--data-in-inode", "4k", "--sparse", "--stripe", "--compress"]
    believed = 0
    for _ in range(60):
        bad = disturbed(genuine, dice)
        path = as_file(tmp_path / "bad", zlib.compress(msgspec.msgpack.encode(bad), 1))
        try:
            saved.read(path)
        except UsageError:
            continue
        believed += 1
        assert main(["--merge", *more, *outputs, path]) in (0, 1, 2), bad
        assert main(["--merge", "-q", "--bins", "pow4", good, path]) in (0, 1, 2), bad
        assert main(["--diff", good, path]) in (0, 2), bad
        assert not set(capfd.readouterr().out) & {"\x1b", "\xff"}
    assert believed


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
        (["--merge"], "missing operand FILE"),
        (
            ["--merge", "-x", "f"],
            "--merge cannot be combined with -x",
        ),
        (["--merge", "/nonexistent/f"], "cannot read '/nonexistent/f'"),
        (["--diff", "a", "b", "c"], "--diff takes two saved profiles and no other option"),
        (["--diff", "a"], "--diff"),
        (["--diff", "a", "b", "--top", "3"], "--diff takes two saved profiles and no other option"),
        (
            ["--diff", "a", "b", "--by", "age"],
            "--diff takes two saved profiles and no other option",
        ),
        (["--diff", "a", "b", "-x"], "--diff takes two saved profiles and no other option"),
        (
            ["--diff", "a", "b", "--exclude", "y"],
            "--diff takes two saved profiles and no other option",
        ),
        (
            ["--diff", "a", "b", "--files-from", "y"],
            "--diff takes two saved profiles and no other option",
        ),
        (
            ["--diff", "a", "b", "--error-log", "y"],
            "--diff takes two saved profiles and no other option",
        ),
        (
            ["--diff", "a", "b", "--threads", "3"],
            "--diff takes two saved profiles and no other option",
        ),
        (
            ["--merge", "--stats", "f"],
            "--merge cannot be combined with --stats",
        ),
        (
            ["--merge", "--threads", "3", "f"],
            "--merge cannot be combined with --threads",
        ),
        (["--save", "/nonexistent/f", "."], "its directory does not exist"),
    ],
)
def test_mistakes_are_refused(arguments: list[str], said: str) -> None:
    finished = run_fprof(ONE if arguments[0] == "--save" else None, *arguments)
    assert finished.code == 2
    assert said in finished.said
