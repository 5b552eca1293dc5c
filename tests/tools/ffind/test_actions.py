"""The effects of actions on entries, and output that other tools read."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pcircle import remove
from pcircle.core.errors import UsageError
from tests.conftest import ROOT
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, launchers, without_rights
from tests.tools.ffind.calling import find
from tests.tools.frm.running import run_frm

from .running import by_find, found, run_ffind

SMALL = ["a/1", "a/2", "a/b/3.o", "a/b/4.c", "c/5.o", "c/6", "7.o", "d/e/f/8.o"]
every_deletion = pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)


def grow(top: Path) -> Path:
    """Create a small tree for one test."""
    for path in SMALL:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(b"x" * 10)
    os.symlink("a/1", top / "link.o")
    os.symlink("a", top / "d/dir.o")
    return top


def below(top: Path) -> list[str]:
    """Return all entries below a directory."""
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


@every_deletion
def test_delete_removes_the_same_as_find(tmp_path: Path, launcher: Launcher) -> None:
    for number, words in enumerate(
        [
            (".", "-name", "*.o", "-delete"),
            (".", "-delete"),
            ("a", "c", "-delete"),
            (".", "-type", "d", "-empty", "-delete", "-o", "-name", "8.o", "-delete"),
            (".", "-type", "d", "-delete"),  # most are not empty
            (".", "-mindepth", "2", "-print", "-delete"),
        ]
    ):
        left = []
        for tool in ("find", "ffind"):
            top = grow(tmp_path / f"{tool}{number}")
            if tool == "find":
                done = subprocess.run(["find", *words], cwd=top, capture_output=True, check=False)
                code, out = done.returncode, done.stdout
            else:
                finished = run_ffind(launcher, *words, cwd=bytes(top))
                code, out = finished.code, finished.out
            left.append((code, below(top), sorted(out.splitlines())))
        assert left[0] == left[1], words


@every_deletion
def test_max_delete_counts_before_removals(tmp_path: Path, launcher: Launcher) -> None:
    top = grow(tmp_path / "tree")
    before = below(top)
    words = (".", "-name", "*.o", "-delete")
    for most in ("5", "30%"):
        refused = run_ffind(launcher, *words, "--max-delete", most, cwd=bytes(top))
        assert refused.code == 4, refused.said
        assert "6 entries" in refused.said
        assert below(top) == before
    dry = run_ffind(launcher, *words, "--dry-run", "-v", "--max-delete", "6", cwd=bytes(top))
    assert dry.code == 0
    assert dry.out.count(b"would be deleted") == 6
    assert below(top) == before
    assert run_ffind(launcher, *words, "--max-delete", "6", cwd=bytes(top)).code == 0
    assert [path for path in below(top) if path.endswith(".o")] == []


def test_summary_of_a_dry_run_of_delete(tmp_path: Path) -> None:
    """Without -v only the number is printed, as by frm; a plan is a dry run of its removals."""
    top = grow(tmp_path / "tree")
    plan = str(tmp_path / "plan")
    words = (".", "-name", "*.o", "-delete")
    apply = ("--apply", plan, "--dry-run")
    for line in ((*words, "--dry-run"), (*words, "--plan", plan), apply):
        dry = run_ffind(ONE, *line, cwd=bytes(top))
        assert (dry.code, dry.out) == (0, b""), dry.said
        assert "6 entries would be removed" in dry.said
    assert not run_ffind(ONE, *apply, "-q", cwd=bytes(top)).said
    removed = run_ffind(ONE, *words, "-v", cwd=bytes(top))
    assert "6 entries removed" in removed.said


@pytest.mark.parametrize("words", [["-H", "l"], ["-H", "l/"], ["l/"], ["l"], ["-H", "broken"]])
def test_links_as_path_are_deleted_as_find_does(tmp_path: Path, words: list[str]) -> None:
    """With -H the target of the link is emptied, and the link stays, with find's own reason."""
    seen = []
    for tool in ("find", "ffind"):
        top = tmp_path / tool
        (top / "d" / "e").mkdir(parents=True)
        (top / "d" / "x").touch()
        (top / "l").symlink_to("d")
        (top / "broken").symlink_to("nowhere")
        if tool == "find":
            command = ["find", *words, "-delete"]
            environment = {**os.environ, "LC_ALL": "C"}
            done = subprocess.run(
                command, cwd=top, capture_output=True, check=False, env=environment
            )
            code, said = done.returncode, done.stderr.decode()
        else:
            finished = run_ffind(ONE, *words, "-delete", cwd=bytes(top))
            code, said = finished.code, finished.said
        seen.append((code, below(top), "Not a directory" in said))
    assert seen[0] == seen[1]


