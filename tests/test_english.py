"""What users read is plain technical English, and help fits a terminal.

The texts that this suite holds are those that read badly once: phrases that an engineer would not
say aloud, each of which has an established word.
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

from pcircle.ui.arguments import Parser
from tests.conftest import ROOT, Run

TOOLS = ("fcp", "fsum", "fprof", "fbench", "ffind", "fls", "frm", "fbcast", "fchmod", "fdiff")
COLUMNS = 80
MAX_PHRASE = 60
EXAMPLES = 4
# Help that lists the values of an option is as long as the list.
LISTS_VALUES = {"--preserve", "--signature", "--algorithm", "--sparse", "--reflink"}
GROUPS = {
    "fcp": ["Source and destination", "Filters", "Safety", "Existing files", "Checkpoints",
            "Performance", "Output"],
    "fsum": ["Signature", "Manifests", "Filters", "Safety", "Performance", "Output"],
    "fprof": ["Report", "Filters", "Safety", "Report formats", "Saved profiles", "Performance",
              "Output"],
    "fbench": ["Measurement", "Performance", "Trees for trials", "Output"],
    "ffind": ["Search", "Filters", "Safety", "Performance", "Output"],
    "frm": ["Removal", "Filters", "Safety", "Performance", "Output"],
    "fls": ["Entries", "Form", "Order", "Rows, in place of text", "Filters", "Safety",
            "Performance", "Output"],
    "fchmod": ["Change", "Directories and links", "Filters", "Safety", "Performance", "Output"],
    "fdiff": ["Comparison", "Filters", "Safety", "Performance", "Output"],
    "fbcast": ["What to do", "Safety", "Performance", "Output"],
}  # fmt: skip

every_tool = pytest.mark.parametrize("tool", TOOLS)


def _parser(tool: str) -> Parser:
    built: Parser = importlib.import_module(f"pcircle.{tool}.cli").parser()
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
    assert len(lines) > 20
    assert [line for line in lines if len(line) > COLUMNS] == []


@every_tool
def test_help_follows_the_width(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    """In a narrow window options are broken; the long texts stay as they are."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = _parser(tool).format_help().splitlines()
    begin, end = lines.index("Options:"), lines.index("Performance:")
    options = [line for line in lines[begin:end] if re.match(r" +--?\w| {20,}", line)]
    explained = [line for line in options if not line.lstrip().startswith("-")]
    assert explained
    assert [line for line in explained if len(line) > 40] == []


@every_tool
def test_a_help_line_is_one_phrase(tool: str) -> None:
    actions = [a for a in _parser(tool)._actions if a.help not in (None, argparse.SUPPRESS)]
    assert len(actions) > 10
    for action in actions:
        name, text = action.option_strings[-1], action.help or ""
        assert not text.endswith("."), name
        assert len(text) <= MAX_PHRASE or name in LISTS_VALUES, (name, len(text))


@every_tool
def test_groups_have_the_usual_names(tool: str) -> None:
    titles = [group.title for group in _parser(tool)._action_groups if group._group_actions]
    assert titles[0] == "positional arguments"
    assert titles[1:] == ["Options", *GROUPS[tool]]


def test_a_value_that_may_be_left_out_is_shown_so() -> None:
    assert "  -s[=ALGORITHM], --signature[=ALGORITHM]\n" in _parser("fcp").format_help()
    assert "  --preserve[=LIST] " in _parser("fcp").format_help()
    assert "  --reflink[={auto,always,never}]\n" in _parser("fcp").format_help()
    assert "  --compress[=SAMPLE] " in _parser("fprof").format_help()


@every_tool
def test_help_ends_with_examples(tool: str) -> None:
    examples = _examples(tool)
    assert len(examples) == EXAMPLES
    for line in examples:
        words = shlex.split(line)
        if words[0] == "mpirun":
            words = words[3:]
        assert words[0] == tool
        alone = {"--check", "--diff", "--apply"}
        assert _parser(tool).parse(words[1:], {}).operands or alone.intersection(words)


