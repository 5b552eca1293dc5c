"""Profiles and their parts: bins, bounded tables, merging in any order."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.tools.fprof.profile import model as profiles
from pcircle.tools.fprof.profile.collect import FACETS, Collector, FileBatch, extension_of
from pcircle.tools.fprof.profile.model import (
    Best,
    DirectoryRow,
    Profile,
    Sums,
    by_number,
    by_sense,
    merge,
)
from pcircle.tools.fprof.profile.sizes import (
    RELATIVE_ERROR,
    bin_of,
    edge_of,
    is_edge,
    octave_of,
    quantile,
    rebin,
    standard_edges,
)

sizes = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**62),
    st.builds(lambda power, more: 2**power + more, st.integers(2, 61), st.integers(-1, 1)),
)


# ---- bins ----------------------------------------------------------------------------


@given(sizes)
def test_a_size_is_in_the_bin_between_two_edges(size: int) -> None:
    number = bin_of(size)
    assert size <= edge_of(number)
    assert number == 0 or size > edge_of(number - 1)


@given(sizes, sizes)
def test_bins_are_in_the_order_of_sizes(one: int, other: int) -> None:
    assert (bin_of(one) <= bin_of(other)) or one > other


def test_powers_of_two_and_small_sizes_are_edges() -> None:
    assert all(is_edge(size) for size in [*range(129), *(2**power for power in range(62))])
    assert not is_edge(1_000_001)


@given(st.lists(sizes, min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_is_within_its_error(drawn_sizes: list[int], share: float) -> None:
    numbers: dict[int, int] = {}
    for size in drawn_sizes:
        numbers[bin_of(size)] = numbers.get(bin_of(size), 0) + 1
    right = sorted(drawn_sizes)[
        max(1, -(-len(drawn_sizes) * round(share * 1_000_000) // 1_000_000)) - 1
    ]
    found = quantile(numbers, share)
    assert found is not None
    assert abs(found - right) <= RELATIVE_ERROR * right + 0.5


def test_no_files_have_no_quantile() -> None:
    assert quantile({}, 0.5) is None


@given(st.lists(sizes), st.sampled_from(["log2", "pow4", ""]))
def test_histograms_are_exact_for_the_bins(drawn_sizes: list[int], kind: str) -> None:
    tallies: dict[int, list[int]] = {}
    for size in drawn_sizes:
        tally = tallies.setdefault(bin_of(size), [0, 0])
        tally[0] += 1
        tally[1] += size
    edges = standard_edges(kind, max(drawn_sizes, default=0))
    rows = rebin(tallies, edges)
    below = -1
    for row, edge in zip(rows, edges, strict=False):
        inside = [size for size in drawn_sizes if below < size <= edge]
        assert (row or [0, 0]) == [len(inside), sum(inside)]
        below = edge
    assert not rows[-1] or rows[-1] == [0, 0]


def test_octaves() -> None:
    assert [octave_of(size) for size in (0, 1, 2, 3, 4, 5, 1024, 1025)] == [
        0, 1, 2, 3, 3, 4, 11, 12,
    ]  # fmt: skip


# ---- tables --------------------------------------------------------------------------


@given(st.lists(st.integers(0, 100)), st.integers(0, 5), st.integers(0, 100))
def test_the_largest_entries_do_not_depend_on_the_parts(
    ranked: list[int], most: int, cut: int
) -> None:
    parts = ranked[:cut], ranked[cut:]
    best: Best[int] = Best(most, lambda value: (-value,))
    for part in parts:
        one: Best[int] = Best(most, lambda value: (-value,))
        for value in part:
            if -value <= one.floor:
                one.add(value)
        best.update(one.rows())
    assert best.rows() == sorted(ranked, reverse=True)[:most]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9))), st.integers(1, 6))
def test_sums_of_bounded_keys_are_complete(rows: list[tuple[int, int]], most: int) -> None:
    table: Sums[int] = Sums(most, by_number)
    for key, size in rows:
        table.add(key, 1, size, 2 * size)
    table.cut()
    kept_keys = sorted({key for key, _ in rows})[:most]
    for key in kept_keys:
        inside = [size for k, size in rows if k == key]
        assert table.tallies[key] == [len(inside), sum(inside), 2 * sum(inside)]
    assert sorted(table.tallies) == kept_keys
    assert table.other[0] == sum(key not in kept_keys for key, _ in rows)


def test_the_least_useful_extensions_are_dropped_first() -> None:
    order = sorted(["h5", "0001", "txt", "chunk12", "c", "verylongone"], key=by_sense)
    assert order == ["c", "txt", "verylongone", "h5", "0001", "chunk12"]
    names = ["a.TXT", ".profile", "a", "a.b.c", "x." + "y" * 30, "x.\x01", "x.é", "x."]
    assert [extension_of(name.encode()) for name in names] == ["txt", "", "", "c", "", "", "", ""]


# ---- merging -------------------------------------------------------------------------


class Column:
    """A replacement of the kernel's results: the same columns, for invented files."""

    def __init__(self, files: Sequence[tuple[int, ...]]) -> None:
        names = ("size", "blocks", "uid", "gid", "mtime", "links")
        self._columns = {name: [file[at] for file in files] for at, name in enumerate(names)}

    def column(self, name: str, start: int, stop: int) -> list[int]:
        return self._columns[name][start:stop]

    def has_single_names(self, start: int, stop: int) -> bool:
        return max(self._columns["links"][start:stop]) == 1