def test_deletions_are_reported(tmp_path: Path) -> None:
    top = grow(tmp_path / "tree")
    log = tmp_path / "log"
    words = (".", "-name", "*.o", "-delete", "--json-lines", str(log))
    assert run_ffind(TWO, *words, "--ops-limit", "1000", cwd=bytes(top)).code == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["action"] for line in lines} == {"delete"}
    assert sorted(line["path"] for line in lines) == [
        "7.o", "a/b/3.o", "c/5.o", "d/dir.o", "d/e/f/8.o", "link.o",
    ]  # fmt: skip


def test_a_link_that_takes_a_directorys_place_is_not_followed(tmp_path: Path) -> None:
    top = grow(tmp_path / "tree")
    other = grow(tmp_path / "other")
    os.rename(top / "c", top / "was c")
    os.symlink(other, top / "c")
    assert run_ffind(TWO, ".", "-type", "f", "-delete", cwd=bytes(top)).code == 0
    assert len([path for path in other.rglob("*") if path.is_file()]) == len(SMALL) + 1


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_commands_run_as_in_find(tree: bytes, launcher: Launcher) -> None:
    for words in (
        (".", "-maxdepth", "1", "-exec", "sh", "-c", 'echo "$1"; echo "$1" >&2', "x", "{}", ";"),
        (".", "-maxdepth", "1", "-execdir", "sh", "-c", 'pwd; echo "$0"', "{}", ";"),
        (".", "-maxdepth", "1", "-exec", "test", "-d", "{}", ";", "-print"),
        (".", "-maxdepth", "1", "-exec", "false", ";", "-o", "-type", "d", "-print"),
        (".", "-maxdepth", "1", "-exec", "printf", "%s\\n", "{}", "+"),
        (".", "-maxdepth", "1", "-execdir", "printf", "%s\\n", "{}", "+"),
        ("d", "-execdir", "printf", "%s\\n", "{}", "+"),
    ):
        assert found(*words, launcher=launcher, cwd=tree) == by_find(*words, cwd=tree), words


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_gathered_commands_run_before_a_search_ends_early(
    tmp_path: Path, launcher: Launcher
) -> None:
    """GNU find runs them at -quit, and exits with 1 if one of them fails."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").touch()
    top = bytes(tmp_path)
    for words in (
        ("d", "-exec", "printf", "%s\\n", "{}", "+", "-quit"),
        ("d", "-execdir", "printf", "%s\\n", "{}", "+", "-quit"),
        ("d", "-name", "file", "-exec", "printf", "%s\\n", "{}", "+", "-print", "-quit"),
    ):
        assert found(*words, launcher=launcher, cwd=top) == by_find(*words, cwd=top), words
    limited = found("d", "-exec", "echo", "{}", "+", "-limit", "1", launcher=launcher, cwd=top)
    assert limited == [b"d"]
    for last in (["-quit"], ["-exists"], ["-limit", "1"]):
        failed = run_ffind(launcher, "d", "-exec", "false", "{}", "+", *last, cwd=top)
        assert failed.code == 1, last


def test_commands_get_as_many_names_as_possible(tmp_path: Path) -> None:
    """A command gets at most a thousand names and a limited number of bytes; each name once."""
    for name in (*map(str, range(2500)), *(f"{number:0200d}" for number in range(900))):
        (tmp_path / name).touch()
    script = 'echo "$#"; printf "%s\\n" "$@"'
    words = (".", "-type", "f", "-exec", "sh", "-c", script, "x", "{}", "+")
    lines = found(*words, launcher=TWO, cwd=bytes(tmp_path))
    numbers = [int(line) for line in lines if not line.startswith(b"./")]
    assert (sum(numbers), len(lines)) == (3400, 3400 + len(numbers))
    assert len(set(lines) - {b"%d" % number for number in numbers}) == 3400
    assert 4 <= len(numbers) < 60
    assert max(numbers) <= 1000


def test_commands_that_fail(tmp_path: Path) -> None:
    top = bytes(grow(tmp_path / "tree"))
    assert run_ffind(TWO, ".", "-exec", "false", ";", cwd=top).code == 0
    assert run_ffind(TWO, ".", "-exec", "false", "{}", "+", cwd=top).code == 1
    missing = run_ffind(TWO, ".", "-type", "d", "-exec", "/no/such", "{}", ";", "-print", cwd=top)
    assert missing.out == b""
    assert "cannot run '/no/such'" in missing.said


def test_lines_of_commands_do_not_mix(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"file{number}").touch()
    script = "for i in 1 2 3 4 5 6 7 8; do printf %s $0; printf ' and %s\\n' $0; done"
    words = (".", "-type", "f", "-exec", "sh", "-c", script, "{}", ";")
    lines = found(*words, launcher=Launcher(jobs=4), cwd=bytes(tmp_path))
    assert len(lines) == 60 * 8
    assert all(line.split(b" and ")[0] == line.split(b" and ")[1] for line in lines)


def test_a_command_may_print_long_lines(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end"
    words = (".", "-type", "f", "-exec", "sh", "-c", script, ";")
    lines = found(*words, launcher=ONE, cwd=bytes(tmp_path))
    assert lines == [b"end", b"x" * 5_000_000]


def test_dry_run_runs_nothing(tmp_path: Path) -> None:
    top = grow(tmp_path / "tree")
    before = below(top)
    words = (".", "-name", "7.o", "-exec", "rm", "{}", ";")
    assert found(*words, "--dry-run", cwd=bytes(top)) == [b"would run: rm ./7.o"]
    assert below(top) == before


def test_a_list_feeds_the_other_tools(tmp_path: Path) -> None:
    top = grow(tmp_path / "tree")
    (top / "new\nline.o").touch()
    (top / "#comment.o").touch()
    pipe = (
        f"{sys.executable} -m pcircle.tools.ffind -j2 tree -name '*.o' --list-out - -0"
        f" | {sys.executable} -m pcircle.tools.frm -q -j2 --files-from - -0 tree"
    )
    done = subprocess.run(pipe, shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [path for path in below(top) if path.endswith(".o")] == []
    assert len(below(top)) > 5


@pytest.mark.parametrize(
    "form",
    [
        "%p %P %f %h %H %d %y %d%% 100%%\\n",
        "%p %s %b %k %i %n %U:%u %G:%g %m %M %T@ %A@ %C@ %TY-%Tm-%Td %TT\\n",
        "no directive, %% alone\\n",
        "%10s|%-12f|%#m %p\\n",
    ],
)
def test_formats_of_name_batches(tree: bytes, form: str) -> None:
    """The output equals find's, for small and large directories and all forms of PATH."""
    starts = (".", "", f"{os.fsdecode(tree)}//")
    for start in starts if "%h" in form else starts[:1]:
        for words in (
            (),
            ("-type", "f", "-size", "-2"),
            ("(", "-type", "f", "-o", "-type", "l", ")"),
        ):
            arguments = [*([start] if start else []), *words, "-printf", form]
            expected = b"\n".join(by_find(*arguments, cwd=tree))
            assert b"\n".join(found(*arguments, cwd=tree)) == expected, arguments


