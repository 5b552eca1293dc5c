"""`docs/coming-from.rst` has all options of other programs, and hints name options that exist."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from docs.generate.coming_from import known_options
from pcircle.cli.arguments import Parser
from pcircle.core.errors import require_type
from pcircle.tools.commands import COMMANDS, Command
from tests.conftest import ROOT, Run

_ALL = re.compile(r"\b(f(?:cp|mirror|rm|sum|diff|prof|find|ls|chmod|chown|chgrp|bcast))\b")
_OPTION = r"(?<![\w-])--?[a-zA-Z0-9@][\w-]*"
# Words in the help of other programs that are not options, and options that all programs have.
_NO_OPTIONS = {"--help", "--version", "-V", "--no-D", "-BM", "-Olevel"}


def listed_options(head: str) -> set[str]:
    """Return the options of other programs in the table below a heading."""
    text = (ROOT / "docs/generate/coming-from.txt").read_text(encoding="utf-8")
    rows = text.partition(f"\n{head}")[2].partition("@end")[0].splitlines()
    return {option for row in rows for option in re.findall(_OPTION, row.partition(" | ")[0])}


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
    missing = set(there) - listed_options(head) - _NO_OPTIONS
    assert missing == set()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_hints_name_options_of_the_tool(command: Command) -> None:
    """They answer only options that the tool lacks."""
    parser, known = require_type(Parser, command.built()), known_options(command.name)
    for option, hint in parser.elsewhere.items():
        assert option not in known
        answers = known.union(*map(known_options, _ALL.findall(hint)))
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
