"""Tools that remove, find, list and change are also functions, with the results of --json.

They also work in a process with threads, whose other ranks are separate interpreters. A dry run
reports planned actions in the format of a real run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import pcircle
from pcircle.core.errors import UsageError
from pcircle.library.call import options_of
from pcircle.library.stream import Results
from tests.conftest import Run
from tests.tools.fcp.running import TWO, Launcher
from tests.tools.fcp.running import Run as Started
from tests.tools.frm.running import grow, paths

TREE = [f"tree/{number % 7}/{number}/{name}" for number in range(60) for name in ("a.o", "b")]
# The arguments of each function and of the command, on identical trees.
CALLS = {
    "ffind": ("report(pcircle.find(top, '-name', '*.o', '-printf', '%P %s\\\\n', jobs=2))",
              ["TOP", "-name", "*.o", "-printf", "%P %s\\n"]),
    "fls": ("listing(pcircle.entries(top, recursive=True, sort='-size,name', jobs=2))",
            ["-R", "--sort=-size,name", "TOP"]),
    "fchmod": ("pcircle.change(top, mode='o-r', recursive=True, exclude='a.o', jobs=2)",
               ["-R", "--mode", "o-r", "--exclude", "a.o", "TOP"]),
    "frm": ("pcircle.remove(top, recursive=True, exclude='*.o', jobs=2)",
            ["-r", "--exclude", "*.o", "TOP"]),
}  # fmt: skip
CALLER = """
import msgspec, os, sys, threading
import pcircle
from pcircle.cli.json_output import encode
from pcircle.tools.fls.rows import ListReport

def report(results):
    for result in results:
        pass
    return results.report

def listing(rows):
    entries = tuple(rows)
    return ListReport(**msgspec.structs.asdict(rows.report), entries=entries)

