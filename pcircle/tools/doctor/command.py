"""The `pcircle doctor` command: collects all facts, derives recommendations, and reports them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli.output import MessageStream
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import REQUIRED_PACKAGES, EntriesFailed, UsageError, worst
from pcircle.core.units import format_size, plural
from pcircle.tools.doctor import machine
from pcircle.tools.doctor.machine import Fact, Facts, Value
from pcircle.tools.doctor.places import examined
from pcircle.transport.launch import launched
from pcircle.transport.start import warn_stale_launcher


def examine(paths: Sequence[bytes], json: str | None, *, trials: bool, deadline_s: float) -> int:
    """Report all facts, also to the file `json`, and return the exit code.

    Raise UsageError if an argument is invalid.
    """
    for path in paths:
        if not path:
            raise UsageError("empty file name")
    if json is not None:
        jsonout.check(json)
    warn_stale_launcher("pcircle doctor")
    found, trouble = machine.launching(os.environ)
    if launched().rank:
        return 0  # the first rank reports
    paths = paths or list(dict.fromkeys((b".", os.fsencode(tempfile.gettempdir()))))
    sections = {
        "software": machine.software(),
        "launching": found,
        "cores": machine.cores(),
        "memory": machine.memory(),
        "limits": machine.limits(),
        "control_groups": machine.control_groups(),
    }
    places = {show(path): examined(path, trials=trials, deadline_s=deadline_s) for path in paths}
    wrong = list(_broken(sections, places, trouble))
    report = DoctorReport(
        SCHEMA, **sections, paths=places, broken=wrong, advice=list(_advice(sections, places))
    )
    results = Results("pcircle doctor", json, MessageStream(sys.stderr).line)
    results.document(report)
    if json != "-":
        results.text([_text(report).encode()])
    return worst((EntriesFailed.exit_code if wrong else 0, results.code))


_FEW_FILES = 4096
_FULL = 0.02
_FEW_INODES = 10_000


def _broken(sections: dict[str, Facts], paths: dict[str, Facts], trouble: str) -> Iterator[str]:
    """Yield the problems that prevent the tools from working."""
    if trouble:
        yield trouble
    for name in REQUIRED_PACKAGES:
        fact = sections["software"][name]
        if fact.value is None:
            yield f"{name} is required: {fact.why}"
    for path, found in paths.items():
        if "size_bytes" not in found:  # not even the facts that require no trial are known
            yield f"{path}: {found['trials'].why}"


def _advice(sections: dict[str, Facts], paths: dict[str, Facts]) -> Iterator[str]:
    """Yield recommendations about settings that slow the tools down and about scarce resources."""
    if text := machine.mismatch(sections["launching"]):
        yield text
    usable, quota = sections["cores"]["usable"].value, sections["control_groups"]["cores"].value
    if isinstance(usable, int) and isinstance(quota, float | int) and quota < usable:
        jobs = max(1, int(quota))
        yield f"the control group allows {quota:g} of {usable} cores: use -j {jobs}"
    files = sections["limits"]["open_files"].value
    if isinstance(files, int) and files < _FEW_FILES:
        hard = sections["limits"]["open_files_hard"].value
        yield (
            f"a limit of {files} open files allows few directories to be kept open: "
            f"use ulimit -n {hard}"
        )
    for path, found in paths.items():
        for text in _of_path(found):
            yield f"{path}: {text}"


def _of_path(found: Facts) -> Iterator[str]:
    def value(name: str) -> Value:
        return found[name].value if name in found else None

    size, free, inodes = value("size_bytes"), value("free_bytes"), value("free_inodes")
    if isinstance(size, int) and isinstance(free, int) and free < _FULL * size:
        yield f"{100 * free / size:.1f} % of its space is free"
    if isinstance(inodes, int) and inodes < _FEW_INODES:
        yield f"{inodes:,} inodes are free"
    if value("read_only"):
        yield "it is read-only"
    if value("case_folding"):
        yield "names that differ only in case refer to the same file: fcp reports collisions"
    if value("locks") is False:
        yield "file locks are not supported: concurrent runs may not be detected"
    if value("archive_possible") and size:
        yield "files may be on tape: --skip-offline skips them"
    if value("hard_links") is False:
        yield "hard links are not supported: --preserve=links and --link-dest cannot create them"


SCHEMA = 1
_UNITS = {"us": "µs", "ns": "ns"}


class DoctorReport(msgspec.Struct, frozen=True):
    """All facts; `broken` lists the problems that prevent the tools from working."""

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


def _text(report: DoctorReport) -> str:
    """Return the report as text: problems, advice, facts, unknown facts, and a verdict."""
    return "\n".join([*_lines(report), _verdict(report)]) + "\n"


def _verdict(report: DoctorReport) -> str:
    """Return one line with the number of problems, or of recommendations, and the first one."""
    for texts, noun in ((report.broken, "problem"), (report.advice, "recommendation")):
        if texts:
            count = plural(len(texts), noun, f"{noun}s")
            others = ", listed above" if len(texts) > 1 else ""
            none = "" if texts is report.broken else "no problems, "
            return f"verdict: {none}{count}{others}: {_clean(texts[0])}"
    return "verdict: no problems"


def _sections(report: DoctorReport) -> Iterator[tuple[str, Facts]]:
    """Yield the title and the facts of each section of a report."""
    for name in ("software", "launching", "cores", "memory", "limits", "control_groups"):
        yield name.replace("_", " "), getattr(report, name)
    yield from report.paths.items()


def _lines(report: DoctorReport) -> Iterator[str]:
    yield from _listed("does not work", report.broken)
    yield from _listed("advice", report.advice)
    width = max(len(_label(name)) for _, facts in _sections(report) for name in facts)
    for title, facts in _sections(report):
        yield title
        for name, fact in facts.items():
            yield f"  {_label(name):{width}}  {_shown(name, fact)}"
        yield ""
    unknown = [
        f"{title}, {_label(name)}: {_clean(fact.why)}"
        for title, facts in _sections(report)
        for name, fact in facts.items()
        if fact.value is None
    ]
    yield from _listed("unknown", unknown)


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
    """Escape control characters, because much of the text comes from other programs."""
    return show(os.fsencode(text))
