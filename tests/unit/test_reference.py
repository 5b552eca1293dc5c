"""The site, manual pages and completions are generated from the data of the parsers."""

from __future__ import annotations

import argparse
import re

import pytest

from docs.generate.primaries import PRIMARIES
from docs.generate.reference import Reference, reference, references
from pcircle.core import errors
from pcircle.tools.commands import COMMANDS, Command
from pcircle.tools.ffind.language import words
from tests.conftest import ROOT

every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
REFUSED = {"-ok", "-okdir"}
OPERATORS = {"(", ")", "-not", "-and", "-a", "-or", "-o", "-exclude"}
PATTERNS = {"-O", "-newerXY"}  # stand for several names


def _of(name: str) -> Reference:
    return next(reference_ for reference_ in references() if reference_.command.name == name)


def test_every_command_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    scripts = re.findall(r'^(\S+) = "pcircle\.', text, re.MULTILINE)
    programs = {item.command_line.split()[0] for item in COMMANDS}
    assert programs == set(scripts)
    assert [item.name for item in COMMANDS] == sorted(item.name for item in COMMANDS)
    assert [item.command for item in references()] == list(COMMANDS)


@every_command
def test_a_command_matches_its_table(command: Command) -> None:
    parser = command.built()
    assert parser.prog == command.command_line
    assert (ROOT / "docs" / f"{command.page}.rst").is_file()
    assert len(command.summary) <= 64
    assert command.summary[0].islower()
    assert not command.summary.endswith(".")


@every_command
def test_the_reference_contains_all_of_help(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word of help, on one wide line per option, is there in the same order."""
    monkeypatch.setenv("COLUMNS", "1000")
    found = reference(command)
    said = " ".join(command.built().format_help().split())
    at = 0
    parts = [part for line in found.usage for part in line.split()]
    parts += found.description
    for group in found.groups:
        parts += [f"{group.title}:", group.text]
        for option in group.options:
            parts += [option.invocation, option.help]
    parts += [*found.notes, *found.examples]
    for part in parts:
        next_ = said.find(" ".join(part.split()), at)
        assert next_ >= 0, part
        at = next_ + len(part)
    assert at == len(said)


@every_command
def test_exit_codes_are_those_of_the_errors(command: Command) -> None:
    known = {errors.EXIT_OK, errors.PcircleError.exit_code}
    known |= {
        item.exit_code
        for item in vars(errors).values()
        if isinstance(getattr(item, "exit_code", None), int)
    }
    codes = {code for item in reference(command).exit_codes for code in item.codes}
    assert {0, 2, 70} <= codes <= known
    assert all(item.meaning for item in reference(command).exit_codes)


def test_values_of_options() -> None:
    by_flag = {option.name: option for option in _of("fcp").options}
    assert by_flag["--jobs"].invocation == "-j N, --jobs N"
    assert by_flag["--signature"].invocation == "-s[=ALGORITHM], --signature[=ALGORITHM]"
    assert by_flag["--transport"].choices == ("auto", "mpi", "local")
    assert by_flag["--transport"].default == "auto"
    assert by_flag["--files-from"].takes == "file"
    assert by_flag["--checkpoint-dir"].takes == "directory"
    assert by_flag["--owner"].takes == "users"
    assert by_flag["--exclude"].repeatable
    assert not by_flag["--json"].repeatable
    assert by_flag["--verify"].value == "none"
    assert [positional.name for positional in _of("fcp").positionals] == ["SRC", "DST"]
    assert [positional.repeatable for positional in _of("fcp").positionals] == [True, False]
    assert _of("fdiff").exit_codes[1].codes == (3,)
    assert _of("fcp").exit_codes[-1].codes == (130, 143)


def test_hidden_options_are_omitted() -> None:
    command = COMMANDS[0]
    parser = command.built()
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    shown = {flag for option in reference(command).options for flag in option.flags}
    assert "--hidden" not in shown
    assert shown == set(parser._option_string_actions) - {"--hidden"}


def test_primaries_match_the_parser() -> None:
    """Each primary is listed once, with as many arguments as the parser takes."""
    flags = [flag for primary in PRIMARIES for flag in primary.flags]
    assert len(flags) == len(set(flags))
    assert set(flags) - OPERATORS - PATTERNS == set(words.primaries()) - REFUSED
    assert set(words.OPERATORS) - {"!", ","} == OPERATORS
    counts = {**words.TESTS, **words.ACTIONS, **words.OPTIONS, "exec": 1, "execdir": 1}
    for primary in PRIMARIES:
        assert primary.help
        for flag in set(primary.flags) - OPERATORS - PATTERNS:
            assert len(primary.metavars) == counts[flag[1:]], flag


def test_choices_of_primaries_are_those_of_the_language() -> None:
    from pcircle.tools.ffind.language import parser, patterns

    by_flag = {flag: primary for primary in PRIMARIES for flag in primary.flags}
    assert set(by_flag["-regextype"].choices) == set(patterns.SYNTAXES)
    assert set(by_flag["-type"].choices) == set(parser.KINDS)
    assert by_flag["-fstype"].choices == ()
