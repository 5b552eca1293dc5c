"""The tools: the installed ones, and their command lines for a number of ranks.

A command line is a template; `Row.command` fills in the paths. Every tool gets a directory to copy
and a target that does not exist. Tools that preserve modes and times always do so here (cp -a,
rsync -a, xcp, fpsync); fcp and dcp do on request, so fcp has a row for each case, and ``dcp-p`` can
be requested by name. So can ``loop`` and ``c-loop``: plain loops in Python and C that make the same
system calls as fcp for each entry, and nothing else.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_TOOLS = ("cp", "rsync", "xcp", "dcp", "dcp-nosync", "fpsync", "fcp", "fcp-p")
LOOPS = ("loop", "c-loop")
ALL_TOOLS = (*DEFAULT_TOOLS, "dcp-p", *LOOPS)
REFERENCE = "cp -a"

_PROBE_S = 60.0
_NO_FCP = "neither in this checkout nor installed"


class Row(NamedTuple):
    """One line of the table: a tool at a number of ranks."""

    tool: str
    label: str
    ranks: int
    template: tuple[str, ...]

    def command(self, source: str, target: str, scratch: str) -> list[str]:
        places = {"{source}": source, "{source}/": source + "/", "{target}": target,
                  "{target}/": target + "/", "{scratch}": scratch}  # fmt: skip
        return [places.get(word, word) for word in self.template]


class Choice(NamedTuple):
    """The options of the user for tools."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    mpi: bool
    fcp: str | None
    mpirun: str | None
    dcp_mpirun: str | None


class Found(NamedTuple):
    """The rows that can run, and the reasons why others can't (tool: reason)."""

    rows: tuple[Row, ...]
    missing: dict[str, str]


