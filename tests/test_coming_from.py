"""`docs/coming-from.rst` names only options that the tools really have.

It also covers every option that the `--help` of the other programs lists.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from pcircle.cli.arguments import Parser
from pcircle.core.errors import require_type
from pcircle.tools.commands import COMMANDS, Command
from pcircle.tools.ffind.language import words
from tests.conftest import ROOT, Run

TOOLS = {
    "From rsync": "fmirror",
    "From dcp": "fmirror",
    "From rclone": "fmirror",
    "From cp": "fcp",
    "From find": "ffind",
    "From du": "fprof",
    "From OLCF": "fcp",
}
_ALL = re.compile(r"\b(f(?:cp|mirror|rm|sum|diff|prof|find|ls|chmod|chown|chgrp|bcast))\b")
_OPTION = r"(?<![\w-])--?[a-zA-Z0-9@][\w-]*"
# Words in the help of other programs that are not options, and options that all programs have.
_NO_OPTIONS = {"--help", "--version", "-V", "--no-D", "-BM", "-Olevel"}


def options_of(tool: str) -> set[str]:
    """Return the options of a tool; for ffind also the words of its expressions."""
    command = next(command_ for command_ in COMMANDS if command_.name == tool)
    options = set(command.built()._option_string_actions)
    if tool == "ffind":
        options |= {f"-{name}" for name in _primaries()} | {"-O", "-D"}
    return options


def _primaries() -> set[str]:
    found = {"a", "and", "o", "or", "not", "exclude", "exec", "execdir"}
    for table in vars(words).values():
        if isinstance(table, dict | frozenset | set) and all(
            isinstance(name, str) for name in table
        ):
            found |= set(table)
    return found


def sections() -> dict[str, list[str]]:
    """Return the rows of each table, by the heads of TOOLS."""
    found: dict[str, list[str]] = {head: [] for head in TOOLS}
    now: list[str] = []
    for line in (ROOT / "docs/coming-from.rst").read_text(encoding="utf-8").splitlines():
        now = next((found[head] for head in TOOLS if line.startswith(head)), now)
        if re.match(r"(``|[a-z])", line) and len(line) > 37 and line[36] == " ":
            now.append(line)
    return found


def rows() -> list[tuple[str, str, str]]:
    """Return the default tool of each row, their option and ours."""
    return [
        (TOOLS[head], line[:36], line[37:73])
        for head, lines in sections().items()
        for line in lines
        if line[37:73].strip() not in ("", "here")
    ]


def test_the_page_has_tables() -> None:
    assert len(rows()) > 150


@pytest.mark.parametrize(("tool", "theirs", "ours"), rows())
def test_the_options_exist(tool: str, theirs: str, ours: str) -> None:
    given = theirs if ours.strip() == "the same" else ours
    named = _ALL.findall(ours)
    tools = named if named else [*named, "fcp"]
    for option in re.findall(_OPTION, given.replace("``", " ")):
        assert any(option in options_of(candidate) for candidate in {tool, *tools}), option


# The newest versions whose options are on that page. Newer ones have options that it cannot know.
_COVERED = {"rsync": (3, 5), "cp": (9, 1), "du": (9, 1), "find": (4, 9)}
# Newer versions of coreutils print bold letters and links even into a pipe.
_ESCAPES = re.compile(r"\x1b\]8;;[^\x1b]*\x1b\\|\x1b\[[\d;]*m")


@pytest.mark.parametrize(("peer", "head"), [
    ("rsync", "From rsync"), ("cp", "From cp"), ("du", "From du"), ("find", "From find"),
    ("dcp", "From dcp"), ("dsync", "From dcp"), ("dcmp", "From dcp"), ("drm", "From dcp"),
    ("dwalk", "From dcp"), ("dchmod", "From dcp"), ("dbcast", "From dcp"),
])  # fmt: skip
def test_every_foreign_option_is_listed(run: Run, peer: str, head: str) -> None:
    if shutil.which(peer) is None:
        pytest.skip(f"{peer} is not installed")
    if peer in _COVERED:
        version = re.search(rb"\d+\.\d+", run([peer, "--version"]).stdout)
        assert version is not None
        if tuple(map(int, version[0].split(b"."))) > _COVERED[peer]:
            pytest.skip(f"{peer} {version[0].decode()} is newer than the page")
    said = _ESCAPES.sub("", run([peer, "--help"]).stdout.decode())
    if peer == "find":
        # Arguments of -D follow, as words.
        there = re.findall(
            r"(?<![\w<-])-[a-zA-Z][\w-]*",
            said.partition("Valid arguments")[0].replace("-N or N", ""),
        )
    else:
        lines = re.findall(r"^ {0,8}(-\S.*)$", said, re.MULTILINE)
        there = [
            option
            for line in lines
            for option in re.findall(_OPTION, re.split(r"  +[^- ]", line)[0])
        ]
    assert len(there) > 3
    listed = {option for line in sections()[head] for option in re.findall(_OPTION, line[:36])}
    missing = set(there) - listed - _NO_OPTIONS
    assert missing == set()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_hints_name_options_of_the_tool(command: Command) -> None:
    """They answer only options that the tool lacks."""
    parser, known = require_type(Parser, command.built()), options_of(command.name)
    for option, hint in parser.elsewhere.items():
        assert option not in known
        answers = known.union(*map(options_of, _ALL.findall(hint)))
        named = set(re.findall(_OPTION, hint)) - {option, "-N", "-1G"}
        assert named <= answers, f"{option}: {hint}"


@pytest.mark.parametrize(
    ("tool", "line", "hint"),
    [
        ("fprof", ["-s"], "-d 0"),
        ("fprof", ["-sh"], "-d 0"),
        ("fprof", ["--max-depth=1"], "-d N"),
        ("fprof", ["--by", "user"], "did you mean 'owner'?"),
        ("ffind", ["--older-than", "5d"], "-mtime +N"),
        ("fsum", ["-a", "sha-256"], "did you mean 'sha256'?"),
        ("fsum", ["-a", "SHA512sum", "--format=coreutils"], "did you mean 'sha512'?"),
        ("fsum", ["-b"], "always read as bytes"),
        ("fcp", ["--no-preserve=mode"], "--preserve"),
        ("fcp", ["-rb"], "--backup-dir"),
        ("fmirror", ["--delete-during"], "--delete=during"),
        ("fdiff", ["-ru"], "diff shows the lines"),
        ("fchmod", ["-r", "u+x"], "-R"),
    ],
)
def test_options_of_other_programs_are_explained(
    run: Run, tmp_path: Path, tool: str, line: list[str], hint: str
) -> None:
    words = [sys.executable, "-m", f"pcircle.tools.{tool}", *line, ".", "."]
    done = run(words, cwd=tmp_path)
    assert (done.returncode, hint in done.stderr.decode()) == (2, True), done.stderr
