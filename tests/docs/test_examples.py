"""The examples of the pages run, and their output matches the pages."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import sys
from itertools import groupby
from pathlib import Path

import pytest

from pcircle.core.errors import UsageError
from tests.conftest import ROOT, Run
from tests.docs.pages import PAGES, Block, blocks, called, commands, parsed, preparation

RUN = ("console", "python")
_WITH_EXAMPLES = [
    page for page in PAGES if any(each.language in RUN and each.runs for each in blocks(page))
]
# Values that vary between runs: durations, rates, process numbers, names of checkpoints.
_VARYING = [
    (r"\b\d[\d.,]*(?: ?(?:[kKMGT]i?)?B| entr(?:y|ies)| files| calls)?/s\b", "RATE"),
    (r"\b(?:\d+m ?)?\d[\d.]*(?: ?(?:ms|s|us))\b", "TIME"),
    (r"\.fcp-checkpoint-[0-9a-f]{16}", "CHECKPOINT"),
]
_ITEMIZED = re.compile("[.<>ch][fdLDS][^ ]{9} ")


def _by_name(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


def _settled(text: str, here: Path) -> str:
    """Return the text without the parts that vary between runs."""
    text = text.replace(str(here), "/home/ada")
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    text = re.sub(" {2,}", "  ", text)  # columns are as wide as these values
    lines = [line.rstrip() for line in text.strip().splitlines()]
    settled: list[str] = []
    for is_itemized, group in groupby(lines, key=lambda line: bool(_ITEMIZED.match(line))):
        block_lines = list(group)
        settled += (
            sorted(block_lines) if is_itemized else block_lines
        )  # processes report in any order
    return "\n".join(settled)


def _is_like(expected: str, written: str) -> bool:
    pieces = [re.escape(piece) for piece in re.split(r"(?m)\.\.\.", expected)]
    return re.fullmatch("(?s:.*?)".join(pieces), written) is not None


def test_varying_parts_are_masked() -> None:
    here = Path("/tmp/x")
    assert _settled("in 0.27s: 239.3 MiB/s, 758 entries/s", here) == "in TIME: RATE, RATE"
    assert _settled("in 1.85s: 2 B/s, 1 entry/s", here) == "in TIME: RATE, RATE"
    assert (
        _settled("208 entries (65.6 MiB) in '/tmp/x/a' ", here)
        == "208 entries (65.6 MiB) in '/home/ada/a'"
    )
    assert _settled(">f+++++++++ a\n.d..t...... ./\nz", here) == ".d..t...... ./\n>f+++++++++ a\nz"
    assert _is_like("a\n...c", "a\nb\nc")
    assert not _is_like("a\n...c", "a\nb\nd")
    assert not _is_like("a.c", "abc")


def _script(page: Path, folder: Path) -> tuple[str, list[tuple[Block, str]]]:
    """Return a script that runs a page, writing numbered output files, and the expected output."""
    lines = [preparation(page), "last=0"]
    expected: list[tuple[Block, str]] = []
    every = blocks(page)
    for block, behind in zip(every, [*every[1:], None], strict=True):
        if block.language not in RUN or not block.runs:
            continue
        if block.language == "python":
            program = folder / f"{len(expected)}.py"
            program.write_text(block.text)
            written = behind.text if behind is not None and behind.classes == "output" else "..."
            command_lines = [
                (f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}", written)
            ]
        else:
            command_lines = [(shown.line_typed, shown.written) for shown in commands(block)]
        for line, written in command_lines:
            output = shlex.quote(str(folder / f"{len(expected)}.out"))
            lines += ["(exit $last)", f"eval {shlex.quote(line)} > {output} 2>&1", "last=$?"]
            lines += [f"echo $last > {output}.code"]
            expected.append((block, written))
    return "\n".join(lines) + "\n", expected


@pytest.mark.parametrize("page", _WITH_EXAMPLES, ids=_by_name)
def test_a_page_is_correct(run: Run, tmp_path: Path, page: Path) -> None:
    """All blocks of a page run in order, in a directory of their own."""
    here, folder = tmp_path / "here", tmp_path / "outputs"
    here.mkdir()
    folder.mkdir()
    text, expected = _script(page, folder)
    path = os.pathsep.join(
        [str(ROOT / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    environment = {
        **os.environ,
        "PATH": path,
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "HOME": str(here),
    }
    done = run(["bash", "-c", text], cwd=here, env=environment)
    assert done.stderr == b"", done.stderr.decode()
    for number, (block, wanted) in enumerate(expected):
        where = f"{_by_name(page)}:{block.line}"
        written = (folder / f"{number}.out").read_text(errors="backslashreplace")
        code = (folder / f"{number}.out.code").read_text().strip()
        if block.language == "python" and code != "0":
            pytest.fail(f"{where}: exit code {code}\n{written}", pytrace=False)
        if not _is_like(_settled(wanted, here), _settled(written, here)):
            pytest.fail(f"{where}: expected\n{wanted}\nwritten\n{written}", pytrace=False)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.rst"], ids=lambda page: page.name)
def test_every_command_line_is_accepted(page: Path) -> None:
    """The parser of each tool accepts it, even if it can't run here."""
    for block in blocks(page):
        if block.language not in ("", "console", "bash", "text"):
            continue
        text = block.text
        if block.language == "console":
            text = "\n".join(shown.line_typed for shown in commands(block))
        for tool, words in called(text):
            try:
                parsed(tool, words)
            except UsageError as error:
                pytest.fail(f"{page.name}:{block.line}: {tool} {words}: {error}", pytrace=False)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.rst"], ids=lambda page: page.name)
def test_programs_in_literal_blocks_are_valid(page: Path) -> None:
    """Imported names exist, and calls of tools use existing options."""
    for block in blocks(page):
        if block.language or not re.match(r"(?:from|import) \w", block.text):
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert missing == [], f"{page.name}:{block.line}"


def test_skipped_examples_have_a_reason() -> None:
    named = [
        f"{_by_name(block.page)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if not block.runs and not block.comment
    ]
    assert named == []


@pytest.mark.parametrize("page", PAGES, ids=_by_name)
def test_blocks_are_of_a_known_kind(page: Path) -> None:
    known = {"", "console", "python", "pycon", "text", "bash", "json"}
    assert {block.language for block in blocks(page)} <= known
