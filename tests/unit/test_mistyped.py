"""Messages about options that do not exist or have malformed values."""

from __future__ import annotations

import importlib
import re

import pytest


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--presreve=mode", ["--presreve", "--preserve"]),
        ("--recurse", ["--recurse", "--recursive"]),
        ("--archvie", ["--archvie", "--archive"]),
        ("--no-clober", ["--no-clober", "--no-clobber"]),
        ("--exclud", ["--exclud", "--exclude", "--exclude-from"]),
        ("--verb", ["--verb", "--verbose"]),
        ("--check", ["--check", "--checkpoint-dir", "--checkpoint-interval"]),
        # No option is similar to these, and a guess would be misleading.
        ("--foo", ["--foo"]),
        ("--delete", ["--delete"]),
        ("--links", ["--links"]),
        ("--v", ["--v"]),
        ("-pz=3", ["-z", "-pz"]),
        ("-pv=3", ["--verbose"]),
        ("-vs=md4", ["--signature"]),
    ],
)
def test_only_similar_spellings_are_suggested(
    capfd: pytest.CaptureFixture[str], option: str, named: list[str]
) -> None:
    code = importlib.import_module("pcircle.tools.fcp.cli").main([option, "a", "b"])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    said = err.splitlines()[0]
    assert said.startswith("fcp: ")
    assert re.findall(r"(?<![\w-])--?[a-z][\w-]*", said) == named


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("fbcast", "missing operands SRC and DST"),
        ("fbcast a", "missing operand DST after 'a'"),
        ("fbench", "missing operand DIR"),
        ("fbench a b", "extra operand 'b'"),
        ("fchmod", "missing operand MODE"),
        ("fchmod 700", "missing operand PATH"),
        ("fcp", "missing operands SRC and DST"),
        ("fcp a", "missing operand DST after 'a'"),
        ("fcp -t b", "missing operand SRC"),
        ("fcp -T a b c", "extra operand 'c'"),
        ("fdiff", "missing operands A and B"),
        ("fdiff a", "missing operand B after 'a'"),
        ("fdiff a b c", "extra operand 'c'"),
        ("fmirror", "missing operands A and B"),
        ("fmirror a", "missing operand B after 'a'"),
        ("fmirror a b c", "extra operand 'c'"),
        ("frm", "missing operand PATH"),
        ("fsum", "missing operand PATH"),
        ("scale a", "extra operand 'a'"),
    ],
)
def test_missing_and_extra_operands_are_reported_in_the_same_form(
    capfd: pytest.CaptureFixture[str], command: str, problem: str
) -> None:
    tool, *words = command.split()
    cli = importlib.import_module(f"pcircle.tools.{tool}.cli")
    assert cli.main(words) == 2
    name = "pcircle scale" if tool == "scale" else tool
    assert capfd.readouterr() == ("", f"{name}: {problem}\nTry '{name} --help'.\n")


@pytest.mark.parametrize("tool", ["fbcast", "fbench", "fcp", "fprof", "fsum"])
def test_help_has_no_words_of_argparse(tool: str) -> None:
    said = importlib.import_module(f"pcircle.tools.{tool}.cli").parser().format_help()
    assert "help message" not in said
    assert "program's version" not in said


def test_a_signature_can_be_requested_in_combined_letters() -> None:
    """`-as` is `-a -s`: the next word is SRC and not an algorithm."""
    cli = importlib.import_module("pcircle.tools.fcp.cli")
    for words in (["-as", "a", "b"], ["-vas", "a", "b"], ["-a", "-s", "a", "b"]):
        args = cli.parser().parse(words, {})
        assert (args.operands, args.signature, args.archive) == (["a", "b"], "xxh128", True)
    args = cli.parser().parse(["-as", "sha256", "a", "b"], {})
    assert args.unjoined == [("-s", "sha256")]
    # -t takes the next characters as its value, so it is not a flag.
    args = cli.parser().parse(["-ts", "a"], {})
    assert (args.target_directory, args.operands) == ("s", ["a"])


@pytest.mark.parametrize("tool", ["fchmod", "fmirror", "frm"])
def test_a_dry_run_is_named_to_users_of_rsync(capfd: pytest.CaptureFixture[str], tool: str) -> None:
    assert importlib.import_module(f"pcircle.tools.{tool}.cli").main(["-n", "a", "b"]) == 2
    assert "unknown option '-n'; --dry-run" in capfd.readouterr().err
