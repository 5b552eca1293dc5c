"""After `kill -9` of a rank of `-j` at any moment, the job completes normally.

The first rank is the process that was started; it is not killed here. `docs/design.rst` describes
the mechanism and its cost. fcp, which resumes from its checkpoint, has tests of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.conftest import SOAK
from tests.fusefs.fixture import fuse
from tests.fusefs.mounting import Mounted
from tests.fusefs.rules import Rule
from tests.lost import run_killing
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import Finished, Launcher, Run

__all__ = ["fuse", "place"]  # fixtures

SEEDS = range(40 if SOAK else 1)


class Trees(NamedTuple):
    """Two directories that differ in some files."""

    one: Path
    other: Path


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    place = tmp_path_factory.mktemp("lost")
    made = Trees(place / "one", place / "other")
    for tree in made:
        for number in range(24):
            folder = tree / f"d{number % 5}" / f"e{number}"
            folder.mkdir(parents=True)
            for name in range(60):
                differs = tree == made.other and name == number
                (folder / f"f{name}").write_bytes(b"x" * (name * 40 + differs))
        (tree / "d1" / "none").symlink_to("nowhere")
    return made


def _whole(tool: str, arguments: Sequence[str]) -> Finished:
    with Run(Launcher(jobs=1), *arguments, program=(f"pcircle.tools.{tool}",)) as run:
        return run.finish()


def _alike(finished: Finished) -> tuple[int, list[bytes]]:
    return finished.code, sorted(re.split(b"[\n\0]", finished.out))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("ffind", "-ls"),
        ("ffind", "-type f -print0"),
        ("fdiff", "-i"),
        ("fls", "-lR"),
        ("fsum", ""),
        ("frm", "-rvn"),
    ],
    ids=str,
)
def test_each_result_is_printed_once(tool: str, options: str, seed: int, trees: Trees) -> None:
    """All results are printed once, in any order."""
    places = list(map(str, trees)) if tool == "fdiff" else [str(trees.one)]
    words = options.split()
    arguments = [*places, *words] if tool == "ffind" else [*words, *places]
    rng = Random(f"{tool} {options} {seed}")
    finished, kills = run_killing(rng, tool, rng.choice((2, 3, 4)), *arguments, kills=1 + seed % 2)
    said = f"{kills} killed: {finished.said}"
    assert _alike(finished) == _alike(_whole(tool, arguments)), said
    assert "Traceback" not in said


@pytest.mark.parametrize("tool", ["ffind", "fls"])
def test_helper_threads_do_not_block_a_restart(tool: str, fuse: Callable[..., Mounted]) -> None:
    """Helpers with slow calls do not block a restart: they wait until their task is closed."""
    mount = fuse()
    for number in range(600):
        (Path(os.fsdecode(mount.backing)) / f"f{number}").touch()
    mount.rules(Rule(("lookup", "getattr"), delay_s=0.004))
    words: list[str | bytes] = ["-l", mount.path] if tool == "fls" else [mount.path, "-ls"]
    for seed in SEEDS:
        finished, kills = run_killing(Random(seed), tool, 2, *words, within_s=0.1)
        assert kills
        assert finished.code == 0, finished.said


@pytest.mark.parametrize("seed", SEEDS)
def test_files_are_complete_after_a_kill(seed: int, trees: Trees, tmp_path: Path) -> None:
    """Lists name each entry once, and manifests and indexes are identical."""
    rng = Random(f"files {seed}")
    names = {
        "fsum": ("-o", "manifest"),
        "fprof": ("--entries", "--save", "profile", "--json", "told"),
        "fdiff": ("-q", "--json-lines", "actions", "--list-out", "list"),
    }
    for tool, options in names.items():
        places = list(map(str, trees))[: 1 + (tool == "fdiff")]
        found: list[dict[str, Any]] = []
        for jobs in (1, 3):
            here = tmp_path / f"{tool}{jobs}"
            here.mkdir()
            started = "--error-log", "errors", *options, *places
            cwd = bytes(here)
            if jobs == 1:
                with Run(
                    Launcher(jobs=1), *started, program=(f"pcircle.tools.{tool}",), cwd=cwd
                ) as run:
                    finished, kills = run.finish(), 0
            else:
                finished, kills = run_killing(rng, tool, jobs, *started, cwd=cwd)
            said = f"{tool}, {kills} killed: {finished.said}"
            assert finished.code == (3 if tool == "fdiff" else 0), said
            found.append({path.name: _known(path) for path in here.iterdir()})
        assert found[0] == found[1], tool


def _known(path: Path) -> Any:
    """Return the content of a file, without the parts that depend on ranks or time."""
    if path.name == "told":
        return json.loads(path.read_bytes())["counts"]
    if path.name == "actions":
        lines = map(json.loads, path.read_bytes().splitlines())
        return sorted((line["action"], line["path"], line["why"]) for line in lines)
    if path.name == "list":
        return sorted(path.read_bytes().splitlines())
    return "" if path.name.startswith("profile") else path.read_bytes()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_list_is_read_again(seed: int, trees: Trees, tmp_path: Path) -> None:
    rng = Random(f"list {seed}")
    listed = tmp_path / "listed"
    listed.write_text("".join(f"d{n % 5}/e{n}/f{m}\n" for n in range(24) for m in range(0, 60, 3)))
    arguments = "--files-from", str(listed), str(trees.one)
    for tool in ("fls", "fsum"):
        finished, kills = run_killing(rng, tool, 3, *arguments)
        said = f"{tool}, {kills} killed: {finished.said}"
        assert _alike(finished) == _alike(_whole(tool, arguments)), said


@pytest.mark.parametrize("seed", SEEDS)
def test_each_removal_is_counted_once(seed: int, tmp_path: Path) -> None:
    """Entries that a killed rank removed are counted as well."""
    rng = Random(f"removed {seed}")
    trees, entries = [str(tmp_path / name) for name in "ab"], 0
    for tree in trees:
        for number in range(30):
            folder = Path(tree, f"d{number % 4}", f"e{number}")
            for inner in range(6):
                (folder / f"s{inner}").mkdir(parents=True)
                (folder / f"s{inner}" / "file").touch()
                (folder / f"s{inner}" / "link").symlink_to("file")
            for name in range(50):
                (folder / f"f{name}").touch()
        entries += 1 + 4 + 30 * (1 + 6 * 3 + 50)
    report = tmp_path / "report"
    options = rng.choice([(), ("--ops-limit", "9000"), ("--max-delete", "100%")])
    started = "-r", *options, "--json", str(report), *trees
    finished, kills = run_killing(rng, "frm", rng.choice((2, 3, 4)), *started, within_s=0.1)
    said = f"{options}, {kills} killed: {finished.said}"
    assert finished.code == 0, said
    counts = json.loads(report.read_bytes())["counts"]
    assert counts["found"] == entries, said
    removed = [counts[kind] for kind in ("files", "directories", "links")]
    assert sum(removed) == entries, said
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_commands_are_not_restarted(trees: Trees, tmp_path: Path) -> None:
    """Commands never run twice: the job ends with exit code 4 and explains what to do."""
    ran = tmp_path / "ran"
    ran.touch()
    command = f"sleep 0.01; echo {{}} >> {ran}"
    arguments = str(trees.one), "-name", "f1", "-exec", "sh", "-c", command, ";"
    finished, kills = run_killing(Random(1), "ffind", 3, *arguments)
    lines = ran.read_text().splitlines()
    assert len(set(lines)) == len(lines)
    assert kills == 0 or finished.code == 4, finished.said
    assert kills == 0 or "to try again, run: ffind" in finished.said
