"""`--list-out`: the copied entries in the format of `--files-from`, which reproduces the copy."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from .judge import METADATA, differences
from .running import FOUR, TWO, Launcher, launchers, run_fcp
from .trees import MIB, content, make_directory, write_file

ODD = (b"#comment", b";other", b" blank ", b"a\\b", b"*?[x]", b"\xff\xfe", b"-n", b"tab\t", b"\r")
LINES = b"two\nlines"


def _build(root: bytes, odd: Sequence[bytes]) -> bytes:
    for above in (b"", b"deep/#folder", b"\xff/empty"):
        folder = make_directory(root, above)
        for name in odd:
            write_file(folder + b"/" + name, name)
            os.symlink(name, folder + b"/link to " + name)
        write_file(folder + b"/large", content(above.hex(), 5 * MIB))
        if above:
            os.link(root + b"/" + odd[0], folder + b"/hard")
    os.mkfifo(root + b"/fifo")
    os.mkdir(root + b"/\xff/empty/folder")
    return root


def _entries(root: bytes) -> set[bytes]:
    found = {b"."}
    for folder, *kinds in os.walk(root):
        for names in kinds:
            found.update(os.path.relpath(os.path.join(folder, name), root) for name in names)
    return found


def _listed(path: bytes, end: bytes) -> list[bytes]:
    with open(path, "rb") as stream:
        text = stream.read()
    assert not text or text.endswith(end)
    return [word.removeprefix(b"./") for word in text.split(end)[:-1]]


@pytest.mark.parametrize("launcher", launchers([1, 4], [3]))
@pytest.mark.parametrize("null", [False, True])
def test_a_list_reproduces_the_copy(launcher: Launcher, null: bool, place: bytes) -> None:
    odd = (*ODD, LINES) if null else ODD
    source, paths = _build(place + b"/source", odd), place + b"/list"
    zero, end = (("-0",), b"\0") if null else ((), b"\n")
    options = ("-a", "--chunksize", "4M", *zero, "--exclude", "deep/*/large")
    first = run_fcp(launcher, *options, "--list-out", paths, source, place + b"/first")
    assert first.code == 0, first.said
    listed = _listed(paths, end)
    assert sorted(listed) == sorted(_entries(place + b"/first"))
    again = ("-a", *zero, "--files-from", paths, "-T", source)
    second = run_fcp(launcher, *again, place + b"/second")
    assert second.code == 0, second.said
    assert "comments" not in second.said
    assert differences(place + b"/first", place + b"/second", METADATA) == []
    planned = run_fcp(launcher, *options, "--dry-run", "--list-out", paths, source, place + b"/new")
    assert planned.code == 0, planned.said
    assert sorted(_listed(paths, end)) == sorted(listed)


def test_only_copied_entries_are_listed(place: bytes) -> None:
    """Kept, failed and excluded entries are omitted."""
    source, target, paths = _build(place + b"/source", ODD), place + b"/copy", place + b"/list"
    assert run_fcp(FOUR, "-a", source, target).code == 0
    os.mkdir(source + b"/new")
    write_file(source + b"/new/file", b"new")
    os.unlink(target + b"/tab\t")
    os.mkdir(target + b"/tab\t")
    done = run_fcp(FOUR, "-n", "--list-out", paths, "-T", source, target)
    assert done.code == 1, done.said
    folders = {b".", b"deep", b"deep/#folder", b"\xff", b"\xff/empty", b"\xff/empty/folder"}
    assert set(_listed(paths, b"\n")) == {*folders, b"new", b"new/file"}


def test_a_newline_in_a_path_does_not_end_a_line(place: bytes) -> None:
    source, paths = _build(place + b"/source", (*ODD, LINES)), place + b"/list"
    done = run_fcp(TWO, "-a", "--list-out", paths, source, place + b"/copy")
    assert done.code == 1, done.said
    missing = (
        "fcp: --list-out: 6 entries are missing from the list: newline in the path; add --null"
    )
    assert missing in done.said
    everything = _entries(place + b"/copy")
    assert set(_listed(paths, b"\n")) == {path for path in everything if b"\n" not in path}


@pytest.mark.parametrize("case", ["two", "file", "verify"])
def test_refused_lists(case: str, place: bytes) -> None:
    source = _build(place + b"/source", ODD)
    cases: dict[str, list[str | bytes]] = {"two": [place + b"/other"], "verify": ["--verify"]}
    more = cases.get(case, [])
    os.mkdir(place + b"/other")
    os.mkdir(place + b"/into")
    given = source + b"/large" if case == "file" else source
    paths = place + b"/list"
    refused = run_fcp(TWO, "--list-out", paths, *more, given, place + b"/into")
    assert refused.code == 2, refused.said
    said = (
        "cannot be combined with --verify"
        if case == "verify"
        else "requires exactly one SRC, which must be a directory"
    )
    assert f"--list-out {said}" in refused.said
    assert not os.path.exists(paths)
    assert os.listdir(place + b"/into") == []
