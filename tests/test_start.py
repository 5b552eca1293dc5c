"""The start of a rank: how many calls on files it makes, and which modules it imports.

Ten thousand ranks that start at once all ask one shared file system, so what one of them asks for
is counted here. What Python does before it comes to the tool is not ours and taken off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

# Calls on files of a run on three files with one process, beyond those of `python -c pass`.
# PCIRCLE_UPDATE_COUNTS=1 pytest tests/test_start.py -k calls_on_files writes them anew.
COUNTS = ROOT / "tests" / "start_counts.json"
TOOLS = ("fcp", "fprof", "frm", "fsum")
GROWTH = 1.1  # what an update of Python or of a library may add
# Nothing of a small job on this machine; and what only the few need that ask for it.
NEVER = {
    "_hashlib",
    "asyncio",
    "dataclasses",
    "email",
    "hashlib",
    "importlib.metadata",
    "importlib.util",
    "inspect",
    "locale",
    "logging",
    "mpi4py",
    "multiprocessing",
    "numpy",
    "pathlib",
    "pcircle.transfer.dry",
    "pcircle.optional",
    "pcircle.transport._fork",
    "pcircle.transport._mpi",
    "rich",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "traceback",
    "urllib",
}
tools = pytest.mark.parametrize("tool", TOOLS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a tree of three files."""
    return _grown(tmp_path)


def _grown(place: Path) -> Path:
    shutil.rmtree(place / "copy", ignore_errors=True)
    (place / "tree").mkdir(exist_ok=True)
    for name in ("a", "b", "c"):
        (place / "tree" / name).write_bytes(name.encode())
    return place


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """As a user's, who speaks a language of his own, with a place for what is compiled."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "LC_", "COVERAGE_"))
    }
    compiled = str(tmp_path_factory.mktemp("compiled"))
    return environment | {"PYTHONPYCACHEPREFIX": compiled, "LANG": "de_CH.UTF-8", "LANGUAGE": ""}


def command_of(tool: str, jobs: int) -> list[str]:
    """The tool, as from this checkout, on the three files."""
    operands = {"fcp": ["tree", "copy"], "frm": ["-r", "tree"]}.get(tool, ["tree"])
    return [sys.executable, str(ROOT / "bin" / tool), f"-j{jobs}", *operands]


@pytest.fixture
def calls(
    run: Run, place: Path, environment: dict[str, str]
) -> Callable[[list[str]], dict[int, list[str]]]:
    """Runs a program, a second time under strace: the calls on files of each of its processes."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log = place / "strace.txt"

    def traced(command: list[str]) -> dict[int, list[str]]:
        for prefix in ([], [strace, "-f", "-qq", "-e", "trace=%file", "-o", str(log)]):
            _grown(place)
            done = run([*prefix, *command], env=environment, cwd=place)
            if prefix and b"ptrace" in done.stderr:
                pytest.skip(f"strace may not trace here: {done.stderr!r}")
            assert done.returncode == 0, done.stderr
        found: dict[int, list[str]] = {}
        for line in log.read_text().splitlines():
            thread, _, call = line.partition(" ")
            if "(" in call and "resumed>" not in call:
                found.setdefault(int(thread), []).append(call.strip())
        return found

    return traced


@tools
def test_calls_on_files(calls: Callable[[list[str]], dict[int, list[str]]], tool: str) -> None:
    """No more than a tenth above the recorded count."""
    own = sum(map(len, calls([sys.executable, "-c", "pass"]).values()))
    counts: dict[str, int] = json.loads(COUNTS.read_text())
    updates = bool(os.environ.get("PCIRCLE_UPDATE_COUNTS"))
    most = int(counts[tool] * GROWTH)
    # On a busy machine it takes longer, and makes a few calls more.
    found = []
    for _ in range(5):
        found.append(sum(map(len, calls(command_of(tool, 1)).values())) - own)
        if found[-1] <= most and not updates:
            return
    if not updates:
        pytest.fail(f"{min(found)} calls on files, {counts[tool]} recorded in {COUNTS.name}")
    COUNTS.write_text(json.dumps(counts | {tool: min(found)}, indent=4, sort_keys=True) + "\n")


@tools
def test_nobody_asks_for_translations(
    calls: Callable[[list[str]], dict[int, list[str]]], tool: str
) -> None:
    """argparse would, for each of its words, in each of the user's languages."""
    all_calls = [call for some in calls(command_of(tool, 1)).values() for call in some]
    assert [call for call in all_calls if ".mo" in call] == []


@tools
def test_forked_ranks_import_nothing(
    calls: Callable[[list[str]], dict[int, list[str]]], tool: str
) -> None:
    """The process that forks them has imported what they need."""
    processes = calls(command_of(tool, 2))
    assert len(processes) > 1
    first = min(processes, key=lambda number: not _executes(processes[number]))
    others = [call for number, some in processes.items() if number != first for call in some]
    assert [call for call in others if re.search(r"\.(pyc?|so)\b", call)] == []


def _executes(some: list[str]) -> bool:
    return any(call.startswith("execve(") for call in some)


@tools
def test_what_is_imported(run: Run, place: Path, environment: dict[str, str], tool: str) -> None:
    """Nothing that the job does not need; what msgspec and argparse bring is theirs."""
    brought = _imported(run, place, environment, ["-c", "import argparse, msgspec"])
    wanted = _imported(run, place, environment, command_of(tool, 1)[1:])
    assert f"pcircle.{tool}.command" in wanted
    assert (NEVER & wanted) - brought == set()


def _imported(run: Run, place: Path, environment: dict[str, str], arguments: list[str]) -> set[str]:
    done = run([sys.executable, "-X", "importtime", *arguments], env=environment, cwd=place)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"\| +([\w.]+)$", done.stderr.decode(), re.MULTILINE))