def test_json_and_csv_match_the_files(tree: bytes) -> None:
    formats = "%s %b %U %G %n %i %m\\n"
    expected = by_find(".", "-type", "f", "-printf", formats, cwd=tree)
    lines = [json.loads(line) for line in found(".", "-type", "f", "-json", cwd=tree)]
    fields = ("size", "blocks", "uid", "gid", "links", "inode")
    printed = [
        " ".join([*(str(line[field]) for field in fields), f"{int(line['mode'], 8):o}"]).encode()
        for line in lines
    ]
    assert sorted(printed) == expected
    assert sum("path_b64" in line for line in lines) > 100  # of bytes that are not characters
    finished = run_ffind(TWO, ".", "-type", "f", "-csv", cwd=tree)
    rows = list(csv.DictReader(io.StringIO(finished.out.decode())))
    assert sorted(int(row["inode"]) for row in rows) == sorted(line["inode"] for line in lines)
    assert {row["kind"] for row in rows} == {"f"}


def test_disk_usage_counts_hard_linked_files_once(tree: bytes) -> None:
    done = subprocess.run(["du", "-s", "-B1", "."], cwd=tree, capture_output=True, check=True)
    for launcher in (ONE, TWO):
        assert found(".", "-du", launcher=launcher, cwd=tree) == [done.stdout.split()[0]]


