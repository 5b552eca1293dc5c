"""Modes, owners, sizes and times as text, compared with ls itself."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pcircle.cli.listing import Modes, Times, groups, human, users
from pcircle.core.errors import UsageError

_ENVIRONMENT = {**os.environ, "LC_ALL": "C", "TZ": "Europe/Berlin"}
# Times before the epoch, in winter and summer, on both sides of half a year ago.
_SECONDS = (-2, 0, 951_827_696, 1_750_000_000, 4_000_000_000)


def _lines(*command: str) -> list[str]:
    done = subprocess.run(
        command, env=_ENVIRONMENT, capture_output=True, check=True, errors="surrogateescape"
    )
    return done.stdout.splitlines()


def test_modes_are_those_of_ls(tmp_path: Path) -> None:
    modes = (0o1777, 0o1776, 0o4755, 0o4644, 0o2755, 0o2745, 0, 0o7777)
    for number, mode in enumerate(modes):
        for path in (tmp_path / f"d{number}", tmp_path / f"f{number}"):
            path.mkdir() if path.name[0] == "d" else path.touch()
            path.chmod(mode)
    os.symlink("nowhere", tmp_path / "l")
    os.mkfifo(tmp_path / "p")
    names = sorted(os.listdir(tmp_path))
    said = [line.split()[0] for line in _lines("ls", "-l", str(tmp_path))[1:]]
    known = Modes()
    found = [known[(tmp_path / name).lstat().st_mode].decode() for name in names]
    assert found == [shown_mode.rstrip("+.") for shown_mode in said]


def test_owners_have_names_or_numbers() -> None:
    unknown = 3_999_999_991
    assert users()[0] == b"root"
    assert groups()[0] == b"root"
    assert users()[unknown] == groups()[unknown] == b"%d" % unknown
    assert users(numeric=True)[0] == groups(numeric=True)[0] == b"0"


def test_sizes_are_rounded_as_ls_does(tmp_path: Path) -> None:
    near = [around * 1024**power // 10 for power in (1, 2, 3) for around in (10, 99, 100, 10230)]
    sizes = sorted({max(0, size + more) for size in near for more in (-1025, -1, 0, 1, 1025)})
    for number, size in enumerate(sizes):
        with (tmp_path / f"{number:05}").open("wb") as file:
            file.truncate(size)
    said = [line.split()[4] for line in _lines("ls", "-lh", str(tmp_path))[1:]]
    assert [human(size).decode() for size in sizes] == said


@pytest.mark.parametrize(
    "style", ["full-iso", "long-iso", "iso", "locale", "+%d.%N %% %%N %j", "+%H\n%Y"]
)
def test_times_are_formatted_as_ls_does(
    tmp_path: Path, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time_ns() // 10**9
    seconds = [*_SECONDS, now_s - 9, now_s + 900, now_s - 15_000_000, now_s - 16_000_000]
    for number, second in enumerate(seconds):
        path = tmp_path / f"{number:03}"
        path.touch()
        os.utime(path, ns=(0, second * 10**9 + 123_456_789))
    monkeypatch.setenv("TZ", _ENVIRONMENT["TZ"])
    time.tzset()
    try:
        said = _lines("ls", "-go", f"--time-style={style}", str(tmp_path))[1:]
        times = Times(style, time.time_ns())
        for number, second in enumerate(seconds):
            text = times.text(second * 10**9 + 123_456_789).decode()
            assert said[number].endswith(f" 0 {text} {number:03}"), (said[number], text)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_after_the_start_are_recent_once_they_have_passed() -> None:
    now_ns = time.time_ns()
    start_ns, changed_ns, future_ns = now_ns - 60 * 10**9, now_ns - 30 * 10**9, now_ns + 900 * 10**9
    times, later = Times("locale", start_ns), Times("locale", now_ns)
    assert times.text(changed_ns) == later.text(changed_ns)
    assert b":" in times.text(changed_ns)
    assert b":" not in times.text(future_ns)
    _, older, *_ = times.change
    assert older(changed_ns // 10**9) == later.text(changed_ns)


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown time style 'fancy'; choose from locale, "):
        Times("fancy", 0)
