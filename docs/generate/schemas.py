"""Generate JSON Schemas of the tools' JSON output from the types that they write.

They are strict: a new or missing key does not match.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from pcircle.ops.digest import algorithm_names
from pcircle.tools.commands import COMMANDS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXIT_CODES = [0, 1, 2, 3, 4, 70, 130, 143]
KINDS = ["", "f", "d", "l", "p", "s", "b", "c", "?"]
STATES = ["done", "skipped", "failed", "planned", "vanished"]
ACTIONS = [
    "copy", "link", "skip", "touch", "update", "replace", "delete", "move", "chmod", "chown",
    "find", "list",
]  # fmt: skip
ALGORITHMS = "|".join(algorithm_names())

# The documents of --json: file, title, tools, type, and type of the counters.
_DOCUMENTS: tuple[tuple[str, str, list[str], str, str], ...] = (
    ("fcp", "fcp --json", ["fcp"], "pcircle.tools.common.copy_console:CopyReport", ""),
    ("fmirror", "fmirror --json", ["fmirror"], "pcircle.tools.fmirror.report:MirrorReport", ""),
    ("fsum", "fsum --json", ["fsum"], "pcircle.tools.fsum.command:SumReport", ""),
    ("fsum-diff", "fsum --diff --json", ["fsum"],
     "pcircle.tools.fsum.command:ManifestComparison", ""),
    ("fprof", "fprof --json", ["fprof"], "pcircle.tools.fprof.reports.report:ProfileReport", ""),
    ("fprof-stopped", "fprof --json of a run that was stopped", ["fprof"],
     "pcircle.tools.fprof.reports.report:StoppedReport", ""),
    ("fprof-diff", "fprof --diff --json", ["fprof"],
     "pcircle.tools.fprof.profile.saved:ProfileComparison", ""),
    ("frm", "frm --json", ["frm"], "pcircle.cli.program:TreeReport",
     "pcircle.ops.remove.plan:RemovalCounters"),
    ("ffind", "ffind --json", ["ffind"], "pcircle.cli.program:TreeReport",
     "pcircle.tools.ffind.task:FindCounters"),
    ("fls", "fls --json", ["fls"], "pcircle.tools.fls.rows:ListReport",
     "pcircle.tools.fls.visitor:ListCounters"),
    ("fchmod", "fchmod, fchown and fchgrp --json", ["fchmod", "fchown", "fchgrp"],
     "pcircle.cli.program:TreeReport", "pcircle.tools.fchmod.entry_changer:ModeCounters"),
    ("fdiff", "fdiff --json", ["fdiff"], "pcircle.cli.program:TreeReport",
     "pcircle.tools.fdiff.work.task:DiffCounters"),
    ("fbcast", "fbcast --json", ["fbcast"], "pcircle.tools.fbcast.command:BroadcastReport", ""),
    ("fbench", "fbench --json", [], "pcircle.tools.fbench.command:BenchReport", ""),
    ("scale", "pcircle scale --json", [],
     "pcircle.tools.scale.command:ScaleDocument", ""),
    ("doctor", "pcircle doctor --json", [], "pcircle.tools.doctor.command:DoctorReport", ""),
    ("action", "A line of --json-lines", [], "pcircle.jobs.action_log:Action", ""),
    ("error", "A line of --error-log", [], "pcircle.jobs.failures:LogLine", ""),
    ("copy-error", "A line of --error-log of fcp and fmirror", [],
     "pcircle.tools.common.copy_error_log:CopyLogLine", ""),
    ("found", "A line of -json of ffind", [], "pcircle.tools.ffind.eval.output:JsonLine", ""),
)  # fmt: skip

# Names that modules import only for type checkers.
_FOR_TYPES = {
    "pcircle.tools.fprof.reports.report": {
        "Sparse": "pcircle.tools.fprof.profile.examinations",
        "Compression": "pcircle.tools.fprof.profile.examinations",
        "Blocks": "pcircle.tools.fprof.profile.examinations",
        "InInode": "pcircle.tools.fprof.profile.examinations",
    }
}


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all schemas, with the names of their files without the suffix."""
    for name, title, tools, type_name, counters in _DOCUMENTS:
        yield name, schema(title, tools, _named(type_name), _named(counters) if counters else None)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    for name, found in schemas():
        yield f"docs/schemas/{name}.json", json.dumps(_ordered(found), indent=2) + "\n"


