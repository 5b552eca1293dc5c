"""Derives problems and recommendations from the collected facts."""

from __future__ import annotations

from collections.abc import Iterator

from pcircle.core.errors import REQUIRED_PACKAGES
from pcircle.tools.doctor.facts import Facts, Value
from pcircle.tools.doctor.launching import mismatch

_FEW_FILES = 4096
_FULL = 0.02
_FEW_INODES = 10_000


def broken(sections: dict[str, Facts], paths: dict[str, Facts], trouble: str) -> Iterator[str]:
    """Yield the problems that prevent the tools from working."""
    if trouble:
        yield trouble
    for name in REQUIRED_PACKAGES:
        fact = sections["software"][name]
        if fact.value is None:
            yield f"{name} is required: {fact.why}"
    for path, found in paths.items():
        if "size_bytes" not in found:  # not even the facts that need no trial
            yield f"{path}: {found['trials'].why}"


def advice(sections: dict[str, Facts], paths: dict[str, Facts]) -> Iterator[str]:
    """Yield recommendations about slow settings and resources that are running out."""
    if text := mismatch(sections["launching"]):
        yield text
    usable, quota = sections["cores"]["usable"].value, sections["control_groups"]["cores"].value
    if isinstance(usable, int) and isinstance(quota, float | int) and quota < usable:
        jobs = max(1, int(quota))
        yield f"the control group allows {quota:g} of {usable} cores: use -j {jobs}"
    files = sections["limits"]["open_files"].value
    if isinstance(files, int) and files < _FEW_FILES:
        hard = sections["limits"]["open_files_hard"].value
        yield f"{files} open files keep few directories open: ulimit -n {hard}"
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
        yield "names that differ in case alone are one file here: fcp names each that collides"
    if value("locks") is False:
        yield "there are no file locks: two runs at once are not always noticed"
    if value("archive_possible") and size:
        yield "files may be on tape: --skip-offline leaves them out"
    if value("hard_links") is False:
        yield "there are no hard links: --preserve=links and --link-dest cannot make any"