def test_order_by_keys(tree: bytes) -> None:
    result = find(tree, "-type", "f", "-printf", "%s %T@ %p\\0", "--sort=-size,mtime", jobs=1)
    rows = [path.split(b" ", 2) for path in result.paths]
    keys = [(-int(row[0]), float(row[1]), row[2]) for row in rows]
    assert len(keys) > 100
    assert keys == sorted(keys)
    for key, form in {"name": "%f", "ext": "%f", "depth": "%d", "links": "%n"}.items():
        for sign in ("", "-"):
            ordered = find(tree, "-printf", f"{form}\\0", f"--sort={sign}{key}", jobs=1)
            values: list[Any] = ordered.paths
            if key == "ext":
                values = [os.path.splitext(value)[1] for value in values]
            elif key in ("depth", "links"):
                values = [int(value) for value in values]
            assert values == sorted(values, reverse=bool(sign)), (sign, key)
    newest = find(tree, "-type", "f", "-printf", "%T@\\0", top=5, by="mtime", jobs=1)
    oldest = find(tree, "-type", "f", "-printf", "%T@\\0", top=5, by="-mtime", jobs=1)
    times = sorted(map(float, by_find(".", "-type", "f", "-printf", "%T@\\n", cwd=tree)))
    assert list(map(float, newest.paths)) == times[:-6:-1]
    assert list(map(float, oldest.paths)) == times[:5]


def test_common_patterns_exclude_as_well(tree: bytes) -> None:
    lines = found(".", "--exclude=d/", "--exclude", "*.TXT", "-type", "f", cwd=tree)
    words = (".", "-name", "d", "-type", "d", "-prune", "-o", "-type", "f", "-print")
    expected = by_find(*words, cwd=tree)
    assert lines == [line for line in expected if not line.endswith(b".TXT")]


def test_tests_that_find_does_not_have(tree: bytes) -> None:
    def same(ours: tuple[str, ...], finds: tuple[str, ...]) -> None:
        assert found(".", *ours, cwd=tree) == by_find(".", *finds, cwd=tree), ours

    same(("-bytes", "-1k"), ("-size", "-1024c"))
    same(("-bytes", "+1M"), ("-size", "+1048576c"))
    same(("-since", "3d"), ("-mmin", "-4320"))
    same(("-until", "3d"), ("!", "-mmin", "-4320"))
    same(("-since", "file:plain"), ("-newer", "plain"))
    same(("-sparse",), ("-type", "f", "-samefile", "sparse"))
    same(
        ("-exclude", "-name", "d", "-name", "a*"),
        ("-name", "d", "-prune", "-o", "-name", "a*", "-print"),
    )
    deep = found(".", "-exclude", "-name", "d", "-depth", cwd=tree)
    assert deep == by_find(".", "-name", "d", "-prune", "-o", "-print", cwd=tree)
    inode = os.stat(tree + b"/plain").st_ino
    for form in ("{}", "+{}", "-{}"):
        same(("-inum", form.format(inode)), ("-inum", form.format(inode)))
    same(("--stat=never", "-name", "*a*", "-type", "f"), ("-name", "*a*", "-type", "f"))
    blocks = found(".", "-blocks", "+8", "-printf", "%b\\n", cwd=tree)
    assert blocks
    assert min(map(int, blocks)) > 8


