"""Help texts fit a terminal and have one layout; messages name the mistake in one format.

No test compares a message word by word.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from pcircle.cli.arguments import OptionalValue, Parser
from tests.conftest import ROOT, Run

TOOLS = ("fcp", "fsum", "fprof", "fbench", "ffind", "fls", "frm", "fbcast", "fchmod", "fdiff")
COLUMNS = 80
MAX_PHRASE = 60
# Help that lists the values of an option is as long as the list.
LISTS_VALUES = {"--preserve", "--signature", "--algorithm", "--sparse", "--reflink"}
USUAL_GROUPS = {"--threads": "Performance", "--json": "Output", "--exclude": "Filters"}
MAX_TITLE_WORDS = 6
# Wording that no message to a user may contain.
REJECTED = re.compile(
    r"Traceback|\b(?:None|True|False|NotImplemented)\b|\bnot\b[^,;:]*\bnot\b|\bno\b[^,;:]*\bnot\b"
    r"|\bcan not\b|!|\.$|  | ,|\t"
)

every_tool = pytest.mark.parametrize("tool", TOOLS)


def _parser(tool: str) -> Parser:
    built: Parser = importlib.import_module(f"pcircle.tools.{tool}.cli").parser()
    return built


def _examples(tool: str) -> list[str]:
    text = _parser(tool).format_help()
    return [line.strip() for line in text.partition("\nExamples:\n")[2].splitlines()]


@every_tool
def test_help_fits_eighty_columns(run: Run, tool: str) -> None:
    environment = os.environ | {"COLUMNS": str(COLUMNS)}
    done = run([sys.executable, ROOT / "bin" / tool, "--help"], env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0].lower().startswith(f"usage: {tool} ")
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("tool", [*TOOLS, "fchgrp", "fchown", "fmirror"])
def test_the_short_help_fits_one_screen(run: Run, tool: str) -> None:
    """It shows the usage, the most used options and three examples; -h prints it where it can."""
    environment = {**os.environ, "COLUMNS": "80"}
    start = [sys.executable, str(ROOT / "bin" / tool)]
    done = run([*start, "--help=short"], env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: {tool} ")
    assert len(lines) - lines.index("Examples:") == 6
    if tool not in ("fls", "fchmod", "fchown", "fchgrp"):  # another option has this name
        assert run([*start, "-h"], env=environment).stdout == done.stdout


def test_help_after_an_option_is_not_its_value(run: Run) -> None:
    """An option that lacks its value is an error, as with other words that begin with a dash."""
    for words in (["-j", "--help=short"], ["-o", "--help=short"]):
        done = run([sys.executable, ROOT / "bin" / "fsum", *words])
        assert done.returncode == 2
        assert words[0] in done.stderr.decode()
        assert done.stdout == b""


def test_the_short_help_of_ffind_names_primaries(run: Run) -> None:
    said = run([sys.executable, ROOT / "bin" / "ffind", "-h"]).stdout.decode()
    assert {"-name", "-size", "-mtime", "-delete", "-exec"} <= set(re.findall(r"-[a-z]+", said))


@every_tool
def test_help_follows_the_width(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    """In a narrow window everything but commands is wrapped, and words stay whole."""
    monkeypatch.setenv("COLUMNS", "400")
    wide = _parser(tool).format_help()
    monkeypatch.setenv("COLUMNS", "40")
    narrow = _parser(tool).format_help()
    assert set(re.split(r"[\s,/]+", narrow)) == set(re.split(r"[\s,/]+", wide))
    lines = narrow.splitlines()
    assert [line for line in lines[1:] if len(line) > 40 and not line.startswith(" ")] == []
    begin, end = lines.index("Options:"), lines.index("Performance:")
    options = [line for line in lines[begin:end] if re.match(r" +--?\w| {20,}", line)]
    explained = [line for line in options if not line.lstrip().startswith("-")]
    assert explained
    assert [line for line in explained if len(line) > 40] == []


@every_tool
def test_a_help_line_is_one_phrase(tool: str) -> None:
    actions = [a for a in _parser(tool)._actions if a.help not in (None, argparse.SUPPRESS)]
    assert actions
    for action in actions:
        name, text = action.option_strings[-1], action.help or ""
        assert not text.endswith("."), name
        assert len(text) <= MAX_PHRASE or name in LISTS_VALUES, (name, len(text))


@every_tool
def test_groups_have_the_usual_order_and_names(tool: str) -> None:
    """Option groups have the usual order and names.

    The first group has the options of every tool, the last one is about output; shared options are
    in the same group in every tool.
    """
    groups = [group for group in _parser(tool)._action_groups if group._group_actions]
    titles = [str(group.title) for group in groups]
    assert titles[:2] == ["positional arguments", "Options"]
    assert titles[-1] == "Output"
    assert len(set(titles)) == len(titles)
    assert [title for title in titles[1:] if not title[0].isupper() or title[-1] == ":"] == []
    assert [title for title in titles if len(title.split()) > MAX_TITLE_WORDS] == []
    for group in groups:
        for option in {name for action in group._group_actions for name in action.option_strings}:
            assert USUAL_GROUPS.get(option, group.title) == group.title, option


@every_tool
def test_optional_values_are_shown_in_brackets(tool: str) -> None:
    text = _parser(tool).format_help()
    for action in _parser(tool)._actions:
        if isinstance(action, OptionalValue) and action.help != argparse.SUPPRESS:
            for name in action.option_strings:
                assert re.search(rf"  {name}\[=|, {name}\[=", text), name


@every_tool
def test_help_ends_with_examples(tool: str) -> None:
    examples = _examples(tool)
    assert examples
    for line in examples:
        words = shlex.split(line)
        if words[0] == "mpirun":
            words = words[3:]
        assert words[0] == tool
        alone = {"--check", "--diff", "--apply"}
        assert _parser(tool).parse(words[1:], {}).operands or alone.intersection(words)


@pytest.mark.parametrize("tool", ["fcp", "fsum", "fprof", "frm", "fls", "fdiff"])
def test_examples_work_in_order(run: Run, tmp_path: Path, tool: str) -> None:
    """The examples run in order, in a directory that stands for the root.

    Examples with a launcher run with -j 2.
    """
    for name in ("data", "archive", "backup", "scratch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"content" * 1000)
    if tool == "fsum":
        (tmp_path / "archive" / "data").mkdir()
    if tool == "frm":
        (tmp_path / "scratch" / "old").mkdir()
        (tmp_path / "scratch" / "tmp").mkdir()
    profile = [sys.executable, str(ROOT / "bin" / "fprof"), "-q", "--save", "last.profile", "data"]
    assert run(profile, cwd=tmp_path).returncode == 0
    for line in _examples(tool):
        words = shlex.split(line)
        jobs = ["-j", "2"] if words[0] == "mpirun" else []
        given = [word.removeprefix("/") for word in words[words.index(tool) + 1 :]]
        done = run([sys.executable, ROOT / "bin" / tool, *jobs, *given], cwd=tmp_path)
        differs = tool == "fdiff" and words[-2:] == ["/data", "/backup"]
        assert done.returncode == 3 * differs, (line, done.stderr)
    if tool == "fcp":
        assert (tmp_path / "backup" / "data" / "file").read_bytes() == b"content" * 1000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("fcp --threads 0 a b", "--threads '0' positive"),
        ("fcp --threads 1025 a b", "--threads '1025' 1,024"),
        ("fcp -j -1 a b", "--jobs '-1' negative"),
        ("fcp --chunksize -4k a b", "--chunksize '-4k' negative"),
        ("frm --max-delete -5% a", "--max-delete '-5%' negative"),
        ("fcp --exclude -1 a b", "--exclude value"),
        ("fcp --jobs=-1 a b", "--jobs '-1' positive"),
        ("fcp --interval 0 a b", "--interval '0' greater 0"),
        ("fcp --interval x a b", "--interval duration 'x' 5m"),
        ("fcp --bwlimit 0 a b", "--bwlimit '0' positive"),
        ("fcp --bwlimit x a b", "--bwlimit size 'x' 64k"),
        ("fcp --ops-limit x a b", "--ops-limit 'x' number"),
        ("fcp --ops-limit nan a b", "--ops-limit 'nan' finite"),
        ("fcp --chunksize 0 a b", "--chunksize '0' 1"),
        ("fcp --sparse x a b", "--sparse 'x' auto always never"),
        ("fcp -s=md4 a b", "--signature 'md4' xxh128 sha256 blake3"),
        ("fcp -j 1 -s sha256 a b", "-s=sha256"),
        ("fcp -j 1 --preserve mode,xattr a b", "--preserve=mode,xattr"),
        ("fcp -j 1 --reflink auto a b", "--reflink=auto"),
        ("fcp --preserve=mod a b", "--preserve 'mod' mode ownership all"),
        ("fcp -avz a b", "'-z' '-avz' network"),
        ("fcp --resume=5 a b", "--resume value"),
        ("fcp -t", "--target-directory value"),
        ("fcp --forse a b", "'--forse' --force"),
        ("fcp a", "DST 'a'"),
        ("fcp", "SRC DST"),
        ("fcp -T a b c", "'c'"),
        ("fcp --resume --restart a b", "--resume --restart"),
        ("fcp a ''", "empty"),
        ("fsum", "PATH"),
        ("fsum -a md4 a", "--algorithm 'md4' xxh128 sha256 blake3"),
        ("fsum --diff a", "--diff two"),
        ("fsum --quick a", "--quick --check"),
        ("fsum -o m a b", "-o 'b'"),
        ("fsum --check m a b", "--check 'b'"),
        ("fprof --by size a", "--by 'size' age owner dirsize"),
        ("fprof --top x a", "--top 'x' positive"),
        ("fprof --merge", "FILE"),
        ("fbcast", "SRC DST"),
        ("fbcast a", "DST 'a'"),
        ("fbcast a ''", "empty"),
        ("fbcast --bwlimit 0 a b", "--bwlimit '0' positive"),
        ("fbcast --timeout 0 a b", "--timeout '0' greater"),
        ("fbcast --check --remove a b", "--check --remove"),
        ("fbcast -n -u a b", "--no-clobber --update"),
        ("fbcast --parital a b", "'--parital' --partial"),
        ("fbench", "DIR"),
        ("fbench a b", "'b'"),
        ("fbench --files 0 a", "--files '0' positive"),
    ],
)
def test_usage_errors_name_the_mistake_and_the_choices(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: str,
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    tool, *words = shlex.split(arguments)
    code = importlib.import_module(f"pcircle.tools.{tool}.cli").main(words)
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    said, *hints = err.splitlines()
    assert said.startswith(f"{tool}: ")
    assert hints in ([], [f"Try '{tool} --help'."])
    assert REJECTED.search(said) is None, said
    assert [
        word for word in named.split() if not re.search(rf"(?<!\w){re.escape(word)}", said)
    ] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "fcp: what is not there cannot, if at all, be found.",
        "fcp: a file that is not a file is not copied",
        "fcp: no file can not be read",
        "fcp: None is missing",
    ],
)
def test_rejected_messages_match(text: str) -> None:
    assert REJECTED.search(text)
