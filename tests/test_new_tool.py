"""The tool in `docs/new-tool.rst` counts like `grep -c`, and exits like all tools."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.runtime.conftest import Ranks
from tests.runtime.test_stopping import await_ranks, started

EXAMPLE = ROOT / "examples" / "count_matches.py"
RANKS = [Ranks(1), Ranks(4), pytest.param(Ranks(3, mpi=True), marks=pytest.mark.mpi)]
CONTENT = b"an error\nError: none\n\xff\0binary error\n\n"

Tool = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree with unusual names, a large directory, deep directories and special files."""
    root = tmp_path_factory.mktemp("new") / "tree"
    (root / "many").mkdir(parents=True)
    for number in range(700):
        (root / "many" / f"{number}.log").write_bytes(CONTENT * (number % 3) + b"error at the end")
    deep = root
    for number in range(40):
        deep = deep / f"{number}"
        deep.mkdir()
        (deep / "file").write_bytes(CONTENT)
        (deep / "other.txt").write_bytes(b"")
    (root / "link").symlink_to("many")
    (root / "linked.log").symlink_to("many/1.log")
    (root / "empty").mkdir()
    (root / ".hidden").write_bytes(CONTENT)
    os.mkfifo(root / "fifo")
    with open(os.fsencode(root) + b"/not \xff utf-8", "wb") as file:
        file.write(CONTENT)
    return root


@pytest.fixture
def tool(run: Run, request: pytest.FixtureRequest) -> Tool:
    def start(ranks: Ranks, *arguments: object) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, str(EXAMPLE), *(() if ranks.mpi else ("-j", str(ranks.size)))]
        if ranks.mpi:
            mpirun: Callable[[int], list[str]] = request.getfixturevalue("mpirun")
            line = [*mpirun(ranks.size), *line]
        return run([*line, *map(str, arguments)])

    return start


def counted(output: bytes) -> list[bytes]:
    assert output.endswith(b"\n")
    return sorted(output.splitlines())


def grep(run: Run, *arguments: object) -> list[bytes]:
    """Return grep's counts in the C locale, in which it treats bytes as bytes like the tool."""
    command = ["grep", "-aHcE", *map(str, arguments)]
    return counted(run(command, env={**os.environ, "LC_ALL": "C"}).stdout)


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_counts_equal_those_of_grep(run: Run, tool: Tool, tree: Path, ranks: Ranks) -> None:
    done = tool(ranks, "-q", "--json", tree.parent / "result.json", "e(rr)or$", tree)
    assert (done.returncode, done.stderr) == (0, b"")
    expected = grep(run, "-r", "e(rr)or$", tree)
    assert counted(done.stdout) == expected
    report = json.loads((tree.parent / "result.json").read_bytes())
    assert report["exit_code"] == 0
    assert report["failures"] == report["reasons"] == []
    assert report["counts"]["files"] == len(expected) == 700 + 80 + 2
    assert report["counts"]["lines"] == sum(int(line.rpartition(b":")[2]) for line in expected)
    assert report["counts"]["directories"] == 43
    assert (report["counts"]["links"], report["counts"]["special"]) == (2, 1)
    assert len(report["ranks"]) == ranks.size


@pytest.mark.parametrize(
    ("ours", "of_grep"),
    [
        (["-i", "error"], ["-ri", "error"]),
        (["--exclude", "*.log", "error"], ["-r", "--exclude=*.log", "error"]),
        (["--exclude", "many/", "error"], ["-r", "--exclude-dir=many", "error"]),
        (["^$"], ["-r", "^$"]),
        (["--", "-o"], ["-r", "-e", "-o"]),
    ],
    ids=repr,
)
def test_its_options(run: Run, tool: Tool, tree: Path, ours: list[str], of_grep: list[str]) -> None:
    done = tool(Ranks(2), *ours, tree)
    assert done.returncode == 0, done.stderr
    assert counted(done.stdout) == grep(run, *of_grep, tree)


