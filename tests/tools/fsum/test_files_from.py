"""`--files-from`: the signature is that of a tree which contains exactly the listed entries.

Long lists take other code paths (a part for rank 0, portions for all), so there are long and short
ones. The expected tree is built file by file, and signed by the plain reference.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.signed import signature_of
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, copy, document
from tests.tools.fcp.trees import make_directory, write_file

from .running import every_launcher, run_fsum, signed, some_launchers

ODD = b"\xff\n #"


@pytest.fixture
def place(tmp_path: Path) -> bytes:
    """Return a private directory of the test."""
    return os.fsencode(tmp_path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Create 300 directories in two levels, 3,000 files in them and 3,000 in one; odd names."""
    top = make_directory(os.fsencode(tmp_path_factory.mktemp("listed")), b"source")
    for outer in range(3):
        for inner in range(100):
            here = make_directory(top, b"%d/directory of some length %d" % (outer, inner))
            for number in range(10):
                write_file(here + b"/file of some length %d" % number, b"%d" % number)
            os.symlink(b"nowhere", here + b"/" + ODD)
    wide = make_directory(top, b"wide")
    for number in range(3000):
        write_file(wide + b"/one of many names, none of them short, %d" % number, b"%d" % number)
    make_directory(wide, b"inner/deep")
    write_file(wide + b"/inner/deep/" + ODD, b"odd")
    os.mkfifo(wide + b"/inner/pipe")
    return top


def _all_paths(source: bytes) -> list[bytes]:
    found = []
    for top, directories, files in os.walk(source):
        found += [os.path.relpath(os.path.join(top, name), source) for name in directories + files]
    return sorted(found)


def _random_paths(paths: list[bytes], seed: int, share: float) -> list[bytes]:
    rng = Random(seed)
    chosen = [path for path in paths if rng.random() < share]
    rng.shuffle(chosen)
    return chosen + chosen[:5]


def _list(place: bytes, paths: list[bytes], end: bytes = b"\0") -> bytes:
    name = place + b"/list"
    with open(name, "wb") as stream:
        stream.write(b"".join(path + end for path in paths))
    return name


def _expected(source: bytes, place: bytes, paths: list[bytes]) -> bytes:
    """Build a tree of listed entries; those that end with a slash include everything below."""
    top = make_directory(place, b"expected")
    for path in paths:
        old, new = os.path.join(source, path), os.path.join(top, path)
        os.makedirs(os.path.dirname(new), exist_ok=True)
        if path.endswith(b"/"):
            shutil.copytree(os.fsdecode(old), os.fsdecode(new), symlinks=True, dirs_exist_ok=True)
        elif os.path.isdir(old) and not os.path.islink(old):
            os.makedirs(new, exist_ok=True)
        elif not os.path.lexists(new):
            if os.path.basename(path) == b"pipe":
                os.mkfifo(new)
            else:
                shutil.copy(old, new, follow_symlinks=False)
    return top


@every_launcher
@pytest.mark.parametrize("share", [0.01, 0.7])
def test_listed_entries_are_signed(
    launcher: Launcher, share: float, source: bytes, place: bytes
) -> None:
    paths = _random_paths(_all_paths(source), 1, share)
    wanted = signature_of(_expected(source, place, paths))
    listed = _list(place, paths)
    assert signed(launcher, "-0", "--files-from", listed, source) == [wanted]


def test_a_copy_of_the_list_has_the_same_signature(source: bytes, place: bytes) -> None:
    listed = _list(place, _random_paths(_all_paths(source), 2, 0.6))
    copied = copy(FOUR, "-a", "-s", "-0", "--files-from", listed, source, place + b"/target")
    assert signed(TWO, "-0", "--files-from", listed, source) == [copied.out.split()[0].decode()]
    assert signed(TWO, place + b"/target") == [copied.out.split()[0].decode()]


@some_launchers
def test_listed_subtrees(launcher: Launcher, source: bytes, place: bytes) -> None:
    """With -r every listed directory is complete, otherwise only those that end with a slash."""
    chosen = [b"1", b"0/directory of some length 7", b"2"]
    slashes = [path + b"/" for path in chosen]
    expected = _expected(source, place, slashes)
    wanted = signature_of(expected)
    assert signed(launcher, "--files-from", _list(place, slashes, b"\n"), source) == [wanted]
    deep = _list(place, chosen, b"\n")
    assert signed(launcher, "-r", "--files-from", deep, source) == [wanted]
    os.makedirs(expected + b"/wide/inner")
    alone = _list(place, [*slashes, b"wide/inner"], b"\n")
    assert signed(launcher, "--files-from", alone, source) == [signature_of(expected)]
    everything = _list(place, [b"."], b"\n")
    assert signed(launcher, "-r", "--files-from", everything, source) == [signature_of(source)]


@some_launchers
def test_manifests_contain_only_listed_entries(
    launcher: Launcher, source: bytes, place: bytes
) -> None:
    """A check ignores all other entries: new ones as well as missing ones."""
    paths = _random_paths(_all_paths(source), 3, 0.5)
    listed = _list(place, paths)
    top = _expected(source, place, paths)
    arguments: list[str | bytes] = ["-0", "--files-from", listed]
    partial_manifest, whole, other = (place + b"/" + name for name in (b"some", b"whole", b"other"))
    assert run_fsum(launcher, *arguments, "-o", partial_manifest, source).code == 0
    assert run_fsum(ONE, "-o", other, top).code == 0
    assert run_fsum(ONE, "--diff", partial_manifest, other).code == 0
    assert run_fsum(ONE, "-o", whole, source).code == 0
    for manifest in (partial_manifest, whole):
        checked = run_fsum(launcher, *arguments, "--check", manifest, source)
        assert (checked.code, checked.out) == (0, b""), checked.said


