"""Formats the report as JSON and as text."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from pcircle.core.names import show
from pcircle.core.units import format_size
from pcircle.tools.doctor.facts import Fact, Facts

SCHEMA = 1
_UNITS = {"us": "µs", "ns": "ns"}


class Report(msgspec.Struct, frozen=True):
    """All facts. `broken` lists problems that prevent the tools from working."""

    schema: int
    software: Facts
    launching: Facts
    cores: Facts
    memory: Facts
    limits: Facts
    control_groups: Facts
    paths: dict[str, Facts]
    broken: list[str]
    advice: list[str]


def text(report: Report) -> str:
    """Return the report as text, with a list of the unknown facts at the end."""
    return "\n".join(_lines(report)) + "\n"


def sections(report: Report) -> Iterator[tuple[str, Facts]]:
    """Yield the sections of a report with their titles."""
    for name in ("software", "launching", "cores", "memory", "limits", "control_groups"):
        yield name.replace("_", " "), getattr(report, name)
    yield from report.paths.items()


def _lines(report: Report) -> Iterator[str]:
    width = max(len(_label(name)) for _, facts in sections(report) for name in facts)
    for title, facts in sections(report):
        yield title
        for name, fact in facts.items():
            yield f"  {_label(name):{width}}  {_shown(name, fact)}"
        yield ""
    yield from _listed("does not work", report.broken)
    yield from _listed("advice", report.advice)
    unknown = [
        f"{title}, {_label(name)}: {_clean(fact.why)}"
        for title, facts in sections(report)
        for name, fact in facts.items()
        if fact.value is None
    ]
    yield from _listed("not found out", unknown)


def _listed(title: str, texts: list[str]) -> Iterator[str]:
    if texts:
        yield title
        yield from (f"  - {_clean(text)}" for text in texts)
        yield ""


def _label(name: str) -> str:
    parts = name.split("_")
    return " ".join(parts[:-1] if parts[-1] in ("bytes", *_UNITS) else parts)


def _shown(name: str, fact: Fact) -> str:
    value = fact.value
    if value is None:
        return f"unknown: {_clean(fact.why)}"
    if isinstance(value, bool):
        return ("yes" if value else "no") + (f" ({_clean(fact.why)})" if fact.why else "")
    unit = name.rpartition("_")[2]
    if isinstance(value, int) and unit == "bytes":
        return format_size(value)
    shown = f"{value:,}" if isinstance(value, int | float) else _clean(str(value))
    return f"{shown} {_UNITS[unit]}" if unit in _UNITS else shown


def _clean(text: str) -> str:
    """Escape control characters, as much of the text comes from other programs."""
    return show(os.fsencode(text))