def test_types_by_own_names(tree: bytes) -> None:
    for words in (
        ("-L", "links/to dir", "-maxdepth", "0", "-xtype", "l"),
        ("-H", "links/to dir", "-maxdepth", "0", "-type", "d"),
    ):
        assert found(*words, cwd=tree) == by_find(*words, cwd=tree), words


def test_an_interrupted_search_reports_it(tmp_path: Path) -> None:
    """Only whole lines are written."""
    for number in range(200):
        (tmp_path / f"file{number}").touch()
    begun = tmp_path / "begun"
    command = ("sh", "-c", 'mkdir -p "$0"; sleep 0.1', str(begun))
    words = (".", "-type", "f", "-exec", *command, ";", "-print")
    with Run(TWO, *words, cwd=bytes(tmp_path), program=("pcircle.tools.ffind",)) as run:
        while not begun.exists():
            assert run.process.poll() is None
            time.sleep(0.01)
        run.signal(signal.SIGINT)
        finished = run.finish()
    assert finished.code == 130
    lines = finished.out.split(b"\n")
    assert lines.pop() == b""
    assert set(lines) < {b"./file%d" % number for number in range(200)}
    assert "to try again, run: ffind" in finished.said


def test_swapped_directories_lead_nowhere(tmp_path: Path) -> None:
    """Another process keeps swapping directories for links; nothing outside is removed."""
    outside = grow(tmp_path / "outside")
    before = below(outside)
    top = tmp_path / "tree"
    for number in range(60):
        (top / f"{number}" / "a").mkdir(parents=True)
        for name in "xyz":
            (top / f"{number}" / "a" / name).touch()
    swaps = (
        "import itertools, os, sys\n"
        "for turn in itertools.count():\n"
        "    for number in range(60):\n"
        "        at = f'{number}/a'\n"
        "        try:\n"
        "            os.rename(at, at + '.was')\n"
        "            os.symlink(sys.argv[1], at)\n"
        "            os.unlink(at)\n"
        "            os.rename(at + '.was', at)\n"
        "        except OSError:\n"
        "            pass\n"
    )
    command = [sys.executable, "-c", swaps, str(outside / "a")]
    with subprocess.Popen(command, cwd=top) as attacker:
        try:
            for _ in range(4):
                for number in range(60):
                    place = top / f"{number}"
                    place.mkdir(exist_ok=True)
                    (place / f"more{number}").touch()
                run_ffind(TWO, "tree", "-depth", "-mindepth", "1", "-delete", cwd=bytes(tmp_path))
        finally:
            attacker.kill()
    assert below(outside) == before


STARTS = [
    "d",
    "d/",
    "d//",
    "dd",
    "dd/",
    "dd//",
    "dd/ee",
    "dd/ee/",
    "dd//ee//",
    ".",
    "./",
    ".//",
    "./.",
    "..",
    "../",
    "../..",
    "./dd/",
    "dd/.",
    "dd/./",
    "dd/..",
    "dd/../",
    "/",
    "//",
    "/.",
    "/..",
    "/../",
]