@some_launchers
@pytest.mark.parametrize("how", [[], ["--quick"]])
def test_listed_entries_that_differ_are_named(
    launcher: Launcher, how: list[str], source: bytes, place: bytes
) -> None:
    wide = [path for path in _all_paths(source) if path.startswith(b"wide/")]
    top = _expected(source, place, [b"0/", *wide])
    manifest = place + b"/manifest"
    assert run_fsum(ONE, "-o", manifest, top).code == 0
    here = b"0/directory of some length "
    shutil.rmtree(top + b"/" + here + b"2")
    os.unlink(top + b"/" + here + b"3/file of some length 1")
    write_file(top + b"/" + here + b"4/new", b"new")
    for name in (b"5/file of some length 1", b"6/file of some length 1"):  # the second: not listed
        with open(top + b"/" + here + name, "wb") as stream:
            stream.write(b"other")
    os.unlink(top + b"/wide/one of many names, none of them short, 7")
    paths = [here + name for name in (b"2/" + ODD, b"4/new", b"5/file of some length 1")]
    paths += [here + b"3/file of some length %d" % number for number in range(3)]
    paths += [b"wide/one of many names, none of them short, %d" % n for n in range(2500)]
    arguments: list[str | bytes] = ["--check", manifest, *how, "-0", "--files-from"]
    checked = run_fsum(launcher, *arguments, _list(place, paths))
    assert checked.code == 3, checked.said
    assert checked.out.decode().splitlines() == [
        f"missing  {here.decode()}2/",
        f"missing  {here.decode()}3/file of some length 1",
        f"new  {here.decode()}4/new",
        f"changed  {here.decode()}5/file of some length 1",
        "missing  wide/one of many names, none of them short, 7",
    ]
    checked = run_fsum(launcher, *arguments, _list(place, [b"0/no", here + b"2/no"]))
    assert checked.code == 3
    assert "cannot open" in checked.said
    assert "0/no" in checked.said


@some_launchers
def test_all_listed_entries_are_accounted_for(
    launcher: Launcher, source: bytes, place: bytes
) -> None:
    """Missing paths fail one by one; there is no signature then, and everything else is read."""
    paths = [path for path in _all_paths(source) if path.startswith(b"wide/")]
    missing = [b"wide/missing %d" % number for number in range(700)]
    missing += [b"nowhere/at/all", b"0/directory of some length 1/no/such"]
    result = place + b"/result"
    listed = _list(place, paths + missing)
    finished = run_fsum(launcher, "-0", "--files-from", listed, "--json", result, source)
    summary = document(result)
    assert (finished.code, finished.out) == (1, b""), finished.said
    assert "702 failures" in finished.said
    # The root, wide, 0 and its directories on the way to a listed entry.
    assert (summary["failed"], summary["entries"]) == (702, len(paths) + 4)


@some_launchers
def test_rules_exclude_listed_entries(launcher: Launcher, source: bytes, place: bytes) -> None:
    paths = _random_paths(_all_paths(source), 4, 0.8)
    selected = [p for p in paths if not p.startswith(b"2/") and p != b"2" and b"1" not in p[-1:]]
    selected = [p for p in selected if not any(part.endswith(b"1") for part in p.split(b"/"))]
    wanted = signature_of(_expected(source, place, selected))
    rules = ["--exclude=*1", "--exclude=/2/"]
    found = signed(launcher, *rules, "-0", "--files-from", _list(place, paths), source)
    assert found == [wanted]


@every_launcher
def test_lists_of_digests_contain_listed_files(
    launcher: Launcher, source: bytes, place: bytes
) -> None:
    paths = [
        path for path in _random_paths(_all_paths(source), 5, 0.7) if not path.endswith(b"pipe")
    ]
    top = _expected(source, place, paths)
    sums = ["--format=coreutils", "-a", "md5"]
    finished = run_fsum(launcher, *sums, "-0", "--files-from", _list(place, paths), source)
    assert finished.code == 0, finished.said
    everything = run_fsum(ONE, *sums, top)
    assert finished.out.replace(source, top) == everything.out
    assert len(finished.out) > 100_000
    rules = ["--exclude=/0/", "--exclude=/wide/"]
    finished = run_fsum(launcher, *sums, *rules, "-0", "--files-from", _list(place, paths), source)
    everything = run_fsum(ONE, *sums, *rules, top)
    assert finished.out.replace(source, top) == everything.out


def test_invalid_options_are_refused(source: bytes, place: bytes) -> None:
    listed = _list(place, [b"1", b"2/../.."])
    refused: list[tuple[list[str | bytes], str]] = [
        (["-0", "--files-from", listed, source], "contains '..'"),
        (["--files-from", listed, source], "NUL"),
        (["--files-from", place + b"/none", source], "No such file"),
        (["--files-from", listed, listed], "--files-from requires one PATH, a directory"),
        (["--files-from", listed, source, place], "--files-from requires one PATH, a directory"),
        (["-r", source], "--files-from"),
        (["-0", source], "--null"),
    ]
    for arguments, said in refused:
        finished = run_fsum(FOUR, *arguments)
        assert (finished.code, finished.out) == (2, b"")
        assert said in finished.said
