"""Tables, plots and the command line that all the papers' figures share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from examples.papers import output
from examples.papers.command import Figure, main
from examples.papers.output import Series, bar_plot, heat_map, line_plot, write_table

needs_matplotlib = pytest.mark.skipif(not output.can_plot(), reason="matplotlib is not installed")
LABELS = ("servers", "ms")
CURVES = [Series("one", [1.0, 2.0]), Series("two", [2.0, 4.0], [1.5, 3.0], [3.0, 5.0], "s")]


def _lines(path: Path) -> list[Path]:
    return line_plot(path, [1, 10], CURVES, title="t", labels=LABELS, scales=("log", "linear"))


def _bars(path: Path) -> list[Path]:
    return bar_plot(path, ["a", "b"], CURVES, title="t", labels=LABELS)


def _heat(path: Path) -> list[Path]:
    return heat_map(path, [[0, 1], [1000, 10]], title="t", labels=LABELS, unit="bytes")


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.csv"
    assert write_table(path, ["n", "s"], [[1, math.pi * 1000], [2, "a,b"]]) == path
    assert path.read_bytes() == b'n,s\n1,3141.59\n2,"a,b"\n'


@needs_matplotlib
@pytest.mark.parametrize("plot", [_lines, _bars, _heat])
@pytest.mark.parametrize(("ending", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_plot_is_small_and_the_same_again(
    tmp_path: Path, plot: Callable[[Path], list[Path]], ending: str, magic: bytes
) -> None:
    first, second = tmp_path / f"first.{ending}", tmp_path / "new" / f"second.{ending}"
    assert (plot(first), plot(second)) == ([first], [second])
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(magic)
    assert first.stat().st_size < 60_000


def test_a_missing_matplotlib_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "can_plot", lambda: False)
    assert _lines(tmp_path / "plot.svg") == []
    assert "pip install 'pcircle[plot]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _figures(made: list[tuple[str, bool]]) -> list[Figure]:
    def maker(name: str) -> Callable[[Path, bool], Sequence[Path]]:
        def make(out: Path, small: bool) -> Sequence[Path]:
            made.append((name, small))
            return [write_table(out / f"{name}.csv", ["x"], [[1]])]

        return make

    return [Figure(name, f"Title of {name}", 90.0, maker(name)) for name in ("fig1", "fig2")]


def test_the_command_names_its_output_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[tuple[str, bool]] = []
    assert main("paper", _figures(made), ["all", "--out", str(tmp_path)]) == 0
    assert made == [("fig1", False), ("fig2", False)]
    said = capsys.readouterr()
    assert said.out.split() == [str(tmp_path / "fig1.csv"), str(tmp_path / "fig2.csv")]
    assert said.err.splitlines()[-1] == "2 figures: takes about 3 min"
    assert main("paper", _figures(made), ["fig2", "--small", "--out", str(tmp_path)]) == 0
    assert made[2:] == [("fig2", True)]


@pytest.mark.parametrize("words", [[], ["fig3"], ["all", "--small"], ["all", "--x"]])
def test_mistakes_are_refused_before_any_work(words: list[str]) -> None:
    made: list[tuple[str, bool]] = []
    with pytest.raises(SystemExit) as ended:
        main("paper", _figures(made), words)
    assert (ended.value.code, made) == (2, [])