def test_files_and_directories_side_by_side(run: Run, tool: Tool, tree: Path) -> None:
    operands = [tree / "many" / "2.log", tree / "0" / "1", tree / "linked.log"]
    done = tool(Ranks(2), "error", *operands)
    assert counted(done.stdout) == grep(run, "-r", "error", *operands)


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_entries_of_a_list(run: Run, tool: Tool, tree: Path, tmp_path: Path, ranks: Ranks) -> None:
    names = [f"many/{number}.log" for number in range(0, 700, 3)] + ["0/1/file"]
    (tmp_path / "list").write_text("\n".join(names))
    done = tool(ranks, "--files-from", tmp_path / "list", "error", tree)
    assert done.returncode == 0, done.stderr
    assert counted(done.stdout) == grep(run, "error", *(tree / name for name in names))


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_an_unreadable_file(tool: Tool, tree: Path, tmp_path: Path, ranks: Ranks) -> None:
    """The file is named, and all others are counted; the kernel refuses to read it at offset 0."""
    log, result = tmp_path / "log", tmp_path / "result"
    done = tool(
        ranks, "--error-log", log, "--json", result, "error", "/proc/self/mem", tree / "0/file"
    )
    assert done.returncode == 1
    assert b"count_matches: cannot read '/proc/self/mem': Input/output error\n" in done.stderr
    assert b"count_matches: 1 failure: 1 EIO (Input/output error)\n" in done.stderr
    assert done.stdout == b"%b:2\n" % os.fsencode(tree / "0/file")
    assert json.loads(log.read_bytes())["errno"] == 5
    report = json.loads(result.read_bytes())
    assert (report["exit_code"], report["counts"]["failed"]) == (1, 1)
    assert report["failures"][0]["path"] == "/proc/self/mem"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing operand PATH"),
        (["error"], "missing operand PATH"),
        (["error", "/no/such"], "cannot read '/no/such': No such file or directory"),
        (["(", "/"], "invalid PATTERN: missing ), unterminated subpattern at position 0"),
        (["--ignore-cas", "x", "/"], "unknown option '--ignore-cas'; did you mean --ignore-case?"),
        (["-0", "x", "/"], "--null requires --files-from, --exclude-from or --include-from"),
        (
            ["--json", "/no/such/file", "x", "/"],
            "cannot write '/no/such/file': its directory does not exist",
        ),
    ],
    ids=repr,
)
def test_refusals(tool: Tool, arguments: list[str], said: str) -> None:
    done = tool(Ranks(2), *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"count_matches: {said}\n")


def test_unwritable_results(run: Run, tree: Path) -> None:
    command: list[str | Path] = [sys.executable, EXAMPLE, "-j2", "error", tree]
    done = run(["sh", "-c", 'exec "$@" > /dev/full', "sh", *command])
    assert done.returncode == 1
    assert b"count_matches: cannot write standard output: No space left on device\n" in done.stderr


WAITING = """\
import sys, time
sys.path.insert(0, {examples!r})
import count_matches
from tests.runtime.tasks import Meeting
def file(self, entry, here):
    Meeting({folder!r}, 2).wait(here.is_stopping)
    while not here.stopping:
        time.sleep(0.005)
count_matches.Task.file = file
sys.exit(count_matches.main(count_matches.parser, count_matches.carry_out))
"""


def test_an_interrupt(tree: Path, tmp_path: Path) -> None:
    """An interrupt while both ranks process files prints the command that continues."""
    folder = tmp_path / "meeting"
    folder.mkdir()
    text = WAITING.format(examples=str(EXAMPLE.parent), folder=str(folder))
    # Two roots: one rank processes the contents of a root until it has work to give away.
    roots = [str(tree / "0"), str(tree / "many")]
    line = [sys.executable, "-c", text, "-j2", "an error", *roots]
    with started(line, dict(os.environ)) as process:
        await_ranks(process, folder, 2)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert b"count_matches: stopped by SIGINT\n" in said
    assert b"not all ranks got an item" not in said
    again = shlex.join(["count_matches", "-j2", "an error", *roots])
    next_time = f"count_matches: to try again, run: {again}\n"
    assert said.decode().endswith(next_time)


def blocks(page: str) -> Iterator[str]:
    """Return the literal blocks of a page, without their indentation."""
    lines = page.splitlines()
    for number, line in enumerate(lines):
        if line.endswith("::"):
            end = number + 1
            while end < len(lines) and (not lines[end] or lines[end].startswith("    ")):
                end += 1
            yield "\n".join(text_line[4:] for text_line in lines[number + 1 : end]).strip()


def test_the_page_shows_the_tool_as_it_is() -> None:
    """The tool has at most 80 lines, and the page quotes it exactly."""
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) <= 80
    page = (ROOT / "docs" / "new-tool.rst").read_text()
    quoted = [block for block in blocks(page) if block.startswith(("class ", "def "))]
    assert len(quoted) >= 6
    assert [block for block in quoted if block not in source] == []


def test_the_program_of_the_page(run: Run, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "new-tool.rst").read_text()
    (program,) = (block for block in blocks(page) if block.startswith("from pcircle.runtime"))
    (tmp_path / "program.py").write_text(program)
    done = run([sys.executable, str(tmp_path / "program.py")])
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"%d\n" % sum(number * number for number in range(1000))