def _ordered(part: Any) -> Any:
    """Return a part of a schema with null as the last alternative; msgspec 0.19 has it first."""
    if isinstance(part, list):
        return [_ordered(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    ordered = {key: _ordered(inner) for key, inner in part.items()}
    if "anyOf" in ordered:
        ordered["anyOf"].sort(key=lambda alternative: alternative == {"type": "null"})
    return ordered


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    found = importlib.import_module(module)
    for each, home in _FOR_TYPES.get(module, {}).items():
        setattr(found, each, getattr(importlib.import_module(home), each))
    return getattr(found, name)


def schema(title: str, tools: list[str], model: Any, counters: Any) -> dict[str, Any]:
    """Return the schema of a type."""
    made, parts = msgspec.json.schema_components([model], ref_template="#/$defs/{name}")
    parts = {name: _strict(part) for name, part in parts.items()}
    (root,) = (name for name in parts if made[0]["$ref"].endswith(f"/{name}"))
    _require_all(model, parts)
    top = parts.pop(root)
    fields = top["properties"]
    if "schema" in fields:
        fields["schema"] = {"const": 1}
    if "exit_code" in fields:
        fields["exit_code"] = {"enum": EXIT_CODES}
    if tools:
        fields["tool"] = {"enum": tools}
    if "v" in fields:
        fields |= {"v": {"const": 1}, "action": {"enum": ACTIONS}, "state": {"enum": STATES}}
        fields["kind"] = {"enum": KINDS}
        fields["tool"] = {"enum": [command.name for command in COMMANDS]}
        top["oneOf"] = [{"required": ["path"]}, {"required": ["path_b64"]}]
    if counters is not None:
        numbers = {name: {"type": "integer", "minimum": 0} for name in counters.names}
        fields["counts"] = {
            "type": "object",
            "properties": numbers,
            "required": sorted(numbers),
            "additionalProperties": False,
        }
    top["title"] = title
    top["$defs"] = parts
    return {"$schema": DIALECT, **top}


def _strict(part: dict[str, Any]) -> dict[str, Any]:
    if "description" in part:
        part["description"] = inspect.cleandoc(part["description"])
    if "properties" in part:
        part["additionalProperties"] = False
        for field in part["properties"].values():
            field.pop("default", None)
        if "signature" in part["properties"] and part["title"] == "RootSignature":
            pattern = f"^pcsig1:(?:{ALGORITHMS}):[0-9a-f]+$"
            part["properties"]["signature"]["anyOf"][0]["pattern"] = pattern
    return part


def _require_all(model: Any, parts: dict[str, dict[str, Any]]) -> None:
    """Require all keys that are always written, which includes keys with default values."""
    seen: set[Any] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, msgspec.inspect.StructType) and kind.cls not in seen:
            seen.add(kind.cls)
            part = parts[kind.cls.__name__]
            if not kind.cls.__struct_config__.omit_defaults:
                annotated: dict[str, Any] = {}
                for each in reversed(kind.cls.__mro__):
                    annotated |= inspect.get_annotations(each)
                part["required"] = [
                    field.encode_name
                    for field in kind.fields
                    if "UnsetType" not in str(annotated[field.name])
                ]
            for field in kind.fields:
                visit(field.type)
        for attribute in ("item_type", "item_types", "types", "value_type"):
            inner = getattr(kind, attribute, ())
            for each in inner if isinstance(inner, tuple) else (inner,):
                visit(each)

    visit(msgspec.inspect.type_info(model))
