"""What is answered to an option that does not exist, or that is not given as it should be."""

from __future__ import annotations

import importlib

import pytest

from pcircle.transfer.arguments import BARE


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--presreve=mode", "unknown option '--presreve'; did you mean --preserve?"),
        ("--recurse", "unknown option '--recurse'; did you mean --recursive?"),
        ("--archvie", "unknown option '--archvie'; did you mean --archive?"),
        ("--no-clober", "unknown option '--no-clober'; did you mean --no-clobber?"),
        ("--exclud", "unknown option '--exclud'; did you mean --exclude or --exclude-from?"),
        ("--verb", "unknown option '--verb'; did you mean --verbose?"),
        (
            "--check",
            "unknown option '--check'; did you mean --checkpoint-dir or --checkpoint-interval?",
        ),
        # Nothing is near to these, and a guess would be another option altogether.
        ("--foo", "unknown option '--foo'"),
        (
            "--delete",
            "unknown option '--delete'; fmirror makes one directory what another is",
        ),
        ("--links", "unknown option '--links'"),
        ("--v", "unknown option '--v'"),
        (
            "-pz=3",
            "unknown option '-z' in '-pz=3'; "
            "nothing is sent over a network that could be compressed",
        ),
        ("-pv=3", "--verbose takes no value"),
        ("-vs=md4", "--signature: unknown algorithm 'md4'; choose from xxh128, sha256, "
         "sha512, blake2b, blake3"),
    ],
)  # fmt: skip
def test_what_is_near_in_spelling_is_suggested_and_nothing_else(
    capfd: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    code = importlib.import_module("pcircle.fcp.cli").main([typed, "a", "b"])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"fcp: {said}"


@pytest.mark.parametrize("tool", ["fbcast", "fbench", "fcp", "fprof", "fsum"])
def test_help_has_no_words_of_argparse(tool: str) -> None:
    said = importlib.import_module(f"pcircle.{tool}.cli").parser().format_help()
    assert "help message" not in said
    assert "program's version" not in said


def test_a_signature_is_asked_for_among_other_letters() -> None:
    """`-as` is `-a -s`: what follows is SRC and no algorithm."""
    cli = importlib.import_module("pcircle.fcp.cli")
    for words in (["-as", "a", "b"], ["-vas", "a", "b"], ["-a", "-s", "a", "b"]):
        typed = cli.parser().parse(words, BARE)
        assert (typed.operands, typed.signature, typed.archive) == (["a", "b"], "xxh128", True)
    typed = cli.parser().parse(["-as", "sha256", "a", "b"], BARE)
    assert typed.unjoined == [("-s", "sha256")]
    # -t takes what follows it, and so is no flag.
    typed = cli.parser().parse(["-ts", "a"], BARE)
    assert (typed.target_directory, typed.operands) == ("s", ["a"])
