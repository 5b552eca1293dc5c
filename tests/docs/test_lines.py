"""Command lines in the manuals' literal blocks run, in directories that replace those of the root.

They have no output, so only their exit code is checked.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from docs.generate.reference import Reference, references
from tests.conftest import ROOT, Run
from tests.docs.pages import PAGES, called, is_synopsis, literal_lines

# Lines that are not run here, by a part of the line, and the reason.
NOT_RUN = {
    "8 hosts": "a table",
    "srun": "needs Slurm",
    "-hosts": "needs two hosts",
    "mpirun --": "depends on the MPI library",
    "pip install": "an installation has a test of its own, tox -e install",
    "--diff OLD NEW": "a synopsis",
    "fchown": "needs root",
    "--group users": "needs a group of that name, and its membership",
    "fchmod --apply before": "needs the one above",
    "fchmod --apply readable": "needs the one above",
    "--changed=fs": "needs btrfs and root",
}
# The same for examples of help.
HELP_NOT_RUN = {
    "fbench": "takes minutes, and has tests of its own",
    "fchgrp": "needs a group of that name",
    "pcircle scale": "takes minutes, and has tests of its own",
}
# Commands that require two different trees.
DIFFERENT = ("fdiff", "fsum --check copy.manifest")
NAMES = ("a.txt", "b.h5", "c.nc", "d.log", "sub/e.tmp", "sub/deep/f")
TREES = (
    "data", "data/project", "archive/data", "archive/run42", "backup/data", "backup/project",
    "scratch/old", "scratch/tmp", "scratch/results", "env", "src", "share",
)  # fmt: skip
_OLD_S = 1_600_000_000


def _lines(page: Path) -> list[str]:
    return [line for line in literal_lines(page) if list(called(line)) and not is_synopsis(line)]


_WITH_LINES = [page for page in [*PAGES, ROOT / "README.rst"] if _lines(page)]


def _why_not(line: str) -> str:
    return next((reason for part, reason in NOT_RUN.items() if part in line), "")


def _build(here: Path) -> None:
    """Create the missing files; those of earlier lines stay."""
    for tree in TREES:
        for name in NAMES:
            path = here / tree / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name * 100)
                os.utime(path, (_OLD_S, _OLD_S))
    for directory in ("shm", "dst", "scratch/.trash", "data/projects/empty"):
        (here / directory).mkdir(parents=True, exist_ok=True)
    (here / "stamp").touch()
    os.utime(here / "stamp", (_OLD_S - 1, _OLD_S - 1))


def _here(line: str) -> str:
    """Return the line with one process, and with root directories below the working directory."""
    line = re.sub(r"mpirun -np \d+ ", "", line.removeprefix("$ "))
    line = re.sub(r"(?<=[\s'])/(usr/|dev/)?(?=[a-z])", "", line)
    if re.search(r"fprof .*--(diff|merge)|fsum .*--(diff|export)", line):
        return line  # these run no job
    tools = "bcast|chmod|cp|diff|find|ls|mirror|prof|rm|sum"
    return re.sub(rf"\b(f(?:{tools})) (?=-|\w)", r"\1 -j1 ", line)


@pytest.mark.parametrize("page", _WITH_LINES, ids=lambda page: page.stem)
def test_lines_of_a_page(run: Run, tmp_path: Path, page: Path) -> None:
    path = os.pathsep.join(
        [str(ROOT / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    _build(tmp_path)
    if any("last.profile" in line for line in _lines(page)):
        run(["fprof", "-q", "--save", "last.profile", "data"], cwd=tmp_path, env=environment)
    for line in _lines(page):
        if _why_not(line):
            continue
        _build(tmp_path)
        done = run(["bash", "-o", "pipefail", "-c", _here(line)], cwd=tmp_path, env=environment)
        codes = (0, 3) if line.removeprefix("mpirun -np 8 ").startswith(DIFFERENT) else (0,)
        assert done.returncode in codes, f"{_here(line)}\n{done.stderr.decode()}"


@pytest.mark.parametrize("about", references(), ids=lambda about: about.command.name)
def test_examples_of_help(run: Run, tmp_path: Path, about: Reference) -> None:
    """Each example runs through sh, in a directory whose names an unquoted pattern would match."""
    path = os.pathsep.join(
        [str(ROOT / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    _build(tmp_path)
    for name in ("x.h5", "y.h5", "x.tmp", "y.tmp"):
        (tmp_path / name).touch()
    if about.command.name == "fprof":
        run(["fprof", "-q", "--save", "last.profile", "data"], cwd=tmp_path, env=environment)
    for line in about.examples:
        assert not set(re.sub(r"'[^']*'", "", line)) & set("*?[\\$`"), f"not quoted: {line}"
        if _why_not(line) or any(part in line for part in HELP_NOT_RUN):
            continue
        _build(tmp_path)
        done = run(["sh", "-c", _here(line)], cwd=tmp_path, env=environment)
        codes = (0, 3) if about.command.name in ("fdiff", "fsum") else (0,)
        assert done.returncode in codes, f"{_here(line)}\n{done.stderr.decode()}"


def test_no_example_of_frm_removes_a_whole_file_system() -> None:
    (about,) = (reference for reference in references() if reference.command.name == "frm")
    whole = re.compile(r" -r (?:/|/\w+)$")
    assert [line for line in about.examples if whole.search(line)] == []


def test_skipped_lines_exist() -> None:
    every = [line for page in _WITH_LINES for line in _lines(page)]
    assert every
    assert [part for part in NOT_RUN if not any(part in line for line in every)] == []
