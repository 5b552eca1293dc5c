"""The options of the scaling simulator: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions, seed_of
from pcircle.core.errors import UsageError
from pcircle.core.units import invalid, is_whole, number, parse_number, positive

if TYPE_CHECKING:
    from pcircle.circle import EngineSettings

MAX_RANKS = 1 << 20
_MAX_ENTRIES = 10**13
_MAX_BATCH = 10**6
_MAX_TIME = 1e9
_MAX_DIGITS = 2  # the maximum length of an exponent
_LATENCY_S = {"ethernet": 40e-6, "infiniband": 3e-6}
_SHAPES = ("files", "balanced", "geometric", "flat")
_NOT_FILES = tuple(f"shape={shape}" for shape in _SHAPES[1:])


def _count(option: str, text: str, *, most: int) -> int:
    """Parse an integer from 1 to `most`, possibly with an exponent, such as 1e9."""
    mantissa, separator, exponent = text.lower().partition("e")
    digits = mantissa.replace(".", "", 1)
    if not (separator and is_whole(digits) and is_whole(exponent) and len(exponent) <= _MAX_DIGITS):
        return positive(option, text, most)
    value = float(text)
    if value < 1 or value != value // 1:
        raise invalid(option, text, "must be a positive integer")
    if value > most:
        raise invalid(option, text, f"must be at most {most:,}")
    return int(value)


def _counts(name: str, text: str) -> tuple[int, ...]:
    return tuple(_count(name, word, most=MAX_RANKS) for word in text.split(","))


def _time(name: str, text: str, *, unit_s: float, allow_zero: bool = False) -> float:
    value = number(name, text, parse_number)
    if not (0 < value <= _MAX_TIME or (allow_zero and value == 0)):
        problem = "must not be negative" if allow_zero else "must be greater than 0"
        raise invalid(name, text, problem)
    return value * unit_s


def _counted(name: str, text: str, most: int = _MAX_ENTRIES, **more: Any) -> Any:
    return option(name, metavar="N", parse=partial(_count, most=most), help=text, **more)


def _timed(name: str, text: str, unit_s: float, **more: Any) -> Any:
    return option(name, metavar="T", parse=partial(_time, unit_s=unit_s), help=text, **more)


def _settings(name: str, text: str) -> EngineSettings:
    from pcircle.circle.instructions import EngineSettings, with_policies

    settings = with_policies(EngineSettings(), text, name)
    if settings.termination != "counters":
        raise UsageError(f"{name}: the simulator detects the end by waves only")
    return settings


def _choice(name: str, words: Sequence[str], text: str) -> Any:
    return option(name, choices=words, default=words[0], help=f"{text} (default: {words[0]})")


class ScaleOptions(CommonOptions):
    """The options of the scaling simulator. If `items` is None, there are 100 items per rank."""

    _task = Section("Task")
    shape: str = _choice("--shape", _SHAPES, "shape of the tree")
    entries: int = _counted(
        "--files", "number of files (default: 1e6)", otherwise=10**6, excludes=_NOT_FILES
    )
    directories: int | None = _counted(
        "--dirs", "number of directories (default: files / 100)", excludes=_NOT_FILES
    )
    batch: int = _counted("--batch", "entries per item (default: 300)", _MAX_BATCH, default="300")
    entry_s: float = _timed(
        "--stat-us", "microseconds per entry (default: 100)", 1e-6, default="100"
    )
    items: int | None = _counted(
        "--items", "other shapes: items (default: 100 per rank)", excludes=("shape=files",)
    )
    item_s: float = _timed(
        "--item-ms",
        "other shapes: mean item time (default: 100)",
        1e-3,
        otherwise=0.1,
        excludes=("shape=files",),
    )
    times: str = _choice("--times", ("uniform", "constant", "exponential"), "distribution of times")

    _machine = Section("Machine")
    ranks: tuple[int, ...] = option(
        "--ranks",
        metavar="N,...",
        default="64",
        parse=_counts,
        help="numbers of ranks to simulate (default: 64)",
    )
    ranks_per_node: int = _counted(
        "--ranks-per-node", "ranks per node (default: 64)", MAX_RANKS, default="64"
    )
    network: str = _choice("--network", tuple(_LATENCY_S), "latencies")
    latency_s: float | None = _timed(
        "--latency-us", "latency between nodes (ethernet: 40, infiniband: 3)", 1e-6
    )
    message_s: float = _timed(
        "--message-us", "time to handle a message (default: 20)", 1e-6, default="20"
    )
    look_s: float = option(
        "--look-ms",
        metavar="T",
        default="0",
        parse=partial(_time, unit_s=1e-3, allow_zero=True),
        help="delay until a busy rank sees a message (default: 0)",
    )
    settings: EngineSettings = option(
        "--policies",
        metavar="KEY=VALUE,...",
        default="",
        parse=_settings,
        help="how ranks share their work",
    )

    _output = Section("Output")
    seed: int = option(
        "--seed",
        metavar="N",
        default="1",
        parse=seed_of,
        help="seed of all random numbers (default: 1)",
    )
    _shared = taken("json", "version")
    json: str | None = override(help="write the figures as JSON (-: standard output)")

    @property
    def far_s(self) -> float:
        """The latency between nodes, by default that of the network."""
        return _LATENCY_S[self.network] if self.latency_s is None else self.latency_s