def test_names_of_paths_with_slashes_are_those_of_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only PATH itself may have them: some of them lead out of the tree."""
    for name in ("d", "dd/ee"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    actions = ["-printf", "%p [%h] [%f] [%P] [%H] %d\n", "-execdir", "sh", "-c", 'echo "$PWD $0"']
    words = [*STARTS, "-maxdepth", "0", *actions, "{}", ";", "-name", "d*", "-print"]
    done = subprocess.run(["find", *words], capture_output=True, check=True)
    found = find(*words, jobs=1)
    assert sorted(found.text.splitlines()) == sorted(done.stdout.splitlines())
    below = ["d/", "dd//", "./dd/.", "-mindepth", "1", "-printf", "%p %h %f %P %H %d\n"]
    done = subprocess.run(["find", *below], capture_output=True, check=True)
    found = find(*below, jobs=1)
    assert sorted(found.text.splitlines()) == sorted(done.stdout.splitlines())


def test_execdir_runs_the_entry_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho $0 $1\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for words in (("{}", "{}"), ("{}",)):
        found = find(".", "-type", "f", "-execdir", *words, ";", jobs=1)
        second = b" ./program" if len(words) == 2 else b" "
        assert found.text.rstrip() == (b"./program" + second).rstrip()


NUMBERS = ["-+9", "+-9", "--9", "++9", "- 9", " 9", "9 ", "+ 9", "-+ 9", "+9x", "", "+", "0x9"]
NUMBERS += ["1e1", "9.5", "9" * 20, "-" + "9" * 20, "+" + "9" * 20, "18446744073709551615", "1_0"]


def test_numbers_are_parsed_as_find_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    different = []
    for test in ("links", "uid", "gid", "inum", "size", "mtime", "amin", "used", "maxdepth"):
        for number in NUMBERS:
            words = [".", f"-{test}", number]
            done = subprocess.run(["find", *words], capture_output=True, check=False)
            expected = sorted(done.stdout.splitlines()) if not done.returncode else None
            try:
                found = sorted(find(*words, jobs=1, threads=1).text.splitlines())
            except UsageError:
                found = None
            if found != expected:
                different.append((words, expected, found))
    assert not different


def test_a_reference_that_leads_through_a_file_is_the_link_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file/x")
    monkeypatch.chdir(tmp_path)
    for follow in ("-H", "-P"):
        for test in ("-samefile", "-newer", "-anewer", "-cnewer", "-neweram"):
            words = [follow, ".", test, "link"]
            done = subprocess.run(["find", *words], capture_output=True, check=True)
            found = find(*words, jobs=1)
            assert sorted(found.text.splitlines()) == sorted(done.stdout.splitlines()), words


def test_commands_get_no_more_names_than_fit(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{'n' * 90}{number}").touch()
    words = ["-type", "f", "-exec", "sh", "-c", "echo $#", "s", "{}", "+"]
    program = ROOT / "bin" / "ffind"
    line = 'ulimit -s 512; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, program, "-j1", tmp_path, *words],
        env={**os.environ, "LARGE": "x" * 80_000},
        capture_output=True,
        check=True,
    )
    assert sum(map(int, done.stdout.split())) == 1000


def age_directories(top: Path) -> list[str]:
    """Set the access time of directories to 60 days ago."""
    at_s = time.time() - 60 * 86400
    for name in ("a", "b/c", "b/d"):
        (top / name).mkdir(parents=True)
    for name in ("b/c", "b/d", "b", "a"):
        os.utime(top / name, (at_s, at_s))
    return ["a", "b/c", "b/d"]


def test_counting_first_preserves_access_times(tmp_path: Path) -> None:
    """Otherwise the second walk would find the directories young, and remove nothing."""
    for number, tests in enumerate((["-empty"], ["-links", "2"], ["-name", "[acd]"])):
        top = tmp_path / str(number)
        names = age_directories(top)
        words = ["-mindepth", "1", "-type", "d", *tests, "-atime", "+30", "-delete"]
        result = find(str(top), *words, jobs=2, max_delete=100)
        assert result.report.exit_code == 0
        assert not any((top / name).exists() for name in names), tests


def test_frm_counts_first_and_preserves_access_times(tmp_path: Path) -> None:
    age_directories(tmp_path / "top")
    options: dict[str, Any] = {
        "by_time": "atime",
        "older_than": "30d",
        "max_delete": 100,
        "keep_root": True,
    }
    report = remove(str(tmp_path / "top"), recursive=True, jobs=2, **options)
    assert report.exit_code == 0
    assert below(tmp_path / "top") == []


def skip_unless_access_times_change(top: Path) -> None:
    """Skip where reading a directory does not change its access time."""
    (top / "probe").mkdir()
    os.utime(top / "probe", (1, 1))
    os.listdir(top / "probe")
    accessed_s = os.stat(top / "probe").st_atime
    (top / "probe").rmdir()
    if accessed_s == 1:
        pytest.skip("mounted with noatime: reading updates no access times")


def of_another_user(top: Path, count: int = 200) -> tuple[str, ...]:
    """Create old writable directories of another user; return a command prefix."""
    if os.geteuid() != 0:
        pytest.skip("only root can make directories of another user")
    skip_unless_access_times_change(top.parent)
    at_s = time.time() - 60 * 86400
    for number in range(count):
        (top / f"{number}/below").mkdir(parents=True)
    for path in [*top.glob("*/below"), *top.glob("*"), top]:
        os.chown(path, 12345, 12345)
        path.chmod(0o777)
        os.utime(path, (at_s, at_s))
    return without_rights("fowner", "dac_override", "dac_read_search")


@pytest.mark.parametrize("launcher", launchers([1, 2], [2]))
def test_the_second_walk_decides_by_access_times_from_before_the_first(
    tmp_path: Path, launcher: Launcher
) -> None:
    """Access times of other users' directories change, because O_NOATIME is refused there."""
    tree = tmp_path / "tree"
    prefix = of_another_user(tree)
    words = [tree, "-mindepth", "1", "-type", "d", "-atime", "+30", "-delete"]
    done = run_ffind(launcher, *map(str, words), "--max-delete", "400", prefix=prefix)
    assert (done.code, below(tree)) == (0, []), done.said
    of_another_user(tree)
    options = ["-r", "--keep-root", "--by-time", "atime", "--older-than", "30d"]
    done = run_frm(launcher, *options, "--max-delete", "400", str(tree), prefix=prefix)
    assert (done.code, below(tree)) == (0, []), done.said


