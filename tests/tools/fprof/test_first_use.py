"""First steps of a new user: immediate help, launchers, the API, and no slow imports."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from tests.conftest import ROOT, Run
from tests.tools.fcp.running import ONE, TWO
from tests.tools.fprof.running import run_fprof

SLOW = {"mpi4py", "numpy", "rich", "matplotlib", "ctypes", "sqlite3"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["--no-such-option"], ["--merge"]]
)
def test_immediate_answers_import_nothing_slow(run: Run, arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from pcircle.tools.fprof.cli import main\n"
        "sys.argv = ['fprof', *sys.argv[1:]]\n"
        "code = main()\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
        "sys.exit(code)\n"
    )
    done = run([sys.executable, "-c", program, *arguments])
    assert done.returncode == (0 if arguments in (["--help"], ["--version"]) else 2), done.stderr
    loaded = re.search(r"^LOADED (.*)$", done.stdout.decode(), re.MULTILINE)
    assert loaded is not None
    assert SLOW.intersection(loaded[1].split()) == set()


def test_without_operand_the_working_directory_is_profiled(place: bytes) -> None:
    os.makedirs(place + b"/data/sub")
    here = run_fprof(ONE, "-q", "--json", "-", cwd=place + b"/data")
    named = run_fprof(ONE, "-q", "--json", "-", place + b"/data")
    assert (here.code, here.said) == (0, "")
    documents = [json.loads(finished.out) for finished in (here, named)]
    assert documents[0]["roots"] == ["."]
    assert documents[0]["counts"] == documents[1]["counts"]
    assert documents[0]["counts"]["directories"]["number"] == 2


def test_a_plain_walk_imports_only_required_modules(run: Run, place: bytes) -> None:
    program = (
        "import sys\n"
        "from pcircle.tools.fprof.cli import main\n"
        "code = main(['-j', '1', '-q', sys.argv[1]])\n"
        "print('LOADED', *sys.modules)\n"
        "sys.exit(code)\n"
    )
    done = run([sys.executable, "-c", program, place])
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.decode().split())
    unneeded = {
        "numpy",
        "rich",
        "mpi4py",
        "sqlite3",
        "csv",
        "xxhash",
        "pcircle.tools.fprof.reports.charts",
    }
    assert loaded & unneeded == set()


def test_the_api_profiles(run: Run, place: bytes) -> None:
    with open(place + b"/file", "wb") as file:
        file.write(b"x" * 10)
    out = os.fsdecode(place) + ".json"
    program = (
        "import sys\n"
        "import pcircle\n"
        "sys.exit(pcircle.profile(sys.argv[1], jobs=2, json=sys.argv[2]).exit_code)\n"
    )
    done = run([sys.executable, "-c", program, place, out])
    assert done.returncode == 0, done.stderr
    with open(out, "rb") as stream:
        assert json.load(stream)["counts"]["files"]["bytes"] == 10
    os.unlink(out)


def test_the_manual_names_every_option_and_no_other(run: Run) -> None:
    said = run([sys.executable, ROOT / "bin" / "fprof", "--help"]).stdout.decode()
    there = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", said))
    manual = (ROOT / "docs" / "fprof.rst").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", manual))
    elsewhere = {"--apparent-size", "--in", "--record", "--seed", "--shape"}  # du, ffind, fbench
    assert named - there == elsewhere
    assert there - named == set()


def test_json_on_standard_output_leaves_the_text_to_standard_error(place: bytes) -> None:
    finished = run_fprof(TWO, "--json", "-", place)
    document = json.loads(finished.out)
    assert document["schema"] == 1
    assert "size up to" in finished.said


def test_files_are_replaced_atomically(place: bytes) -> None:
    """Output of an earlier run is replaced, and nothing is left next to it."""
    os.mkdir(place + b"/tree")
    names = (b"page.html", b"kept", b"out.json")
    for name in names:
        with open(place + b"/" + name, "wb") as file:
            file.write(b"old")
    for _ in range(2):
        options = ("--html", place + b"/page.html", "--save", place + b"/kept",
                   "--json", place + b"/out.json")  # fmt: skip
        assert run_fprof(ONE, "-q", *options, place + b"/tree").code == 0
    assert sorted(os.listdir(place)) == sorted([*names, b"tree"])
    assert all(os.path.getsize(place + b"/" + name) > 100 for name in names)


def test_verbose_lists_all_entries(place: bytes) -> None:
    """The names are on standard error, because standard output has the report."""
    os.makedirs(place + b"/sub/empty")
    for name in (b"/a", b"/sub/b"):
        with open(place + name, "wb"):
            pass
    os.symlink("a", place + b"/link")
    os.mkfifo(place + b"/sub/pipe")
    finished = run_fprof(TWO, "-v", ".", cwd=place)
    assert (finished.code, b"profiled" in finished.out) == (0, False)
    lines = [line for line in finished.said.splitlines() if not line.startswith("fprof: ")]
    names = ["./a", ".", "./link", "./sub", "./sub/b", "./sub/empty", "./sub/pipe"]
    assert sorted(lines) == sorted(f"profiled '{name}'" for name in names)
    finished = run_fprof(ONE, "-v", "sub/b", cwd=place)
    assert finished.said.splitlines()[0] == "profiled 'sub/b'"
