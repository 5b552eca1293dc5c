"""The report: machine facts, one table for each data set, and the same as JSON."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from .datasets import DataSet, MiB
from .rounds import Result

SCHEMA = 1


def _field(path: str, name: str) -> str:
    """Return the value of the first `name: value` line of a file in /proc."""
    with open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "?"


def file_system(folder: str) -> str:
    """Return the type and mount point of the file system of `folder`, from /proc/self/mountinfo."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    real = os.path.realpath(folder)
    best, answer = -1, "?"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            before, _, after = line.partition(" - ")
            fields = before.split()
            point = fields[4]
            holds = real == point or real.startswith(point.rstrip("/") + "/")
            # Some (btrfs, overlays) show another device number than stat: the path decides then.
            rank = len(point) + (1_000_000 if fields[2] == wanted else 0)
            if holds and rank >= best:
                best, answer = rank, f"{after.split()[0]} at {point}"
    return answer


def facts(folder: str, versions: dict[str, str], missing: dict[str, str]) -> dict[str, str]:
    """Return the facts that a reader needs in order to compare numbers."""
    load = os.getloadavg()
    values = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file system": file_system(folder),
        "load before": " ".join(f"{value:.2f}" for value in load),
    }
    values.update({f"version of {tool}": version for tool, version in versions.items()})
    values.update({f"left out {tool}": reason for tool, reason in missing.items()})
    return values


def facts_text(values: dict[str, str]) -> str:
    width = max(len(name) for name in values)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in values.items())


def _cells(result: Result, floor_bytes: int) -> list[str]:
    good = result.good
    if not good:
        return [result.row.label, "-", "-", "-", "-", "-", result.fault or "not run"]
    ratio = result.median_ratio
    peak = max(cost.peak_rss_bytes for cost in good)
    peak_text = f"<{floor_bytes / MiB:.0f}" if peak <= floor_bytes else f"{peak / MiB:.0f}"
    failed = len(result.trials) - len(good)
    return [
        result.row.label,
        _seconds(median(cost.wall_s for cost in good)),
        _seconds(min(cost.wall_s for cost in good)),
        "-" if ratio is None else f"{ratio:.2f}",
        f"{median(cost.user_s + cost.system_s for cost in good):.2f}",
        peak_text,
        f"{failed} of {len(result.trials)} failed: {result.fault}" if failed else "ok",
    ]


def _aligned(lines: Sequence[Sequence[str]]) -> Iterable[str]:
    """Align the first and last column to the left, the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        middle = (text.rjust(width) for text, width in zip(line[1:-1], widths[1:-1], strict=True))
        yield "  ".join((line[0].ljust(widths[0]), *middle, line[-1])).rstrip()


def _seconds(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}"


def table(data: DataSet, results: Sequence[Result], reference: str, floor_bytes: int) -> str:
    """Return the table of one data set as text."""
    census = data.survey.census
    head = f"{data.name}: {data.what} ({census.entries:,} entries, {census.bytes / MiB:,.1f} MiB)"
    columns = ["tool", "median s", "min s", f"x {reference}", "CPU s", "RSS MiB", "check"]
    rows = [columns, *(_cells(result, floor_bytes) for result in results)]
    lines = list(_aligned(rows))
    lines.insert(1, "-" * max(len(line) for line in lines[:1]))
    return "\n".join((head, *lines))


def matrix(measured: Sequence[tuple[DataSet, Sequence[Result]]], reference: str) -> str:
    """Return all ratios: a line for each row, a column for each data set."""
    lines = [["ratio to " + reference, *(data.name for data, _ in measured), ""]]
    for index, first in enumerate(measured[0][1]):
        ratios = (results[index].median_ratio for _, results in measured)
        cells = ("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        lines.append([first.row.label, *cells, ""])
    return "\n".join(_aligned(lines))


def document(
    machine: dict[str, str],
    options: dict[str, Any],
    reference: str,
    measured: Sequence[tuple[DataSet, Sequence[Result]]],
    floor_bytes: int,
) -> dict[str, Any]:
    """Return everything, including every single run, for json.dump.

    Times in seconds, sizes in bytes.
    """
    return {
        "schema": SCHEMA,
        "facts": machine,
        "options": options,
        "reference": reference,
        "rss_floor_bytes": floor_bytes,
        "data_sets": [
            {
                "name": data.name,
                "what": data.what,
                "census": data.survey.census._asdict(),
                "rows": [_row(result) for result in results],
            }
            for data, results in measured
        ],
    }


def _row(result: Result) -> dict[str, Any]:
    good = result.good
    return {
        **result.row._asdict(),
        "median_s": median(cost.wall_s for cost in good) if good else None,
        "min_s": min((cost.wall_s for cost in good), default=None),
        "ratio": result.median_ratio,
        "ratios": result.ratios,
        "runs": [
            {"round": trial.round, **trial.cost._asdict(), "fault": trial.fault}
            for trial in result.trials
        ],
    }
