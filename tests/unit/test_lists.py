"""A sorted and divided list of paths yields each named entry once, in any input order."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.cli.inputs import read_paths
from pcircle.core.errors import UsageError
from pcircle.fs import lists
from pcircle.fs.lists import Lists, NameRecords, SelectedBlock, groups, record_of, sort
from pcircle.fs.scan import PathListSlice

NAMES = st.binary(min_size=1, max_size=3).filter(
    lambda name: not set(name) & set(b"\0/") and name not in (b".", b"..")
)
PATHS = st.lists(
    st.tuples(st.lists(NAMES, min_size=1, max_size=4).map(b"/".join), st.booleans()), max_size=40
)


def _selected(paths: list[tuple[bytes, bool]]) -> set[tuple[bytes, bool]]:
    """Return the paths that a list names, except those below a path named with its subtree."""
    whole = {path for path, deep in paths if deep}

    def is_below(path: bytes) -> bool:
        parts = path.split(b"/")
        return any(b"/".join(parts[:depth]) in whole for depth in range(1, len(parts)))

    return {(path, path in whole) for path, _ in paths if not is_below(path)}


def _walk_text(text: bytes, above: bytes = b"") -> list[tuple[bytes, bool]]:
    found = []
    for group in groups(text, 0, len(text)):
        path = above + group.name
        inner = group.inner()
        if inner is None:
            found.append((path, True))
            continue
        if not group.deeper or group.text().startswith(group.name + b"/"):
            found.append((path, False))
        found += _walk_text(inner.text, path + b"/")
    return found


def _walk(lists: Lists, listed: PathListSlice, above: bytes = b"") -> list[tuple[bytes, bool]]:
    found = []
    for part in lists.portions(listed):
        if isinstance(part, NameRecords):
            path = above + part.name
            if part.text().startswith(part.name + b"/"):
                found.append((path, False))
            found += _walk(lists, part.listed(), path + b"/")
        else:
            found += _walk_text(part, above)
    return found


@pytest.fixture(params=["all at once", "in small pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Low limits exercise each of the code paths."""
    if request.param == "in small pieces":
        monkeypatch.setattr(lists, "_SORT_BYTES", 200)
        monkeypatch.setattr(lists, "_PORTION_BYTES", 8)
        monkeypatch.setattr(lists, "_PORTION_NAMES", 2)


@pytest.mark.usefixtures("pieces")
def test_every_named_path_is_yielded_once() -> None:
    @given(PATHS)
    def check(paths: list[tuple[bytes, bool]]) -> None:
        lists = sort([(0, [record_of(path, whole=deep) for path, deep in paths])])
        (part,) = lists.parts
        found = _walk(lists, part.listed) if part.listed else []
        assert sorted(found) == sorted(_selected(paths))

    check()


@pytest.mark.usefixtures("pieces")
def test_a_large_list_is_divided_where_its_directories_begin() -> None:
    rng = Random(1)
    paths = [
        (b"%d/%d/%d" % (rng.randrange(3), rng.randrange(40), rng.randrange(4000)), False)
        for _ in range(20_000)
    ]
    paths += [(b"%d/%d" % (n % 3, n), n % 2 == 0) for n in range(20)] + [(b"0", False)]
    rng.shuffle(paths)
    lists = sort([(0, (record_of(path, whole=deep) for path, deep in paths))])
    (part,) = lists.parts
    assert part.listed is not None
    assert sorted(_walk(lists, part.listed)) == sorted(_selected(paths))


def test_a_list_may_name_everything() -> None:
    lists = sort([(0, [b"a", record_of(b"./")]), (3, [record_of(b".")]), (4, [])])
    assert [(part.root, part.listed is None) for part in lists.parts] == [
        (0, True),
        (3, False),
        (4, False),
    ]
    for part in lists.parts[1:]:
        assert part.listed is not None
        assert list(lists.portions(part.listed)) == []


def test_the_same_list_in_another_order_has_the_same_digest() -> None:
    one = sort([(0, [b"a", b"b\0c", b"a"])])
    assert one.digest == sort([(0, [b"b\0c", b"a"])]).digest
    assert one.digest != sort([(0, [b"b\0c"])]).digest
    assert one.digest != sort([(1, [b"b\0c", b"a"])]).digest


@pytest.mark.parametrize(
    ("path", "record"),
    [
        (b"a", b"a"),
        (b"./a//b/./c", b"a\0b\0c"),
        (b"a/", b"a\0"),
        (b"a/.", b"a\0"),
        (b".", b""),
        (b"./", b"\0"),
        (b"..a/b..", b"..a\0b.."),
    ],
)
def test_paths_are_normalized(path: bytes, record: bytes) -> None:
    assert record_of(path) == record


@pytest.mark.parametrize("path", [b"/a", b"..", b"a/../b", b"a/..", b"a\0b"])
def test_paths_outside_of_the_root(tmp_path: Path, path: bytes) -> None:
    with pytest.raises(ValueError, match=r"absolute|'\.\.'|NUL"):
        record_of(path)
    name = tmp_path / "list"
    name.write_bytes(b"good\n" + path + b"\n")
    with pytest.raises(UsageError, match=r"number 2 in '.*list'"):
        list(read_paths(str(name), null=False, whole=False))


def test_lists_end_lines_in_two_ways(tmp_path: Path) -> None:
    name = tmp_path / "list"
    name.write_bytes(b"a\n\nb\r\n#c\n;d\n./#c")
    assert list(read_paths(str(name), null=False, whole=False)) == [b"a", b"b\r", b"#c"]
    name.write_bytes(b"a\n\0\0b/\0#c\0")
    assert list(read_paths(str(name), null=True, whole=False)) == [b"a\n", b"b\0", b"#c"]
    name.write_bytes(b"a\n\0\0b/\0")
    assert list(read_paths(str(name), null=True, whole=True)) == [b"a\n\0", b"b\0"]


def test_picked_names_are_sorted_by_kind(tmp_path: Path) -> None:
    for name in ("empty", "some", "whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    os.symlink("some", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    text = b"empty/file/link/missing/pipe/some\0x/some\0y\0z/whole\0/"
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        block = SelectedBlock(fd, text, follow=False)
        followed = SelectedBlock(fd, text, follow=True)
    finally:
        os.close(fd)
    assert sorted(block.directories) == ["empty", "some", "whole"]
    assert block.files == ["file", "missing"]
    assert (block.links, block.specials) == (["link"], ["pipe"])
    assert block.below["empty"] == PathListSlice()
    assert block.below["some"] == PathListSlice(b"x/y\0z/")
    assert block.below["whole"] is None
    assert "link" in followed.directories