file = st.tuples(
    st.integers(0, 10**7),
    st.integers(0, 10**4),
    st.integers(0, 40),
    st.integers(0, 3),
    st.integers(-(10**6), 2 * 10**9),
    st.just(1),
)
extension = st.sampled_from(["txt", "h5", "c", "1", "2", "3", "long", ""])
directory = st.tuples(
    st.text("abc/", max_size=6), st.lists(st.tuples(file, extension), min_size=1, max_size=8)
)


def collected(directories: Sequence[tuple[str, list[tuple[tuple[int, ...], str]]]]) -> Profile:
    """Return the profile of these directories, computed by the code of a walk."""
    collector = Collector(FACETS, 3, (1000, 10**6))
    for path, files in directories:
        names = [
            b"%d.%b" % (number, extension.encode()) for number, (_, extension) in enumerate(files)
        ]
        where = (0, path.encode(), path.count("/"))
        columns = Column([attributes for attributes, _ in files])
        block = FileBatch(columns, names, where)  # type: ignore[arg-type]
        total, claims = collector.files(block)
        assert not claims
        collector.directory(
            DirectoryRow(0, path.encode(), 1, len(files) + 1, total, len(files), total)
        )
    made = collector.end((b"/tree",))
    made.taken_s = 0
    return made


def known(profile: Profile) -> bytes:
    """Return the whole profile in a canonical order."""
    plain = msgspec.json.decode(msgspec.json.encode(profile))
    return msgspec.json.encode(plain, order="deterministic")


@given(st.lists(directory, max_size=12), st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_merged_profiles_equal_a_whole_profile(
    directories: list[tuple[str, list[tuple[tuple[int, ...], str]]]], owners: list[int]
) -> None:
    """This holds for any order and grouping, with tables so small that they overflow."""
    with pytest.MonkeyPatch.context() as patch:
        for name, most in (("MAX_OWNERS", 4), ("MAX_EXTENSIONS", 3)):
            patch.setattr(f"pcircle.tools.fprof.profile.collect.{name}", most)
        bounded = tuple((name, min(most, 4 if name != "extensions" else 3), rank)
                        for name, most, rank in profiles._BOUNDED)  # fmt: skip
        patch.setattr(profiles, "_BOUNDED", bounded)
        lists = {name: (order, most and 3) for name, (order, most) in
                 profiles.DIRECTORY_LISTS.items()}  # fmt: skip
        patch.setattr(profiles, "DIRECTORY_LISTS", lists)
        patch.setattr("pcircle.tools.fprof.profile.collect.DIRECTORY_LISTS", lists)
        whole = known(collected(directories))
        parts = [
            collected([d for d, owner in zip(directories, owners, strict=False) if owner == part])
            for part in range(3)
        ]
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            *_, merged = accumulate((copy.deepcopy(parts[number]) for number in order), merge)
            assert known(merged) == whole
        a, b, c = (copy.deepcopy(part) for part in parts)
        assert known(merge(a, merge(b, c))) == whole


def test_layouts_are_bounded_and_complete() -> None:
    """There may be as many layouts as files, because each file may have its own."""
    parts = []
    for part in range(3):
        parts.append(collected([]))
        parts[-1].stripes = {f"{n} x {part}": [1, n, 2 * n] for n in range(1, 3000)}
    *_, merged = accumulate(copy.deepcopy(parts), merge)
    *_, other_way = accumulate(copy.deepcopy(parts[::-1]), merge)
    assert known(merged) == known(other_way)
    assert len(merged.stripes) == profiles.MAX_LAYOUTS
    whole = [*merged.stripes.values(), merged.other_stripes]
    assert [sum(column) for column in zip(*whole, strict=True)] == [
        3 * sum(number) for number in ([1] * 2999, range(3000), range(0, 6000, 2))
    ]


def test_merging_profiles_of_other_roots_names_both() -> None:
    first = collected([("a", [((5, 1, 0, 0, 0, 1), "txt")])])
    second = collected([("b", [((7, 1, 0, 0, 0, 1), "txt")])])
    second.roots = (b"/other",)
    one, other = merge(*copy.deepcopy((first, second))), merge(*copy.deepcopy((second, first)))
    assert known(one) == known(other)
    assert one.roots == (b"/other", b"/tree")
    assert [(row.root, row.path) for row in one.largest] == [(0, b"b/0.txt"), (1, b"a/0.txt")]