@pytest.mark.parametrize("tool", ["fcp", "fsum", "fprof", "frm", "fls", "fdiff"])
def test_examples_work_one_after_the_other(run: Run, tmp_path: Path, tool: str) -> None:
    """In a directory that stands for the root; where an example has a launcher, with -j 2."""
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
    ("arguments", "said"),
    [
        ("fcp --threads 0 a b", "--threads: invalid value '0': must be a positive integer"),
        ("fcp --threads 1025 a b", "--threads: invalid value '1025': must be at most 1,024"),
        ("fcp -j -1 a b", "--jobs: invalid value '-1': must not be negative"),
        ("fcp --chunksize -4k a b",
         "--chunksize: invalid value '-4k': must not be negative"),
        ("frm --max-delete -5% a", "--max-delete: invalid value '-5%': must not be negative"),
        ("fcp --exclude -1 a b", "--exclude requires a value"),
        ("fcp --jobs=-1 a b", "--jobs: invalid value '-1': must be a positive integer"),
        ("fcp --interval 0 a b", "--interval: invalid value '0': must be greater than 0"),
        ("fcp --interval x a b",
         "--interval: invalid duration 'x': must be like 30, 0.5s, 5m or 2h"),
        ("fcp --bwlimit 0 a b", "--bwlimit: invalid value '0': rate must be positive and finite"),
        ("fcp --bwlimit x a b",
         "--bwlimit: invalid size 'x': must be like 4096, 64k, 1.5MiB or 2GB"),
        ("fcp --ops-limit x a b", "--ops-limit: invalid value 'x': must be a number"),
        ("fcp --ops-limit nan a b",
         "--ops-limit: invalid value 'nan': rate must be positive and finite"),
        ("fcp --chunksize 0 a b", "--chunksize: invalid value '0': must be at least 1 byte"),
        ("fcp --sparse x a b", "--sparse: invalid value 'x'; choose from auto, always, never"),
        ("fcp -s=md4 a b", "--signature: unknown algorithm 'md4'; choose from xxh128, sha256, "
         "sha512, blake2b, blake3"),
        ("fcp -j 1 -s sha256 a b", "-s takes its value with '=': -s=sha256"),
        ("fcp -j 1 --preserve mode,xattr a b", "--preserve takes its value with '=': "
         "--preserve=mode,xattr"),
        ("fcp -j 1 --reflink auto a b", "--reflink takes its value with '=': --reflink=auto"),
        ("fcp --preserve=mod a b", "--preserve: unknown attribute 'mod'; choose from mode, "
         "ownership, timestamps, xattr, acl, links, stripe, all"),
        (
            "fcp -avz a b",
            "unknown option '-z' in '-avz'; "
            "nothing is sent over a network that could be compressed",
        ),
        ("fcp --resume=5 a b", "--resume takes no value"),
        ("fcp -t", "--target-directory requires a value"),
        ("fcp --forse a b", "unknown option '--forse'; did you mean --force?"),
        ("fcp a", "missing destination after 'a'"),
        ("fcp", "missing operands SRC and DST"),
        ("fcp -T a b c", "-T takes one SRC and one DST: extra operand 'c'"),
        ("fcp --resume --restart a b", "--resume cannot be combined with --restart"),
        ("fcp a ''", "empty file name"),
        ("fsum", "missing operand PATH"),
        ("fsum -a md4 a", "--algorithm: unknown algorithm 'md4'; choose from xxh128, sha256, "
         "sha512, blake2b, blake3"),
        ("fsum --diff a", "--diff requires two values"),
        ("fsum --quick a", "--quick requires --check"),
        ("fsum -o m a b", "-o takes one PATH: extra operand 'b'"),
        ("fsum --check m a b", "--check takes one ROOT: extra operand 'b'"),
        ("fprof --by size a", "--by: unknown 'size'; choose from age, owner, group, ext, depth, "
         "dirsize"),
        ("fprof --top x a", "--top: invalid value 'x': must be a positive integer"),
        ("fprof --merge", "missing operand FILE"),
        ("fbcast", "missing operands SRC and DST"),
        ("fbcast a", "missing destination after 'a'"),
        ("fbcast a ''", "empty file name"),
        ("fbcast --bwlimit 0 a b", "--bwlimit: invalid value '0': rate must be positive and "
         "finite"),
        ("fbcast --timeout 0 a b", "--timeout: invalid value '0': must be greater than 0"),
        ("fbcast --check --remove a b", "--check cannot be combined with --remove"),
        ("fbcast -n -u a b", "--no-clobber cannot be combined with --update"),
        ("fbcast --parital a b", "unknown option '--parital'; did you mean --partial?"),
        ("fbench", "missing operand DIR"),
        ("fbench a b", "fbench takes one DIR: extra operand 'b'"),
        ("fbench --files 0 a", "--files: invalid value '0': must be a positive integer"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_by_what_was_expected(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    tool, *words = shlex.split(arguments)
    code = importlib.import_module(f"pcircle.{tool}.cli").main(words)
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"{tool}: {said}"
    assert list(tmp_path.iterdir()) == []


# Phrases that no text of the project has, each a piece of a sentence that was rewritten. Not
# listed: "how", "keep none", "between checkpoints" and "interrupted copies". They read badly only
# as a title or as the help of an option, where the tests above hold the new words; in a sentence
# they are ordinary English.
GONE = """
where and what|what of the directories|what exists in DST|what is said|what is told
where it is told|of kept profiles|with all below|so for those|what stands in such
keep it; -u and -f|remove what can't be opened|all is on disk before|go on from the checkpoint
in a second, so as well|operations at once of each|the ranks' shares|a defect of f
say what would be done|write it anew|so, but trust files|that nobody wrote to
tell what is in|complete in itself|all told|everything to names
gone on from|gone on with|goes on from it|DST is missing|an empty name is no
longer than nothing|is no number of|is not a number of|' is none of|is too much|it is a way to
a manifest is of one|as the manifest says|it is not the line of|entries of it failed
digest is another one|what is read back is not|read back wrong once|did not hold what was
cannot write any more to|would be made|brought to disk|is sure to be on disk|is at work on it
lets nothing through|exclude each other|makes no copies that|not yours alone|leads upwards
has no name of its own|destination does not hold|and what is below it|may be left in files
know nothing of|files on less space|told from|of the fine bins, the next|edges beside the fine
darker or brighter|a click goes|whatever their size in no time|takes the meaning from
wants the package|files of several names|files with several names|as many as pay|how many pay
"""


def _texts() -> list[Path]:
    found = [*ROOT.glob("*.rst"), *(ROOT / "docs").rglob("*.rst")]
    found += [p for p in (ROOT / "pcircle").rglob("*") if p.suffix in (".py", ".html")]
    return sorted(found)


def _plain(text: str) -> str:
    """The text in lower case with single blanks, so that a line's end hides nothing."""
    text = re.sub(r"^ *(?:from|import) .*$", "", text, flags=re.MULTILINE)
    return " ".join(re.sub(r'"\s*\n\s*f?"|\n\s*#', " ", text).lower().split())


def test_phrases_that_read_badly_stay_away() -> None:
    phrases = [phrase.lower() for line in GONE.strip().splitlines() for phrase in line.split("|")]
    assert len(phrases) > 70
    assert len(_texts()) > 200
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in _texts()
        for text in [_plain(path.read_text(encoding="utf-8"))]
        for phrase in phrases
        if phrase in text
    ]
    assert found == []