if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    top = "tree"
"""
# Fields that differ between two runs, and the part of a listing that depends on reading order.
VARIES = {"elapsed_s", "ranks"}


def _settled(text: bytes) -> tuple[set[str], dict[str, Any]]:
    """Return the keys of a document, and the values that do not vary between runs."""
    document = json.loads(text)
    for entry in document.get("entries", ()):
        for key in [key for key in entry if key in ("inode", "device") or "time" in key]:
            entry[key] = type(entry[key]).__name__
    settled = {key: value for key, value in document.items() if key not in VARIES}
    return set(document), settled


def test_a_function_returns_the_document_of_the_command(
    run: Run, place: bytes, tmp_path: Path
) -> None:
    """A process that has a thread calls all four functions, one after another."""
    program = CALLER
    for tool, (call, _) in CALLS.items():
        program += f"    open({tool!r}, 'wb').write(encode({call}))\n"
    (tmp_path / "caller.py").write_text(program)
    for name in (b"called", b"commanded"):
        os.mkdir(place + b"/" + name)
        grow(place + b"/" + name, TREE)
    done = run([sys.executable, tmp_path / "caller.py"], cwd=os.fsdecode(place) + "/called")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for tool, (_, words) in CALLS.items():
        arguments = ["tree" if word == "TOP" else word for word in words]
        options = ["--json", f"../{tool}", *(() if tool == "fls" else ("-q",))]
        with Started(
            TWO, *options, *arguments, cwd=place + b"/commanded", program=(f"pcircle.tools.{tool}",)
        ) as started:
            ended = started.finish()
        assert ended.code == 0, ended.said
        documents = []
        for path in (place + b"/called/", place + b"/"):
            with open(path + os.fsencode(tool), "rb") as file:
                documents.append(_settled(file.read()))
        assert documents[0] == documents[1], tool
        assert documents[0][1]["tool"] == tool
    assert paths(place + b"/called/tree") == paths(place + b"/commanded/tree")


# A value for each option that takes one; the omitted ones are separate commands.
VALUES = {
    "json": "out/json", "error_log": "out/log", "list_out": "out/listed", "json_lines": "out/lines",
    "csv": "out/csv", "plan": "out/plan", "undo": "out/undo", "trash": "out/trash",
    "exclude": "none", "include": "none", "exclude_from": "out/names", "include_from": "out/names",
    "files_from": "out/names", "newer_than": "1d", "older_than": "1d", "by_time": "mtime",
    "min_size": "1", "max_size": "9", "owner": "0", "group": "0", "of_owner": "0", "of_group": "0",
    "kind": "f", "match": "a", "transport": "local", "threads": "2", "ops_limit": "10000",
    "polite": "100%", "stop_after": "1h", "stop_at": "2199-01-01", "progress": "never",
    "interval": "5", "time": "mtime", "time_style": "iso", "color": "always",
    "hyperlink": "always", "sort": "name", "mode": "0755", "files": "0640", "dirs": "0750",
    "from_": "0:0", "usermap": "0:0", "groupmap": "0:0", "acl": "u:5:r", "acl_remove": True,
    "default_acl": "u:5:r", "top": "3", "by": "size", "stat": "never", "max_delete": "100",
}  # fmt: skip
ELSEWHERE = {"apply", "empty_trash", "in_", "jobs", "parquet", "reference"}
FUNCTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "remove": (("tree",), {"recursive": True}),
    "find": (("tree", "-name", "b"), {}),
    "entries": (("tree",), {}),
    "change": (("tree",), {"mode": "0700"}),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_option_gives_a_result_or_is_refused(
    place: bytes,
    function: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words, base = FUNCTIONS[function]
    done = 0
    for name, found in options_of(function).items():
        if name in ELSEWHERE:
            continue
        here = place + b"/%d" % done
        monkeypatch.chdir(os.fsdecode(grow(here, ["tree/a/b", "out/trash/"])))
        Path("out/names").write_text("a\n")
        value = True if found.action.nargs == 0 else VALUES.get(name, "1")
        done += 1
        try:
            result = getattr(pcircle, function)(*words, **(base | {name: value, "jobs": 1}))
            if isinstance(result, Results):
                list(result)
                result = result.report
        except UsageError:
            continue
        assert result.exit_code == 0, name
    assert done > 20
    assert capfd.readouterr() == ("", "")


DRY = {
    "frm": (["-r", "--exclude", "b", "TOP"], "delete"),
    "ffind": (["TOP", "-name", "*.o", "-delete"], "delete"),
    "fchmod": (["-R", "--kind=f", "--match", "o$", "0600", "TOP"], "chmod"),
}


@pytest.mark.parametrize("launcher", [Launcher(jobs=1), TWO], ids=str)
@pytest.mark.parametrize("tool", DRY)
def test_a_dry_run_prints_the_lines_of_a_run(place: bytes, tool: str, launcher: Launcher) -> None:
    """A dry run reports the same entries as planned, and changes nothing."""
    words, action = DRY[tool]
    grow(place, TREE)
    before = {path: os.lstat(place + b"/" + path).st_ctime_ns for path in paths(place)}
    listed = {}
    for state, options in (("planned", ["--dry-run"]), ("done", [])):
        lines = place + b"/" + state.encode()
        arguments = [place + b"/tree" if word == "TOP" else word for word in words]
        given = ["-q", *options, "--json-lines", lines, *arguments]
        with Started(launcher, *given, program=(f"pcircle.tools.{tool}",)) as started:
            ended = started.finish()
        assert ended.code == 0, ended.said
        with open(lines, "rb") as file:
            found = [json.loads(line) for line in file]
        assert {
            (action_line["tool"], action_line["action"], action_line["state"])
            for action_line in found
        } == {(tool, action, state)}
        listed[state] = sorted(action_line["path"] for action_line in found)
        if options:
            now = {path: os.lstat(place + b"/" + path).st_ctime_ns for path in before}
            assert now == before
    assert listed["planned"] == listed["done"]
    assert len(listed["done"]) >= 60