def environment() -> dict[str, str]:
    """Return the environment of every tool: the user's, with fcp importable from this checkout."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def fcp_command(given: str | None) -> list[str] | None:
    """Return the fcp that the user named, else that of this checkout, an installed one, or None."""
    if given:
        return _existing(given)
    if (REPOSITORY / "pcircle" / "fcp" / "cli.py").is_file():
        return [sys.executable, "-m", "pcircle.tools.fcp"]
    found = _next_to_python("fcp") or shutil.which("fcp")
    return [found] if found else None


def _existing(given: str) -> list[str] | None:
    command = shlex.split(given)
    return command if command and shutil.which(command[0]) else None


def _next_to_python(name: str) -> str | None:
    return shutil.which(name, path=os.path.dirname(sys.executable))


def _launcher(command: Sequence[str]) -> list[str]:
    """Return `command` with the options for more ranks than cores, and for root, of Open MPI."""
    asked = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in asked.stdout and "open-mpi" not in asked.stdout:
        return list(command)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [*command, "--oversubscribe", *root]


def mpi_launcher(given: str | None) -> list[str] | None:
    """Return the mpirun for fcp: as specified, next to Python, or from PATH."""
    if given:
        command = _existing(given)
        return _launcher(command) if command else None
    for name in ("mpirun", "mpiexec"):
        found = _next_to_python(name) or shutil.which(name)
        if found:
            return _launcher([found])
    return None


def dcp_launcher(dcp: str, given: str | None, scratch: str) -> list[str] | str:
    """Return an mpirun that gives `dcp` one world of two ranks, or the reason why there is none.

    An mpirun of another MPI library starts two worlds of one rank, each of which copies everything
    and prints a final report. It is tried, since nothing else is reliable.
    """
    names = ("mpirun.mpich", "mpirun.openmpi", "mpirun", "mpiexec")
    candidates = [shlex.split(given)] if given else [[name] for name in names if shutil.which(name)]
    place = tempfile.mkdtemp(prefix="probe-", dir=scratch)
    source = os.path.join(place, "source")
    os.mkdir(source)
    Path(source, "file").write_text("probe\n")
    reason = "no mpirun found"
    for number, candidate in enumerate(candidates):
        target = os.path.join(place, f"target{number}")
        try:
            launcher = _launcher(candidate)
            tried = subprocess.run([*launcher, "-np", "2", dcp, source, target], check=False,
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                   timeout=_PROBE_S)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = f"{shlex.join(candidate)}: {error}"
            continue
        reports = (tried.stdout + tried.stderr).count("Completed:")
        if tried.returncode == 0 and reports <= 1 and os.path.exists(target + "/file"):
            return launcher
        reason = f"{shlex.join(candidate)} does not fit its MPI library (exit {tried.returncode})"
    return reason


def _fcp_rows(choice: Choice, tool: str, command: list[str]) -> list[Row]:
    preserve = ["-p"] if tool == "fcp-p" else []
    name = " ".join(["fcp", *preserve])
    rows = [
        Row(tool, f"{name} -j {ranks}", ranks,
            (*command, "-q", *preserve, "-j", str(ranks), "{source}", "{target}"))
        for ranks in choice.ranks
    ]  # fmt: skip
    launcher = mpi_launcher(choice.mpirun) if choice.mpi else None
    if launcher:
        rows += [
            Row(tool, f"mpirun -np {ranks} {name}", ranks,
                (*launcher, "-np", str(ranks), *command, "-q", *preserve, "{source}", "{target}"))
            for ranks in choice.ranks
        ]  # fmt: skip
    return rows


def _dcp_rows(choice: Choice, tool: str, launcher: list[str]) -> list[Row]:
    preserve = ("-p",) if tool == "dcp-p" else ()
    program = "dcp-nosync" if tool == "dcp-nosync" else "dcp"
    name = " ".join([program, *preserve])
    return [
        Row(tool, f"{name} n={ranks}", ranks,
            (*launcher, "-np", str(ranks), program, "-q", *preserve, "{source}", "{target}"))
        for ranks in choice.ranks
    ]  # fmt: skip


def _peer_rows(tool: str, ranks: Iterable[int]) -> list[Row]:
    if tool == "cp":
        return [Row(tool, REFERENCE, 1, ("cp", "-a", "{source}", "{target}"))]
    if tool == "rsync":
        return [Row(tool, "rsync -a", 1, ("rsync", "-a", "{source}/", "{target}/"))]
    if tool == "xcp":
        return [Row(tool, f"xcp -w {n}", n,
                    ("xcp", "-r", "--no-progress", "-w", str(n), "{source}", "{target}"))
                for n in ranks]  # fmt: skip
    return [Row(tool, f"fpsync -n {n}", n,
                ("fpsync", "-n", str(n), "-t", "{scratch}", "{source}/", "{target}/"))
            for n in ranks]  # fmt: skip


def _loop_row(tool: str, scratch: str) -> Row | str:
    """Return a plain loop over the system calls of a copy, or the reason why there is none."""
    source = Path(__file__).with_name("plain_loop.py")
    words = ("{source}", "{target}")
    if tool == "loop":
        return Row(tool, "plain loop", 1, (sys.executable, "-IS", str(source), *words))
    compiler = shutil.which("cc")
    if compiler is None:
        return "no C compiler"
    program = os.path.join(scratch, "plain_loop")
    subprocess.run([compiler, "-O2", "-o", program, source.with_suffix(".c")], check=True)
    return Row(tool, "plain loop in C", 1, (program, *words))


def find(choice: Choice, scratch: str) -> Found:
    """Return the rows of the chosen tools, in the order of the command line."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    for tool in choice.names:
        if tool in ("fcp", "fcp-p"):
            command = fcp_command(choice.fcp)
            if command is None:
                missing[tool] = f"not found: {choice.fcp}" if choice.fcp else _NO_FCP
                continue
            rows += _fcp_rows(choice, tool, command)
            if choice.mpi and mpi_launcher(choice.mpirun) is None:
                missing[f"mpirun {tool}"] = f"not found: {choice.mpirun or 'mpirun'}"
            continue
        if tool in LOOPS:
            row = _loop_row(tool, scratch)
            if isinstance(row, str):
                missing[tool] = row
            else:
                rows.append(row)
            continue
        program = "dcp" if tool == "dcp-p" else tool
        if shutil.which(program) is None:
            missing[tool] = "not on PATH"
        elif program.startswith("dcp"):
            launcher = dcp_launcher(program, choice.dcp_mpirun, scratch)
            if isinstance(launcher, str):
                missing[tool] = launcher
            else:
                rows += _dcp_rows(choice, tool, launcher)
        else:
            rows += _peer_rows(tool, choice.ranks)
    return Found(tuple(rows), missing)


def _first_line(argv: Sequence[str]) -> str:
    asked = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           errors="backslashreplace", check=False)  # fmt: skip
    return next(iter((asked.stdout or asked.stderr).strip().splitlines()), "?")


def versions(found: Found) -> dict[str, str]:
    """Return the reported version of each tool that runs; dcp has no such option."""
    ways = {"cp": ("cp", "--version"), "rsync": ("rsync", "--version"),
            "xcp": ("xcp", "--version"), "fpsync": ("fpsync", "-h")}  # fmt: skip
    present = dict.fromkeys(row.tool for row in found.rows)
    known = {tool: _first_line(ways[tool]) for tool in present if tool in ways}
    for row in found.rows:
        if row.tool in ("fcp", "fcp-p") and row.label.startswith("fcp"):
            # The command up to its own first option, including the interpreter's part.
            known["fcp"] = _first_line([*row.template[: row.template.index("-q")], "--version"])
    for tool, path in ((tool, shutil.which(tool)) for tool in ("dcp", "dcp-nosync")):
        if path and tool in present:
            known[tool] = f"no version option ({path})"
    return known
