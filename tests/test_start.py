"""The start of a rank: the number of file system calls and of imported modules.

Ten thousand ranks that start at once load one shared file system, so the calls of one rank are
counted here. Calls that Python makes before the tool starts are subtracted.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import counts, strace
from tests.conftest import ROOT, Run

TOOLS = ("fcp", "fprof", "frm", "fsum")
# Packages with many modules, which a small job on one machine does not need.
HEAVY = {
    *("asyncio", "cloudpickle", "email", "hashlib", "http", "logging", "matplotlib", "mpi4py"),
    *("multiprocessing", "numpy", "pyarrow", "rich", "sqlite3", "urllib"),
}
# Needed to connect processes; a job of one process has none to connect.
CONNECTING = {"_socket", "selectors", "socket"}
tools = pytest.mark.parametrize("tool", TOOLS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory that has a tree of three files."""
    return _grown(tmp_path)


def _grown(place: Path) -> Path:
    shutil.rmtree(place / "copy", ignore_errors=True)
    (place / "tree").mkdir(exist_ok=True)
    for name in ("a", "b", "c"):
        (place / "tree" / name).write_bytes(name.encode())
    return place


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a user's environment with a language other than English and a cache for bytecode."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "LC_", "COVERAGE_"))
    }
    compiled = str(tmp_path_factory.mktemp("compiled"))
    return environment | {"PYTHONPYCACHEPREFIX": compiled, "LANG": "de_CH.UTF-8", "LANGUAGE": ""}


def command_of(tool: str, jobs: int) -> list[str]:
    """Return the command that runs the tool of this checkout on the three files."""
    operands = {"fcp": ["tree", "copy"], "frm": ["-r", "tree"]}.get(tool, ["tree"])
    return [sys.executable, str(ROOT / "bin" / tool), f"-j{jobs}", *operands]


@pytest.fixture
def calls(
    run: Run, place: Path, environment: dict[str, str]
) -> Callable[[list[str]], dict[int, list[str]]]:
    """Run a program twice; return the file system calls of each process of the second run."""

    def traced(command: list[str]) -> dict[int, list[str]]:
        assert run(command, env=environment, cwd=_grown(place)).returncode == 0
        options = ("-qq", "-e", "trace=%file")
        log = place / "strace.txt"
        found: dict[int, list[str]] = {}
        for call in strace.trace(command, log, options, env=environment, cwd=_grown(place)):
            found.setdefault(call.process, []).append(call.text)
        return found

    return traced


@tools
@pytest.mark.counts
def test_calls_on_files(calls: Callable[[list[str]], dict[int, list[str]]], tool: str) -> None:
    own = sum(map(len, calls([sys.executable, "-c", "pass"]).values()))
    counts.check(
        f"{tool} (start)",
        lambda: {"calls on files": sum(map(len, calls(command_of(tool, 1)).values())) - own},
    )


@tools
def test_no_translations_are_looked_up(
    calls: Callable[[list[str]], dict[int, list[str]]], tool: str
) -> None:
    """argparse would look up translations of each word in each of the user's languages."""
    all_calls = [call for made_calls in calls(command_of(tool, 1)).values() for call in made_calls]
    assert [call for call in all_calls if ".mo" in call] == []


@tools
def test_forked_ranks_import_nothing(
    calls: Callable[[list[str]], dict[int, list[str]]], tool: str
) -> None:
    """The process that forks the ranks has imported all modules."""
    processes = calls(command_of(tool, 2))
    assert len(processes) > 1
    first = min(processes, key=lambda number: not _executes(processes[number]))
    other_calls = [
        call for number, made_calls in processes.items() if number != first for call in made_calls
    ]
    assert [call for call in other_calls if re.search(r"\.(pyc?|so)\b", call)] == []


def _executes(made_calls: list[str]) -> bool:
    return any(call.startswith("execve(") for call in made_calls)


@tools
@pytest.mark.counts
def test_imports(run: Run, place: Path, environment: dict[str, str], tool: str) -> None:
    """Heavy packages are not imported, unless argparse or msgspec import them."""
    brought = _imported(run, place, environment, ["-c", "import argparse, msgspec"])
    imported = _imported(run, place, environment, command_of(tool, 1)[1:])
    if sys.version_info >= (3, 11):
        assert "inspect" not in imported  # typing_extensions imports it, and msgspec imports that
    wanted = imported - brought
    assert {name for name in wanted if name.partition(".")[0] in HEAVY} == set()
    assert wanted & CONNECTING == set()
    counts.check(f"{tool} (start, imports)", lambda: {"modules": len(wanted)})


@tools
def test_two_processes_do_not_import_the_module_socket(
    run: Run, place: Path, environment: dict[str, str], tool: str
) -> None:
    """Its tables of constants take as long as the fork; `_socket` has none."""
    imported = _imported(run, place, environment, command_of(tool, 2)[1:])
    assert "_socket" in imported
    assert imported & {"selectors", "socket"} == set()


def _imported(run: Run, place: Path, environment: dict[str, str], arguments: list[str]) -> set[str]:
    done = run([sys.executable, "-X", "importtime", *arguments], env=environment, cwd=place)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"\| +([\w.]+)$", done.stderr.decode(), re.MULTILINE))
