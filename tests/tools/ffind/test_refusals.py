"""Refusals: exit code 2, before anything is touched, with the place underlined."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcircle.core.errors import UsageError
from tests.conftest import ROOT, Run
from tests.tools.fcp.running import without_rights
from tests.tools.ffind.calling import find
from tests.tools.ffind.running import run_ffind

WRONG = [
    (". -nmae x", "unknown primary '-nmae'; did you mean '-name'?", "-nmae"),
    (". -name", "'-name' requires an argument", "-name"),
    (". ( -name x", "missing ')'", "("),
    (". -name x )", "too many ')'", ")"),
    (". -o -name x", "expected an expression", "-o"),
    (". ( )", "expected an expression", ")"),
    (". -name x -a", "expected an expression after '-a'", "-a"),
    (". -size 3Q", "unknown unit", "-size 3Q"),
    (". -size x", "unknown unit", "-size x"),
    (". -mtime x", "invalid number 'x'", "-mtime x"),
    (". -mtime \u0663", "invalid number '\u0663'", "-mtime \u0663"),
    (". -type x", "-type: must be a comma-separated list of b, c, d, p, f, l, s", "-type x"),
    (". -type f,f", "-type: a type is given twice", "-type f,f"),
    (". -perm u=q", "-perm: invalid mode 'u=q'", "-perm u=q"),
    (". -perm +222", "to match any of the bits, write /222", "-perm +222"),
    (". -regextype x", "unknown regular expression type; choose from awk", "-regextype x"),
    (". -regex a\\(", "Unmatched ( or \\(", None),
    (". -newer no/such", "cannot look up 'no/such'", "-newer no/such"),
    (". -newermt what", "'what' is not a date", "-newermt what"),
    (". -newerma", "'-newerma' requires an argument", "-newerma"),
    (". -newertm x", "'t' is not a file time", "-newertm x"),
    (". -user no-such-user", "unknown name 'no-such-user'", "-user no-such-user"),
    (". -printf %", "incomplete '%' directive", "-printf %"),
    (". -exec echo", "requires a command, ended by ';'", "-exec"),
    (". -exec echo {} {} +", "takes one {}", "-exec echo {} {} +"),
    (". -links +-9", "invalid number '+-9'", "-links +-9"),
    (". -ok rm {} ;", "-ok: ffind never prompts; use -exec", "-ok rm {} ;"),
    (". -okdir rm {} ;", "-okdir: ffind never prompts; use -execdir", "-okdir rm {} ;"),
    (". -maxdepth x", "-maxdepth: must be a number of levels", "-maxdepth x"),
    (". -name x -limit 3", "-limit requires an action", "-limit 3"),
    (". -limit 0 -print", "must be a positive integer", "-limit 0"),
    (". -prune -delete", "add -depth", "-prune"),
    (". ! -exclude -name x", "-exclude cannot be used within", "-exclude"),
    (". --in index", "in_: cannot read 'index': No such file or directory", None),
    (". --max-delete 3", "max_delete requires -delete", None),
    (". -delete -exec true ; --max-delete 3", "max_delete cannot be combined with -exec", None),
    (". --sort=x", "sort: unknown key 'x'; choose from path", None),
    (". --top 0", "top: invalid value '0'", None),
    (". --by size", "by requires top", None),
    (". --stat=never -size 1", "stat='never': -size requires a lookup", None),
    (". --sort -print -quit", "cannot be combined with -quit", None),
    ("-L . -delete", "-delete cannot be combined with -L", None),
    (". d --list-out list", "list_out requires one PATH", None),
    (". -fprint /no/such/file", "cannot write '/no/such/file'", None),
]


@pytest.mark.parametrize(("line", "said", "place"), WRONG)
def test_mistakes_are_named_and_underlined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str, place: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find(*line.split(), jobs=1)
    text = str(caught.value)
    assert said in text
    if place is not None:
        _, shown, marks = text.splitlines()
        assert shown.strip() == f"jobs=1 {line}".replace("jobs=1", "--jobs=1", 1)
        begin = marks.index("^")
        assert shown[begin : begin + marks.count("^")] == place
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("relative", ["", ".", "bin"])
def test_commands_in_directories_of_the_tree_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    """Another user may have put one there; GNU find refuses it, too."""
    (tmp_path / "ls").write_text("#!/bin/sh\ntouch run\n")
    (tmp_path / "ls").chmod(0o755)
    monkeypatch.setenv("PATH", f"{relative}:{os.environ['PATH']}")
    for end in (";", "+"):
        with pytest.raises(UsageError, match="in PATH would run files"):
            find(str(tmp_path), "-execdir", "ls", "{}", end, jobs=1)
    assert not (tmp_path / "run").exists()


def test_the_command_reports_them_too(tmp_path: Path) -> None:
    refused = run_ffind(None, ".", "-type", "f", "-nmae", "x", cwd=bytes(tmp_path))
    assert refused.code == 2
    assert refused.said.splitlines()[1:3] == ["  . -type f -nmae x", "            ^^^^^"]


def test_a_mistake_is_found_before_anything_slow_is_loaded(run: Run) -> None:
    program = (
        "import sys; from pcircle.tools.ffind.cli import main; code = main(['.', '-nmae']);"
        "slow = {'numpy', 'mpi4py', 'rich', 'msgspec'} & set(sys.modules); print(code, slow or 0)"
    )
    done = run([sys.executable, "-c", program], cwd=ROOT)
    assert done.stdout == b"2 0\n"


def test_warnings_are_printed_once(tmp_path: Path) -> None:
    warned = run_ffind(None, "-j2", ".", "-size", "-1M", cwd=bytes(tmp_path))
    assert warned.code == 0
    assert warned.said.count("matches empty files only") == 1
    assert run_ffind(None, ".", "-nowarn", "-size", "-1M", cwd=bytes(tmp_path)).said == ""


def test_missing_or_unreadable_paths_fail_and_others_are_searched(tmp_path: Path) -> None:
    as_user = without_rights("dac_override", "dac_read_search")
    for name in ("open", "shut"):
        (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / "shut").chmod(0o000)
    words = ["open", "shut", "missing", "-name", "*"]
    answers = []
    for program in (["find"], [sys.executable, str(ROOT / "bin" / "ffind"), "-j1"]):
        for extra in ([], ["-depth"], ["-maxdepth", "0"]):
            done = subprocess.run(
                [*as_user, *program, *words, *extra],
                cwd=tmp_path,
                capture_output=True,
                check=False,
            )
            answers.append((done.returncode, sorted(done.stdout.splitlines())))
    assert answers[:3] == answers[3:]
    assert answers[0][0] == 1
