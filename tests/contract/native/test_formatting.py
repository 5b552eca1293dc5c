"""Text of many entries: the contract of the C module and its equivalent."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from pcircle.fs.native import interface, pure
from pcircle.fs.native.interface import AS_IS, AS_NUMBERS, LEFT, OF_BODY, OF_EACH, OF_NAME, RIGHT
from pcircle.fs.stats import PLACE_OF
from tests.contract.native.test_native import module

__all__ = ["module"]  # a fixture

NAME = (OF_NAME, AS_IS, None)
SIZE, INODE, MTIME, BLOCKS = map(PLACE_OF.__getitem__, ("size", "inode", "mtime", "blocks"))


def table(count: int, **columns: Sequence[int]) -> bytes:
    """Return a table in which these columns have numbers, and the others zeros."""
    made = array("q")
    for name in interface.COLUMNS:
        values = columns.get(name, [0] * count)
        made.extend(n - (1 << 64) if n > interface.UNTRIED + (1 << 64) - 1 else n for n in values)
    return made.tobytes()


def text(names: Sequence[bytes]) -> bytes:
    """Return names in the format that the functions take."""
    return b"".join(name + b"\0" for name in names)


def formatted(
    module: ModuleType,
    data: bytes,
    names: Sequence[bytes],
    fields: Sequence[Any],
    counts: list[int] | None = None,
    order: list[int] | None = None,
    total: int = -1,
) -> list[bytes]:
    """Format entries with a common body, or with `counts`."""
    counts = [len(names) if order is None else len(order)] if counts is None else counts
    made: list[bytes] = module.format_entries(
        data, text(names), counts, order, list(fields), total, b"total %d\n".__mod__
    )
    return made


def test_names_are_formatted_between_common_and_separate_texts(module: ModuleType) -> None:
    names = [b"a", b"b\xff\n", b"%d", b"c"]
    fields = [b"<%", (OF_BODY, AS_IS, [b"x/", b"", b"y/"]), NAME, b">"]
    found = formatted(module, b"", names, fields, [3, 0, 1])
    assert found == [b"<%x/a><%x/b\xff\n><%x/%d>", b"", b"<%y/c>"]


def test_columns_are_as_wide_as_the_widest_of_their_body(module: ModuleType) -> None:
    names = [b"a", b"b", b"c"]
    data = table(3, size=[7, 12345, 1], uid=[1, 2, 3])
    owners = {1: b"root", 2: b"1000", 3: b"me"}.__getitem__
    fields = [
        *((SIZE, RIGHT, None), b"|", (SIZE, LEFT, None), b"|"),
        *((PLACE_OF["uid"], AS_NUMBERS, owners), b"|", (SIZE, AS_IS, None), b" ", NAME, b"\n"),
    ]
    first = b"    7|7    |root|7 a\n12345|12345|1000|12345 b\n"
    assert formatted(module, data, names, fields, [2, 1]) == [first, b"1|1|me|1 c\n"]
    owners = {1: b"longer", 2: b"1000", 3: b""}.__getitem__
    fields = [(PLACE_OF["uid"], AS_NUMBERS, owners), b"|"]
    assert formatted(module, data, names, fields) == [b"longer|  1000|      |"]


def test_numbers_of_signed_columns_have_a_sign(module: ModuleType) -> None:
    values = [0, 9, 10, -1, (1 << 63) - 1, -(1 << 63), 1 << 63, (1 << 64) - 1]
    names = [b"n"] * len(values)
    data = table(len(values), size=values, inode=values)
    (found,) = formatted(module, data, names, [(SIZE, AS_IS, None), b" "])
    assert list(map(int, found.split())) == [*values[:6], -(1 << 63), -1]
    (found,) = formatted(module, data, names, [(INODE, AS_IS, None), b" "])
    assert list(map(int, found.split())) == [value % (1 << 64) for value in values]


def test_each_value_gets_its_own_text(module: ModuleType) -> None:
    values = [5, 5, 69, 5, 133, -5, 5]
    names = [b"n"] * len(values)
    fields = [(SIZE, AS_IS, b"<%d>".__mod__)]
    (found,) = formatted(module, table(len(values), size=values), names, fields)
    assert found == b"<5><5><69><5><133><-5><5>"


def test_times_are_templates_of_two_kinds(module: ModuleType) -> None:
    seconds = [100, 100, 101, 200, 200, 99, 150, 201]
    parts = [0, 1, 7, 0, 5, 999_999_999, 123_456_789, 0]
    names = [b"n"] * len(seconds)
    data = table(len(names), mtime=seconds, mtime_ns=parts)
    change = (b"new %d.%%09d %%%%09d;".__mod__, b"old %d%%%%;".__mod__, 100, 0, 200, 4)
    (found,) = formatted(module, data, names, [(MTIME, AS_IS, change)])
    assert found.split(b";")[:-1] == [
        *(b"old 100%", b"new 100.000000001 %09d", b"new 101.000000007 %09d"),
        *(b"new 200.000000000 %09d", b"old 200%", b"old 99%"),
        *(b"new 150.123456789 %09d", b"old 201%"),
    ]
    change = (b"%d.%%09d.%%09d".__mod__,) * 2 + (100, 0, 200, 4)
    (found,) = formatted(module, data[:], names, [(MTIME, AS_IS, change)], [1], [1])
    assert found == b"100.000000001.000000001"


def test_entries_may_be_sorted_and_omitted(module: ModuleType) -> None:
    names = [b"a", b"b", b"c", b"d"]
    data = table(4, size=[1, 2, 3, 4], blocks=[10, 20, 30, 40])
    fields = [(SIZE, RIGHT, None), (OF_EACH, LEFT, [b"A", b"B", b"C", b"DD"]), NAME, b"\n"]
    found = formatted(module, data, names, fields, [2, 1], [3, 1, 0], BLOCKS)
    assert found == [b"total 60\n4DDd\n2B b\n", b"total 10\n1Aa\n"]
    assert formatted(module, data, names, fields, [0], [], BLOCKS) == [b"total 0\n"]


def test_empty_input_has_no_text(module: ModuleType) -> None:
    assert formatted(module, b"", [], [NAME], []) == []
    assert formatted(module, b"", [], [NAME, b"\n"], [0, 0]) == [b"", b""]
    assert formatted(module, b"", [], [], [0], total=BLOCKS) == [b"total 0\n"]
    assert formatted(module, b"", [b"a"], []) == [b""]
    change = (b"%d".__mod__,) * 2 + (100, 0, 200, 4)
    of_columns = [(SIZE, RIGHT, None), (MTIME, AS_IS, change), (SIZE, LEFT, b"%d".__mod__)]
    assert formatted(module, b"", [], of_columns, [0]) == [b""]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((b"", b"a", [1], None, [], -1, None), ValueError),  # no NUL
        ((b"", b"a\0", [2], None, [], -1, None), ValueError),
        ((b"", b"a\0", [0], None, [], -1, None), ValueError),
        ((b"", b"a\0", [2, -1], None, [], -1, None), (ValueError, OverflowError)),
        ((b"", b"a\0b\0", [1], [2], [NAME], -1, None), (ValueError, IndexError)),
        ((b"", b"a\0b\0", [1], [-1], [NAME], -1, None), (ValueError, OverflowError)),
        ((b"", b"a\0", [1], None, [(SIZE, AS_IS, None)], -1, None), (ValueError, IndexError)),
        ((b"x" * 128, b"a\0b\0", [2], None, [], -1, None), ValueError),
        ((b"", b"a\0", [1], None, ["a"], -1, None), (TypeError, ValueError)),
        ((b"", b"a\0", [1], None, [(OF_EACH, AS_IS, [])], -1, None), (TypeError, IndexError)),
        ((b"", b"a\0", [1], None, [(OF_EACH, AS_IS, [1])], -1, None), TypeError),
        ((bytes(128), b"a\0", [1], None, [(SIZE, AS_IS, str)], -1, None), TypeError),
        ((bytes(128), b"a\0", [1], None, [(SIZE, AS_IS, {}.__getitem__)], -1, None), KeyError),
        ((bytes(128), b"a\0", [1], None, [NAME], SIZE, {}.__getitem__), KeyError),
    ],
)
def test_invalid_arguments_are_refused(
    module: ModuleType, arguments: tuple[Any, ...], error: Any
) -> None:
    with pytest.raises(error):
        module.format_entries(*arguments)


def test_a_list_that_shrinks_meanwhile_is_an_error(module: ModuleType) -> None:
    texts = [b"a", b"b"]

    def change(number: int) -> bytes:
        texts.clear()
        return b""

    fields = [(SIZE, AS_IS, change), (OF_EACH, AS_IS, texts)]
    with pytest.raises(IndexError):
        formatted(module, table(2), [b"a", b"b"], fields)


def letters(number: int) -> bytes:
    """Return the given number of letters, at most ten."""
    return b"x" * (number % 11)


def test_both_modules_format_random_input_equally(module: ModuleType) -> None:
    chance = random.Random(1)
    for _ in range(200):
        count = chance.randrange(40)
        names = [chance.randbytes(chance.randrange(9)).replace(b"\0", b"n") for _ in range(count)]
        columns = {
            name: [chance.choice((0, 7, chance.randrange(1 << 40))) for _ in range(count)]
            for name in interface.COLUMNS
            if not name.endswith("_ns")
        }
        columns["mtime_ns"] = [chance.randrange(1_000_000_000) for _ in range(count)]
        order = chance.sample(range(count), chance.randrange(count + 1))
        cut = chance.randrange(len(order) + 1)
        change = (b"%d.%%09d".__mod__, b"%d".__mod__, 0, 1, chance.randrange(1 << 40), 0)
        fields: list[Any] = [NAME, b"\n", (MTIME, chance.randrange(4), change)]
        for name in interface.COLUMNS[:10]:
            how = chance.choice((None, b"%x".__mod__, letters))
            fields.insert(0, (PLACE_OF[name], chance.randrange(4), how))
        wanted = (table(count, **columns), text(names), [cut, len(order) - cut], order, fields)
        total = (chance.choice((-1, SIZE)), b"%d;".__mod__)
        assert module.format_entries(*wanted, *total) == pure.format_entries(*wanted, *total)


def test_memory_does_not_grow(module: ModuleType) -> None:
    if module is pure:
        pytest.skip("it is Python")
    import resource

    names, data = text([b"n%d" % n for n in range(500)]), table(500, size=range(500))
    change = (b"%d.%%09d".__mod__, b"%d".__mod__, 0, 1, 9, 0)
    fields = [(SIZE, RIGHT, b"%x".__mod__), (MTIME, AS_IS, change), NAME, b"\n"]
    wrong = [*fields, (SIZE, RIGHT, str)]
    used = 0
    for turn in range(3000):
        module.format_entries(data, names, [500], None, fields, -1, None)
        with pytest.raises(TypeError):
            module.format_entries(data, names, [500], None, wrong, -1, None)
        if turn == 1000:
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 2048
