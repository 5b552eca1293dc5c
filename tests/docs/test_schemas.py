"""The JSON output of the tools matches the schemas of `docs/schemas`, which are strict."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.generate.schemas import pages
from pcircle.cli.json_output import encode
from pcircle.tools.fprof.reports.report import ProfileRun, stopped
from tests.conftest import ROOT, Run

SCHEMAS = {
    path.stem: json.loads(path.read_bytes()) for path in (ROOT / "docs" / "schemas").iterdir()
}
# The command and exit code of each tool; the files that it writes and their schemas.
RUNS = {
    "fcp": ("-j2 -a --json OUT --json-lines LINES data copied", 0, "fcp", "action"),
    "fcp signed": ("-j2 -a -s --verify --json OUT data signed", 0, "fcp", ""),
    "fcp failed": (
        "-j1 -L --json OUT --error-log LINES data failed", 1, "fcp", "copy-error"),
    "fcp dry": ("-j1 -a --dry-run --json OUT --json-lines LINES data dry", 0, "fcp", "action"),
    "fmirror": (
        "-j2 --delete --json OUT --json-lines LINES changed mirrored", 0, "fmirror", "action"),
    "fmirror again": (
        "-j1 --delete --allow-foreign --dry-run --json OUT --json-lines LINES data mirrored",
        0, "fmirror", "action"),
    "fsum": ("-j2 -a sha256 -o kept.manifest --json OUT data", 0, "fsum", ""),
    "fsum check": ("-j1 --check kept.manifest --json OUT changed", 3, "fsum", ""),
    "fprof": ("-j2 --json OUT data", 0, "fprof", ""),
    "fprof all": (
        "-j1 -d2 --by age,owner,group,ext,depth,dirsize --top 3 --blocks 1M --data-in-inode 100"
        " --sparse --stripe --compress --save old.profile --json OUT data", 0, "fprof", ""),
    "fprof other": ("-j1 -q --save new.profile --json OUT changed", 0, "fprof", ""),
    "fprof diff": ("--diff old.profile new.profile --json OUT", 0, "fprof-diff", ""),
    "ffind": ("-j2 --json OUT data -type f", 0, "ffind", ""),
    "ffind lines": ("-j1 --list-out LIST data -json", 0, "", "found"),
    "fls": ("-j2 -R --acl --sum --json OUT data", 0, "fls", ""),
    "fls lines": ("-j1 -R --json-lines LINES --json OUT data", 0, "fls", "action"),
    "fdiff": ("-j2 -c --moved --json OUT --json-lines LINES data changed", 3, "fdiff", "action"),
    "fchmod": ("-j2 -R --json OUT --json-lines LINES g+w changed", 0, "fchmod", "action"),
    "fchown": ("-j1 -R --json OUT --json-lines LINES ME changed", 0, "fchmod", "action"),
    "fchgrp": ("-j1 -R --dry-run --json OUT GROUP changed", 0, "fchmod", ""),
    "fbcast": ("-j2 --json OUT data node{rank}", 0, "fbcast", ""),
    "fbcast check": ("-j2 --check --json OUT data node{rank}", 0, "fbcast", ""),
    "fbench": ("-j1 --case metadata --files 10 --blocks 4 --json OUT .", 0, "fbench", ""),
    "frm": ("-j2 -r --trash trash --json OUT copied", 0, "frm", ""),
    "frm failed": ("-j1 --json OUT --error-log LINES -d data changed", 1, "frm", "error"),
    "frm lines": ("-j1 -r --bytes --json OUT --json-lines LINES changed", 0, "frm", "action"),
}  # fmt: skip


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Any]:
    """Run all commands in one directory; return their documents."""
    run: Run = request.getfixturevalue("run")
    here = tmp_path_factory.mktemp("schemas")
    _build(here)
    found = {}
    for name, (words, code, _, _) in RUNS.items():
        tool = name.split()[0]
        paths = {"OUT": f"{name}.json", "LINES": f"{name}.lines", "LIST": f"{name}.list"}
        paths |= {"ME": str(os.geteuid()), "GROUP": str(os.getegid())}
        given = [paths.get(word, word) for word in words.split()]
        done = run([sys.executable, ROOT / "bin" / tool, *given], cwd=here)
        assert done.returncode == code, (name, done.stderr)
        found[name] = (here / f"{name}.json", here / f"{name}.lines", done.stdout)
    return found


def _build(here: Path) -> None:
    """Create two different trees of all kinds, and directories for nodes."""
    for name in ("data", "changed"):
        tree = here / name
        (tree / "sub" / "empty").mkdir(parents=True)
        (tree / "file.txt").write_text("content" * 9000)
        os.link(tree / "file.txt", tree / "sub" / "second")
        (tree / "sub" / "small").write_text(name)
        (tree / "link").symlink_to("sub/small")
        (tree / "dangling").symlink_to("nowhere")
        os.mkfifo(tree / "pipe")
        with open(os.fsencode(tree) + b"/odd \xff", "wb") as file:
            file.truncate(100_000)
    (here / "changed" / "new").write_text("only here")
    for directory in ("node0", "node1", "trash", "mirrored"):
        (here / directory).mkdir()
    (here / "mirrored" / "surplus").write_text("goes")


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    objects = [part for part in _parts(SCHEMAS[name]) if "properties" in part]
    assert objects
    assert [part for part in objects if part["additionalProperties"] is not False] == []


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from _parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _parts(value)


@pytest.mark.parametrize("name", [name for name in RUNS if RUNS[name][2]])
def test_a_document_fits(written: dict[str, Any], name: str) -> None:
    _check(RUNS[name][2], json.loads(written[name][0].read_bytes()))


@pytest.mark.parametrize("name", [name for name in RUNS if RUNS[name][3]])
def test_lines_fit(written: dict[str, Any], name: str) -> None:
    _, lines, output = written[name]
    text = lines.read_bytes() if lines.exists() else output
    found = text.splitlines()
    assert found
    for line in found:
        _check(RUNS[name][3], json.loads(line))


def _check(schema: str, document: Any) -> None:
    validator = Draft202012Validator(SCHEMAS[schema])
    validator.validate(document)
    assert not validator.is_valid({**document, "unknown": 1}), "a new key fits"
    for key in SCHEMAS[schema]["required"]:
        less = copy.copy(document)
        del less[key]
        assert not validator.is_valid(less), f"{key} may be missing"


def test_output_of_a_stopped_fprof_matches() -> None:
    document = stopped([b"data"], ProfileRun(exit_code=130, reasons=("stopped by SIGINT",)))
    _check("fprof-stopped", json.loads(encode(document)))


def test_differences_of_manifests_match(written: dict[str, Any], run: Run) -> None:
    here = written["fsum"][0].parent
    for arguments, code in (
        ("-q -a sha256 -o other.manifest data/sub", 0),
        ("--diff kept.manifest other.manifest --json diff.json", 3),
    ):
        done = run([sys.executable, ROOT / "bin" / "fsum", *arguments.split()], cwd=here)
        assert done.returncode == code, done.stderr
    _check("fsum-diff", json.loads((here / "diff.json").read_bytes()))


def test_a_prediction_fits(run: Run, tmp_path: Path) -> None:
    words = ["--ranks", "2", "--files", "1000", "--json", str(tmp_path / "scale.json")]
    done = run([sys.executable, "-m", "pcircle", "scale", *words])
    assert done.returncode == 0, done.stderr
    _check("scale", json.loads((tmp_path / "scale.json").read_bytes()))


@pytest.mark.parametrize("options", [[], ["--no-trials", "a/missing/directory"]], ids=len)
def test_a_report_fits(run: Run, tmp_path: Path, options: list[str]) -> None:
    file = tmp_path / "doctor.json"
    words = ["doctor", "--json", str(file), str(tmp_path), *options]
    done = run([sys.executable, ROOT / "bin" / "pcircle", *words])
    assert done.returncode == (1 if options else 0), done.stderr
    _check("doctor", json.loads(file.read_bytes()))


def test_schemas_match_the_types() -> None:
    """If this test fails, run: python -m docs.generate"""
    made = {Path(name).stem: json.loads(text) for name, text in pages()}
    assert made == SCHEMAS


def test_every_schema_is_tried() -> None:
    tried = {schema_name for run in RUNS.values() for schema_name in run[2:] if schema_name}
    assert tried | {"fprof-stopped", "fsum-diff", "scale", "doctor"} == set(SCHEMAS)