def test_directories_that_only_a_test_reads_keep_their_old_times(tmp_path: Path) -> None:
    """The walk does not open them."""
    tree = tmp_path / "tree"
    prefix = of_another_user(tree, 20)
    words = [str(tree), "-mindepth", "2", "-maxdepth", "2", "-empty", "-atime", "+30"]
    done = run_ffind(TWO, *words, "-delete", "--max-delete", "20", prefix=prefix)
    assert (done.code, len(below(tree))) == (0, 20), done.said


@pytest.mark.parametrize("removes", ["ffind", "frm"])
def test_file_systems_that_ignore_o_noatime_lose_no_access_times(
    tmp_path: Path, removes: str
) -> None:
    """A FUSE server reads the directories in its own way."""
    if os.geteuid() != 0 or shutil.which("bindfs") is None:
        pytest.skip("needs root and bindfs")
    skip_unless_access_times_change(tmp_path)
    age_directories(tmp_path / "top")
    view = tmp_path / "view"
    view.mkdir()
    line = ["bindfs", "-o", "attr_timeout=0", str(tmp_path / "top"), str(view)]
    mounted = subprocess.run(line, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no bindfs here: {mounted.stderr!r}")
    try:
        if removes == "frm":
            options: dict[str, Any] = {"by_time": "atime", "older_than": "30d", "keep_root": True}
            report = remove(str(view), recursive=True, jobs=2, max_delete=100, **options)
        else:
            words = ["-mindepth", "1", "-type", "d", "-atime", "+30", "-delete"]
            report = find(str(view), *words, jobs=2, max_delete=100).report
        assert (report.exit_code, below(view)) == (0, [])
    finally:
        subprocess.run(["umount", view], check=True)


@pytest.mark.parametrize("test", [["-lname", "no*"], ["-xtype", "l"]], ids=str)
def test_links_keep_their_access_times_from_before_the_first_walk(
    tmp_path: Path, test: list[str]
) -> None:
    skip_unless_access_times_change(tmp_path)
    at_s = time.time() - 60 * 86400
    for number in range(20):
        link = tmp_path / str(number)
        link.symlink_to("nowhere")
        os.utime(link, (at_s, at_s), follow_symlinks=False)
    result = find(str(tmp_path), *test, "-atime", "+30", "-delete", jobs=2, max_delete=20)
    assert (result.report.exit_code, below(tmp_path)) == (0, [])
