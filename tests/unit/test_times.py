"""Times in options, and the command to run next in the syntax of the shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pcircle.cli.arguments import Parser, command
from pcircle.cli.declarations import Section
from pcircle.cli.option_values import date_s, next_clock_s
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.runtime import TimeLimit

NOON_S = 1_796_040_000  # 2026-11-30, in UTC


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30",
        "2026-11-30 12:00",
        "2026-11-30T09:05",
        "2026-02-01T9:05",
        "2026-07-01 23:59:58",
    ],
)
def test_local_dates_are_those_of_date(zone: str, text: str) -> None:
    """The reference is GNU date."""
    said = subprocess.run(["date", "-d", text, "+%s"], check=True, capture_output=True)
    assert date_s("--x", text) == int(said.stdout), zone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@0", 0.0),
        ("@1796040000.25", NOON_S + 0.25),
        ("@-5", -5.0),
        ("2026-11-30T12:00Z", NOON_S),
        ("2026-11-30T13:00+01:00", NOON_S),
        ("2026-11-30 13:00:00+0100", NOON_S),
        ("2026-11-30T07:00-05:00", NOON_S),
    ],
)
def test_dates_with_a_zone(zone: str, text: str, expected: float) -> None:
    assert date_s("--x", text) == expected, zone


@pytest.mark.parametrize(
    "text", ["", "now", "2026-13-01", "2026-02-30", "30.11.2026", "@", "@x", "12:00", "20261130"]
)
def test_invalid_dates(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"--x: invalid value '.*': expected a value such as 2026-11-30"
    ):
        date_s("--x", text)


@pytest.mark.parametrize(("hour", "later_s"), [("12:00", 86400), ("12:01", 60), ("11:59", 86340)])
def test_a_clock_means_the_next_time_it_shows_that(hour: str, later_s: int, zone: str) -> None:
    noon_s = date_s("--x", "2026-06-10 12:00")
    assert next_clock_s(hour, noon_s) == noon_s + later_s, zone


class _StopOptions(CommonOptions):
    _section = Section("Limits")
    _stop = CommonOptions.STOP


def _limit(*words: str) -> TimeLimit | None:
    parser = Parser("t", "t", "", "")
    _StopOptions.add_to(parser)
    return _StopOptions.of(parser.parse_args(words)).time_limit()


def test_limits() -> None:
    assert _limit() is None
    before_s = time.monotonic()
    limit = _limit("--stop-after=1h30m")
    assert limit is not None
    assert limit.at_s >= before_s + 5400
    assert limit.reason == "time limit reached (--stop-after 1h30m)"
    limit = _limit("--stop-at=2199-01-01T00:00Z")
    assert limit is not None
    assert limit.at_s > before_s + 5400


@pytest.mark.parametrize(
    ("after", "at", "said"),
    [
        ("0", None, "--stop-after: invalid value '0': must be greater than 0"),
        ("soon", None, "--stop-after: invalid duration 'soon'"),
        (None, "2020-01-01", "--stop-at: invalid value '2020-01-01': must be in the future"),
        (None, "25:00", "--stop-at: invalid value '25:00': expected a value such as"),
        ("1", "12:00", "--stop-after cannot be combined with --stop-at"),
    ],
)
def test_refused_limits(after: str | None, at: str | None, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        _limit(*[f"--stop-after={after}"] * bool(after), *[f"--stop-at={at}"] * bool(at))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", "b"], "t --resume a b"),
        (["--resume", "a", "b"], "t --resume a b"),
        (["--restart", "-p", "a", "b"], "t --resume -p a b"),
        (["--stop-at", "12:00", "a", "--stop-at=13:00", "b"], "t --resume a b"),
        (["a", "--", "--resume", "--stop-at"], "t --resume a -- --resume --stop-at"),
        (["a b", "c\nd", "it's"], "t --resume 'a b' $'c\\x0ad' 'it'\"'\"'s'"),
    ],
)
def test_the_command_to_run_next(words: list[str], expected: str) -> None:
    found = command("t", words, add="--resume", drop=("--restart",), drop_valued=("--stop-at",))
    assert found == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@given(st.lists(st.binary(max_size=9).filter(lambda b: b"\0" not in b), max_size=4))
@example([b"\xff'\\n\n\t", b"", b"\xc2\x85\\", "\u202e€\U0001f600".encode()])
def test_a_shell_reads_the_words_that_were_typed(words: list[bytes]) -> None:
    shell_line = command("t", [os.fsdecode(word) for word in words])
    assert shell_line.isprintable()
    program = f"t() {{ printf '%s\\0' \"$@\"; }}; {shell_line}"
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", program], check=True, capture_output=True, env=environment)
    assert done.stdout == b"".join(word + b"\0" for word in words or [b""])
