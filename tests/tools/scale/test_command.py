"""`pcircle scale`, run like a user does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from pcircle.tools.scale.cli import main, parser
from tests.conftest import ROOT, Run

SCALE = (sys.executable, "-m", "pcircle", "scale")
COLUMNS = 80


def test_a_row_for_each_number_of_ranks(run: Run) -> None:
    done = run([*SCALE, "--ranks", "1,8,64", "--files", "1e5", "--dirs", "2000"])
    assert (done.returncode, done.stderr) == (0, b"")
    head, _, names, *rows = done.stdout.decode().splitlines()
    assert re.fullmatch(r"files: 102,000 entries in [\d,]+ items; work .*, longest path .*", head)
    assert names.split()[:2] == ["ranks", "time"]
    assert [row.split()[0] for row in rows] == ["1", "8", "64"]


def test_json_has_the_task_and_the_figures(run: Run, tmp_path: Path) -> None:
    shown = run([*SCALE, "--shape=flat", "--ranks=16", "--items=2000", "--item-ms=10", "--json=-"])
    found = json.loads(shown.stdout)
    assert found["schema"] == 1
    assert found["task"]["items"] == 2000
    assert found["task"]["item_s"] == 0.01
    (job,) = found["jobs"]
    assert (job["ranks"], job["items"]) == (16, 2000)
    assert 0 < job["efficiency"] < job["of_ideal"] <= 1
    where = tmp_path / "figures.json"
    done = run(
        [*SCALE, "--shape=flat", "--ranks=16", "--items=2000", "--item-ms=10", "--json", where]
    )
    assert done.stdout.startswith(b"flat: ")
    assert json.loads(where.read_bytes()) == found


@pytest.mark.parametrize(
    "words",
    [
        ["--network=infiniband", "--look-ms=4"],
        ["--latency-us=100", "--message-us=5", "--ranks-per-node=1"],
        ["--times=exponential", "--seed=9"],
        ["--stat-us=400", "--batch=50"],
        ["--policies=steal=lifelines,split=half,end=waves,arity=2"],
    ],
)
def test_options_change_the_figures(capfd: pytest.CaptureFixture[str], words: list[str]) -> None:
    base = ["--ranks=64", "--files=30000", "--json=-"]
    jobs = []
    for arguments in (base, [*base, *words]):
        assert main(arguments) == 0
        jobs.append(json.loads(capfd.readouterr().out))
    assert jobs[0]["jobs"] != jobs[1]["jobs"]
    assert [job["seed"] for job in jobs] == [1, 9 if "--seed=9" in words else 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "extra operand 'x'"),
        (["--ranks", "0"], "--ranks: invalid value '0': must be a positive integer"),
        (["--ranks", "8,"], "--ranks: invalid value '': must be a positive integer"),
        (["--ranks", "1e9"], "--ranks: invalid value '1e9': must be at most 1,048,576"),
        (["--files", "1.5"], "--files: invalid value '1.5': must be a positive integer"),
        (["--files", "1e12"], "13,333,333,333 items are too many to simulate (at most 20,000,000): "
         "lower --files and --dirs, or raise --batch"),
        (["--shape", "flat", "--items", "1e9"], "1,000,000,000 items are too many to simulate "
         "(at most 20,000,000): lower --items or --ranks"),
        (["--shape", "flat", "--files", "9"], "--files cannot be combined with --shape=flat"),
        (["--items", "9"], "--items cannot be combined with --shape=files"),
        (["--shape", "odd"], "--shape: invalid value 'odd'; choose from files, balanced, "
         "geometric, flat"),
        (["--stat-us", "0"], "--stat-us: invalid value '0': must be greater than 0"),
        (["--look-ms", "nan"], "--look-ms: invalid value 'nan': must not be negative"),
        (["--policies", "end=ring"], "--policies: the simulator detects the end by waves only"),
        (["--policies", "steal=x"], "--policies: invalid steal 'x': must be one of random, near, "
         "lifelines"),
        (["--seed", "x"], "--seed: invalid value 'x': must be 0 or a positive integer"),
        (["--rank", "3"], "unknown option '--rank'; did you mean --ranks or --ranks-per-node?"),
        (["--json", "/nowhere/x"], "cannot write '/nowhere/x': its directory does not exist"),
    ],
)  # fmt: skip
def test_usage_errors_name_the_expected_values(
    capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code = main(words)
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"pcircle scale: {said}"


@pytest.mark.parametrize("words", ["--help", "--ranks 2 --files 1e3 --seed 5", "--rank"])
def test_the_earlier_name_runs_the_same_command(run: Run, words: str) -> None:
    now = run([*SCALE, *words.split()])
    earlier = run([sys.executable, "-m", "pcircle.scale", *words.split()])
    assert earlier.returncode == now.returncode
    assert (earlier.stdout, earlier.stderr) == (now.stdout, now.stderr)


def test_help_fits_and_ends_with_examples() -> None:
    text = parser().format_help()
    assert max(map(len, text.splitlines())) <= COLUMNS
    examples = text.partition("\nExamples:\n")[2].splitlines()
    assert len(examples) == 4
    for line in examples:
        words = line.split()
        assert words[:2] == ["pcircle", "scale"]
        assert parser().parse(words[2:], {}).operands == []


def test_the_manual_has_every_option() -> None:
    text = (ROOT / "docs" / "scale.rst").read_text(encoding="utf-8")
    for action in parser()._actions:
        for option in action.option_strings:
            if option not in ("-h", "--help", "--version"):
                assert f"``{option}" in text, option
    named = set(re.findall(r"``(--[\w-]+)", text))
    assert named <= {option for action in parser()._actions for option in action.option_strings}


def test_help_needs_nothing_slow(run: Run) -> None:
    script = (
        "import sys, pcircle.tools.scale.cli as cli; cli.main(['--help']); print([*sys.modules])"
    )
    done = run([sys.executable, "-c", script])
    assert done.returncode == 0
    assert b"'numpy'" not in done.stdout


def test_an_enormous_task_is_refused_before_memory_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--files", "1e13", "--batch", "1000000", "--dirs", "1e13"]) == 2
    assert "too many" in capfd.readouterr().err
