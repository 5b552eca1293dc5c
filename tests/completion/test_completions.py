"""Every option and value of each command is completed, and only the shell runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from docs.generate.completions import PLACES, completed
from docs.generate.completions.flags import all_flags
from docs.generate.reference import Reference
from tests.completion.shells import LOADER, SHELLS, environment, terminal
from tests.conftest import ROOT, Run
from tests.programs import required

every_shell = pytest.mark.parametrize("shell", SHELLS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Create a directory with files and directories to complete."""
    (tmp_path / "some directory").mkdir()
    (tmp_path / "some file").touch()
    (tmp_path / "only-file").touch()
    (tmp_path / "other-directory").mkdir()
    (tmp_path / "other-file").touch()
    return tmp_path


def _offered_by_bash(run: Run, words: Sequence[str], environ: dict[str, str]) -> set[str]:
    script = ROOT / PLACES["bash"] / words[0]
    ask = (
        # Outside of a completion there is nothing to change.
        'compopt() { :; }; . "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '"_$1"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = run([required("bash"), "--norc", "-c", ask, script, *words], env=environ)
    assert done.stderr == b""
    return set(done.stdout.decode().splitlines())


def _offered_by_fish(run: Run, words: Sequence[str], environ: dict[str, str]) -> set[str]:
    done = run([required("fish"), "-c", f"complete -C '{' '.join(words)}'"], env=environ)
    assert done.stderr == b""
    return {line.partition("\t")[0] for line in done.stdout.decode().splitlines()}


def _offered_by_zsh(words: Sequence[str], place: Path) -> set[str]:
    """Return zsh's candidates in a session, because its completions are not callable functions."""
    offered = place / "offered"
    with terminal("zsh", place) as shell:
        shell.type(f"OFFERED={offered}; . {ROOT / 'tests' / 'completion' / 'capture.zsh'}\n")
        shell.type(f"{' '.join(words)}\t")
        shell.arguments("")
    return set(offered.read_text().splitlines())


@pytest.mark.parametrize("about", completed(), ids=lambda about: about.command.name)
@every_shell
def test_every_option_is_offered(shell: str, about: Reference, run: Run, tmp_path: Path) -> None:
    flags = set(all_flags(about))
    words = [*about.command.command_line.split(), "-"]
    if shell == "zsh":
        offered = _offered_by_zsh(words, tmp_path)
    elif shell == "fish":
        environ = environment(tmp_path)
        offered = _offered_by_fish(run, words, environ) | _offered_by_fish(
            run, [*about.command.command_line.split(), "--"], environ
        )
    else:
        offered = _offered_by_bash(run, words, environment(tmp_path))
    assert flags - {flag.rstrip("=") for flag in offered} == set()
    assert len(flags) >= 5


TYPED = [
    # typed text, and the arguments of the command
    ("fcp --checkpoint-d\tother\t only\t", ["--checkpoint-dir", "other-directory", "only-file"]),
    ("fcp --transport loc\t--verif\t", ["--transport", "local", "--verify"]),
    ("fcp --preserve=own\t a b", ["--preserve=ownership", "a", "b"]),
    ("fcp --preserve=mode,own\t a b", ["--preserve=mode,ownership", "a", "b"]),
    ("fcp --error-log only\t", ["--error-log", "only-file"]),
    ("fcp -avt oth\t", ["-avt", "other-directory"]),
    ("fcp some\\ f\tx", ["some file", "x"]),
    ("fcp -- --preserv\tx", ["--", "--preservx"]),
    ("fcp --owner daem\t", ["--owner", "daemon"]),
    ("fcp --owner root,daem\t", ["--owner", "root,daemon"]),
    ("fcp --min-size onl\t", ["--min-size", "onl"]),
    ("fmirror --delete=dur\t a b", ["--delete=during", "a", "b"]),
    ("fchown daem\t only\t", ["daemon", "only-file"]),
    ("fchown daemon:daem\t only\t", ["daemon:daemon", "only-file"]),
    ("fchgrp daem\t", ["daemon"]),
    (
        "ffind . -name x -regexty\tposix-a\t-prin\t",
        [".", "-name", "x", "-regextype", "posix-awk", "-print"],
    ),
    ("ffind . -user daem\t-typ\tf", [".", "-user", "daemon", "-type", "f"]),
    ("ffind . -newer onl\t-prune", [".", "-newer", "only-file", "-prune"]),
    ("ffind . -exec sha256s\tonl\t';'", [".", "-exec", "sha256sum", "only-file", ";"]),
    ("ffind --sort=mti\t .", ["--sort=mtime", "."]),
    ("pcircle doc\t--no-tr\tonl\t", ["doctor", "--no-trials", "only-file"]),
    ("fprof --diff onl\tonl\t", ["--diff", "only-file", "only-file"]),
]


@every_shell
def test_typed_words_are_completed(shell: str, place: Path) -> None:
    wrong = {}
    with terminal(shell, place) as opened:
        for line, expected in TYPED:
            # zsh appends a value to its option, and omits the slash after a directory.
            words = [word.removesuffix("/") for word in opened.arguments(line)]
            got = [part for word in words for part in _parted(word, expected)]
            if got != expected:
                wrong[line] = got
    assert wrong == {}


def test_bash_completion_finds_them(place: Path) -> None:
    """Bash loads it by the command's name at the first completion."""
    if not LOADER.is_file():
        pytest.skip("bash-completion is not installed")
    with terminal("bash", place, "bash-completion") as opened:
        assert opened.arguments("fcp --checkpoint-d\tother\t") == [
            "--checkpoint-dir",
            "other-directory/",
        ]


def test_optional_words_are_accepted(run: Run, place: Path) -> None:
    """Options that also accept other words are included."""
    for command, option, operands in (
        ("fprof", "--bins", ["."]),
        ("fls", "--time-style", ["-l", "."]),
        ("fls", "--kind", ["."]),
        ("fcp", "--stripe", ["--dry-run", "only-file", "x"]),
    ):
        about = next(item for item in completed() if item.command.name == command)
        words = next(item.words for item in about.options if item.name == option)
        for word in words:
            done = run(
                [sys.executable, ROOT / "bin" / command, f"{option}={word}", *operands], cwd=place
            )
            is_elsewhere = b"Lustre" in done.stderr  # an unsupported layout
            assert done.returncode == 0 or is_elsewhere, (command, word, done.stderr)


def _parted(word: str, expected: Sequence[str]) -> Sequence[str]:
    """Return an option and its value, as two words where required."""
    option, equals, value = word.partition("=")
    return [option, value] if equals and option in expected else [word]
