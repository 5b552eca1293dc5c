"""Sizes and durations: accepted and refused texts; displayed values can be parsed back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.core import units
from pcircle.core.errors import UsageError

BINARY = {"k": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64k", 65536),
        ("64K", 65536),
        ("1M", 1 << 20),
        ("1MiB", 1 << 20),
        ("1mib", 1 << 20),
        ("2GB", 2_000_000_000),
        ("5kB", 5000),
        ("5kb", 5000),
        ("12B", 12),
        ("1.5G", 3 << 29),
        ("0.3k", 307),
        (" 1.0 KiB ", 1024),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "k",
        "-1",
        "+1",
        "1.",
        ".5",
        "1e3",
        "1  k",
        "1kk",
        "1kBB",
        "0x10",
        "1_000",
        "\u0661",
        "1,5",
        "9223372036854775808",
        "8E",
        "1" * 31,
        "nan",
        "inf",
    ],
)
def test_invalid_sizes_are_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="size") as caught:
        units.parse_size(text)
    assert repr(text) in str(caught.value)


@given(st.integers(0, 2**63 - 1))
def test_plain_bytes_are_exact(size_bytes: int) -> None:
    assert units.parse_size(str(size_bytes)) == size_bytes


@given(st.sampled_from(sorted(BINARY)), st.integers(0, 7), st.sampled_from(["", "iB"]))
def test_binary_units_are_exact(unit: str, count: int, suffix: str) -> None:
    assert units.parse_size(f"{count}{unit}{suffix}") == count << BINARY[unit]


@given(st.integers(0, 2**60))
def test_a_shown_size_is_read_back_within_its_last_digit(size_bytes: int) -> None:
    text = units.format_size(size_bytes)
    value, unit = text.split(" ")
    assert float(value) < 1024
    assert float(value) >= 1 or size_bytes == 0
    resolution_bytes = units.parse_size(f"1 {unit}") / 20 if unit != "B" else 0
    assert abs(units.parse_size(text) - size_bytes) <= resolution_bytes + 1


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1023 * 1024 + 900, "1023.9 KiB"),
        (1 << 73, "8192.0 EiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes_are_shown(size_bytes: int, text: str) -> None:
    assert units.format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("30", 30.0),
        ("0.5s", 0.5),
        ("250ms", 0.25),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1.5H", 5400.0),
        ("1h30m", 5400.0),
        ("1d 2h", 93600.0),
        (" 7 ", 7.0),
        ("0", 0.0),
    ],
)
def test_durations_are_read(text: str, duration_s: float) -> None:
    assert units.parse_duration(text) == duration_s


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "1 s s", "1e3", "nan", "inf", "1x", "5m3", "m5", "1..5s", "\u0663s"]
)
def test_invalid_durations_are_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration") as caught:
        units.parse_duration(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "x", "1_000", "0x10", "\u0663", "\uff11\uff10"])
def test_numbers_consist_of_ascii_digits(text: str) -> None:
    """`float` and `int` also read other digits, and underscores between digits."""
    with pytest.raises(ValueError, match="must be a number"):
        units.parse_number(text)
    with pytest.raises(UsageError, match="must be a positive integer"):
        units.positive("--option", text)


@given(st.floats(0, 1e9))
def test_a_shown_duration_is_read_back(duration_s: float) -> None:
    text = units.format_duration(duration_s)
    # The coarsest unit is the hour for a day: half of it is a 48th.
    assert math.isclose(units.parse_duration(text), duration_s, rel_tol=1 / 47, abs_tol=0.0051)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0, "0.00s"),
        (0.214, "0.21s"),
        (9.994, "9.99s"),
        (9.996, "10.0s"),
        (59.94, "59.9s"),
        (59.96, "1m00s"),
        (303.2, "5m03s"),
        (3599.6, "1h00m"),
        (7512, "2h05m"),
        (86_390, "1d00h"),
        (273_600, "3d04h"),
        (-3.0, "-3.00s"),
        (math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_durations_are_shown(duration_s: float, text: str) -> None:
    assert units.format_duration(duration_s) == text


def test_rates_and_counts_are_shown() -> None:
    assert units.format_rate(1.5 * (1 << 20)) == "1.5 MiB/s"
    assert units.format_rate(0.2) == "0 B/s"
    assert units.format_rate(math.inf) == "?"
    assert units.format_count(1234567) == "1,234,567"
    assert units.format_count(999) == "999"
