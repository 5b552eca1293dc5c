"""Options: output formats, filters, moves, early ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

import pcircle.tools.fdiff
from pcircle.core.errors import UsageError
from tests import terminal
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, command

from .running import FDIFF, differing, document, every_launcher, run_fdiff, twin
from .test_fields import still

__all__ = ["place"]


@pytest.fixture(name="pair")
def _pair(place: bytes) -> tuple[bytes, bytes]:
    """Create some entries, of which a few differ."""
    a = trees.make_directory(place, b"a")
    for name in (b"same", b"size", b"content", b"mode", b"only a"):
        trees.write_file(a + b"/" + name, b"content of " + name)
    trees.write_file(trees.make_directory(a, b"alone") + b"/in a", b"1")
    b = twin(a, place + b"/b")
    os.truncate(b + b"/size", 3)
    os.unlink(b + b"/content")
    trees.write_file(b + b"/content", b"Content of content")
    os.chmod(b + b"/mode", 0o600)
    os.unlink(b + b"/only a")
    subprocess.run(["rm", "-r", b + b"/alone"], check=True)
    trees.write_file(b + b"/only b\n", b"1")
    trees.write_file(trees.make_directory(b, b"kind") + b"/in b", b"1")
    trees.write_file(a + b"/kind", b"1")
    still(a)
    still(b)
    return a, b


_LINES = [
    "+Ad++++++++ alone/", "+Af++++++++ only a", "+Bf++++++++ only b\\x0a",
    ".f...p..... mode", ">f+++++++++,kind kind", ">f.s....... size",
]  # fmt: skip


def test_lines_of_json(pair: tuple[bytes, bytes], place: bytes) -> None:
    """The actions and reasons that would make B equal to A; each is also a line of the output."""
    actions = place + b"/actions"
    finished = run_fdiff(TWO, "-c", "--json-lines", actions, *pair)
    lines = finished.out.decode().splitlines()
    assert sorted(lines) == sorted([*_LINES[:-1], ">fc........ content", ">fcs....... size"])
    with open(actions, "rb") as stream:
        actions_read = [json.loads(line) for line in stream]
    known = {
        action["path"]: (action["action"], action["why"], action["kind"]) for action in actions_read
    }
    assert known == {
        "alone": ("copy", ["only_a"], "d"),
        "only a": ("copy", ["only_a"], "f"),
        "only b\n": ("delete", ["only_b"], "f"),
        "mode": ("chmod", ["mode"], "f"),
        "kind": ("replace", ["kind"], "f"),
        "size": ("update", ["size", "content"], "f"),
        "content": ("update", ["content"], "f"),
    }
    assert {action["state"] for action in actions_read} == {"planned"}
    assert {action["tool"] for action in actions_read} == {"fdiff"}


def test_lists(pair: tuple[bytes, bytes], place: bytes) -> None:
    listed = place + b"/list"
    assert len(differing(TWO, "-0", "--list-out", listed, *pair)) == len(_LINES)
    with open(listed, "rb") as stream:
        names = sorted(stream.read().split(b"\0")[:-1])
    assert names == [b"alone", b"kind", b"mode", b"only a", b"only b\n", b"size"]
    finished = run_fdiff(TWO, "--list-out", listed, *pair)
    assert finished.code == 3
    assert b"1 entry is missing" in finished.err


def _matching(pair: tuple[bytes, bytes], place: bytes, expression: str, *options: str) -> list[str]:
    name = os.fsdecode(place + b"/matching")
    finished = run_fdiff(TWO, "-0", *options, "-o", f"{expression}:{name}", *pair)
    assert finished.code == 3, finished.said
    with open(name, "rb") as stream:
        return sorted(stream.read().decode().split("\0")[:-1])


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("EXIST=ONLY_SRC", ["alone", "alone/in a", "only a"]),
        ("EXIST=ONLY_DEST", ["kind/in b", "only b\n"]),
        ("EXIST=DIFFER", ["alone", "alone/in a", "kind/in b", "only a", "only b\n"]),
        ("EXIST=COMMON", [".", "content", "kind", "mode", "same", "size"]),
        ("TYPE=DIFFER", ["kind"]),
        ("EXIST=COMMON@TYPE=COMMON@SIZE=DIFFER", ["size"]),
        ("PERM=DIFFER@TYPE=COMMON,EXIST=ONLY_SRC", ["alone", "alone/in a", "mode", "only a"]),
        ("CONTENT=COMMON@TYPE=COMMON", [".", "mode", "same"]),
        ("CONTENT=DIFFER", ["content", "kind", "size"]),
        ("SIZE=COMMON@CONTENT=DIFFER", ["content"]),
    ],
)
def test_expressions_of_dcmp(
    pair: tuple[bytes, bytes], place: bytes, expression: str, names: list[str]
) -> None:
    assert _matching(pair, place, expression) == names
    assert _matching(pair, place, expression, "-j1", "--quick") == names or "PERM" in expression


def test_the_table_of_dcmp(pair: tuple[bytes, bytes]) -> None:
    finished = run_fdiff(TWO, "--format=dcmp", *pair)
    assert finished.code == 3
    counts = [
        ("exist in both directories", 6, 6),
        ("exist only in one directory", 3, 2),
        ("exist in both directories and have the same type", 5, 5),
        ("exist in both directories and have different types", 1, 1),
        ("exist in both directories and have the same content", 3, 3),
        ("exist in both directories and have different contents", 3, 3),
    ]
    totals = ["N/A" if a != b else a for _, a, b in counts]
    assert finished.out.decode().splitlines() == [
        f"Number of items that {text}: {total} (Src: {a} Dest: {b})"
        for (text, a, b), total in zip(counts, totals, strict=True)
    ]


@every_launcher
def test_the_first_difference_is_enough(place: bytes, launcher: Launcher) -> None:
    a = trees.build_flat_tree(place + b"/a", directories=60, files=50, size_bytes=1)
    b = twin(a, place + b"/b")
    for number in range(60):
        subprocess.run(["touch", "-d", "@5", b"%b/%b" % (b, sorted(os.listdir(b))[number])],
                       check=True)  # fmt: skip
    lines = differing(launcher, "--first", a, b)
    assert 1 <= len(lines) <= 60
    assert lines[0].startswith(".d..t...... ")
    finished = run_fdiff(launcher, "-q", "--first", a, b)
    assert (finished.code, finished.out) == (3, b"")
    assert run_fdiff(launcher, "-q", "--first", a, a).code == 0


@pytest.mark.parametrize("option", ["--moved", "--by-hash"])
def test_moves(place: bytes, option: str) -> None:
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    for top in (a, b):
        trees.write_file(top + b"/stays", b"stays")
        trees.write_file(top + b"/empty " + top[-1:], b"")
    trees.write_file(trees.make_directory(a, b"old", b"deep") + b"/file", b"moved")
    trees.write_file(trees.make_directory(b, b"new") + b"/name", b"moved")
    trees.write_file(a + b"/gone", b"gone away")
    trees.write_file(b + b"/come", b"come along")
    for top in (a, b):
        still(top)
    expected = [
        "+Ad++++++++ old/", "+Af++++++++ empty a", "+Af++++++++ gone", "+Bd++++++++ new/",
        "+Bf++++++++ come", "+Bf++++++++ empty b", "+Mf++++++++ old/deep/file => new/name",
    ]  # fmt: skip
    assert differing(TWO, option, a, b) == expected
    with_all = [*expected, "+Ad++++++++ old/deep/"]
    assert differing(TWO, "-i", option, a, b) == sorted(with_all)
    counts = document(TWO, option, a, b)["counts"]
    assert (counts["moved"], counts["only_a"], counts["only_b"]) == (1, 4, 3)
    os.utime(b + b"/new/name", ns=(5, 5))
    assert ("+Mf++++++++ old/deep/file => new/name" in differing(TWO, option, a, b)) == (
        option == "--by-hash"
    )


@pytest.mark.slow
def test_a_full_disk_during_the_final_sort(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """Hard links and moves are sorted on disk: without space the job stops with 4 and a message."""
    small = mount_tmpfs("size=1m")
    a = trees.make_directory(place, b"a")
    b = trees.make_directory(place, b"b")
    for folder in [b"%d" % number for number in range(64)]:  # keeps queues short
        trees.make_directory(b, folder)
        fd = os.open(trees.make_directory(a, folder), os.O_RDONLY)
        try:
            for number in range(2500):
                os.mknod(b"%0200d" % number, dir_fd=fd)
        finally:
            os.close(fd)
    environment = {"TMPDIR": os.fsdecode(small)}
    finished = run_fdiff(ONE, "-q", "--moved", a, b, environment=environment)
    assert finished.code == 4
    assert "cannot sort in the temporary directory: No space left on device" in finished.said


def test_filters_select_pairs_by_a(pair: tuple[bytes, bytes]) -> None:
    a, b = pair
    assert differing(TWO, "--exclude=*only*", "--exclude=alone", a, b) == _LINES[3:]
    assert differing(TWO, "--include=only*", "--exclude=*", "--ignore=mtime", a, b) == _LINES[1:3]
    # The size of the entry in A counts: that of B is too small.
    assert differing(TWO, "--min-size=14", a, b, code=3) == [*_LINES[:2], _LINES[3], _LINES[5]]
    assert ">f.s....... size" in differing(TWO, "--min-size=4", a, b)
    assert "+Bf++++++++ only b\\x0a" not in differing(TWO, "--min-size=4", a, b)


def test_lists_select_pairs(pair: tuple[bytes, bytes], place: bytes) -> None:
    listed = place + b"/names"
    names = [b"same", b"size", b"only a", b"only b\n", b"alone", b"kind"]
    with open(listed, "wb") as stream:
        stream.write(b"\0".join(names) + b"\0")
    options = ("--files-from", listed, "-0")
    lines = differing(TWO, *options, *pair)
    assert lines == [_LINES[0], *_LINES[1:3], *_LINES[4:]]
    lines = differing(TWO, *options, "-r", "-i", *pair)
    assert lines == sorted([*_LINES[:3], *_LINES[4:], "+Af++++++++ alone/in a",
                            "+Bf++++++++ kind/in b"])  # fmt: skip
    with open(listed, "wb") as stream:
        stream.write(b"same\0nowhere\0")
    finished = run_fdiff(ONE, *options, *pair)
    assert finished.code == 1
    assert b"nowhere': No such file" in finished.err


def test_another_file_system_is_not_entered(
    place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    inner = mount_tmpfs("size=1m")
    trees.write_file(inner + b"/file", b"1")
    for top in (a, b):
        trees.make_directory(top, b"mount")
    subprocess.run(["mount", "--bind", inner, a + b"/mount"], check=True)
    options = ("--fields=kind,size",)
    try:
        assert differing(TWO, *options, a, b) == ["+Af++++++++ mount/file"]
        assert differing(TWO, "-x", *options, a, b, code=0) == []
    finally:
        subprocess.run(["umount", a + b"/mount"], check=True)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM], ids=lambda signal_number: signal_number.name
)
def test_an_interrupted_comparison(fuse: Mount, place: bytes, number: signal.Signals) -> None:
    """It ends with the signal's code, prints how to repeat it, and leaves no process."""
    mounted = fuse()
    b = trees.make_directory(place, b"b")
    for name in range(50):
        trees.write_file(b"%b/%d" % (mounted.backing, name), b"x")
        trees.write_file(b"%b/%d" % (b, name), b"x")
    mounted.rules(Rule(("getattr", "lookup"), "[0-9]*", delay_s=1.0))
    with Run(TWO, mounted.path, b, program=FDIFF) as run:
        while not mounted.state().delayed:
            time.sleep(0.01)
        run.signal(number)
        ended = run.finish()
        assert run.wait_until_gone() == []
    assert ended.code == 128 + number
    assert "fdiff: to try again, run: fdiff -j 2 " in ended.said


@pytest.mark.faults
def test_a_time_limit_stops_cleanly(fuse: Mount, place: bytes) -> None:
    """Differences found by then are printed; most of the slow directories are never read."""
    mounted = fuse()
    b = trees.make_directory(place, b"b")
    for number in range(60):
        for side in (mounted.backing, b):
            directory = trees.make_directory(side, b"%d" % number)
            trees.write_file(directory + b"/slow", b"x")
    trees.write_file(mounted.backing + b"/size", b"1")
    trees.write_file(b + b"/size", b"12")
    for limit_s in (2, 10, 50):  # a busy machine may compare nothing in a short time
        mounted.rules(Rule(("getattr", "lookup"), "*/slow", delay_s=limit_s / 10))
        options = ("--threads=1", "--quick", f"--stop-after={limit_s}")
        done = run_fdiff(ONE, *options, mounted.path, b)
        assert done.code == 4, done.said
        assert f"fdiff: time limit reached (--stop-after {limit_s}" in done.said
        if mounted.state().hits[0]:
            break
    lines = done.out.decode().splitlines()
    assert sum(line.startswith(">f.s") and line.endswith(" size") for line in lines) == 1
    assert len(lines) == len(set(lines))
    assert 0 < mounted.state().hits[0] < 60


def test_a_time_limit_in_the_past_is_refused(pair: tuple[bytes, bytes]) -> None:
    done = run_fdiff(ONE, "--stop-at", "2020-01-01", *pair)
    assert (done.code, "--stop-at" in done.said) == (2, True)
    assert run_fdiff(TWO, "--stop-after", "1h", *pair).code == 3


def test_from_a_program(pair: tuple[bytes, bytes], capfd: pytest.CaptureFixture[str]) -> None:
    result = pcircle.compare(*pair, contents=True, ignore="mode", jobs=1)
    assert result.exit_code == 3
    assert result.counts["different_content"] == 2
    assert result.counts["only_a"] == 2
    same = pcircle.compare(pair[0], pair[0], jobs=1)
    assert same.exit_code == 0
    with pytest.raises(UsageError, match="unknown field"):
        pcircle.compare(*pair, fields="colour")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("a", "missing operand B after 'a'"),
        ("", "missing operands A and B"),
        ("a b c", "extra operand 'c'"),
        ("a nowhere", "cannot read 'nowhere': No such file or directory"),
        ("--fields=colour a b", "--fields: unknown field 'colour'; choose from kind, size"),
        ("--ignore=all a b", "no fields are left to compare"),
        ("--quick --fields=size a b", "--quick cannot be combined with --fields"),
        ("--modify-window=x a b", "--modify-window: invalid duration 'x'"),
        ("-o EXIST=COMMON a b", "must be EXPR:FILE"),
        ("-o SIZE=ONLY_SRC:f a b", "--output: unknown state 'ONLY_SRC' of SIZE"),
        ("-o NAME=COMMON:f a b", "--output: unknown field 'NAME'; choose from EXIST, TYPE"),
    ],
)
def test_refusals(place: bytes, arguments: str, said: str) -> None:
    for name in (b"a", b"b"):
        trees.make_directory(place, name)
    finished = run_fdiff(ONE, *arguments.split(), cwd=place)
    assert finished.code == 2
    assert said in finished.said
    assert sorted(os.listdir(place)) == [b"a", b"b"]


@every_launcher
def test_words(launcher: Launcher, pair: tuple[bytes, bytes]) -> None:
    os.rename(pair[1] + b"/mode", pair[1] + b"/moved")
    where = os.path.dirname(pair[0])
    words = ("--format=words", "--moved", "--ignore=mtime", b"a", b"b")
    finished = run_fdiff(launcher, *words, cwd=where)
    assert finished.code == 3, finished.said
    assert sorted(finished.out.decode().splitlines()) == [
        "differs    kind: kind", "differs    size: size",
        "moved      alone/in a => kind/in b", "moved      mode => moved",
        "only in a  alone/", "only in a  only a", "only in b  only b\\x0a",
    ]  # fmt: skip
    long = run_fdiff(launcher, "--format=words", *pair).out.decode().splitlines()
    assert {line.partition("  ")[0] for line in long} == {"differs", "only in A", "only in B"}
    assert (
        "only in A  alone/in a" in run_fdiff(launcher, "--format=words", "-i", *pair).out.decode()
    )


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_shows_words_unless_columns_are_requested(
    pair: tuple[bytes, bytes], columns: int
) -> None:
    with terminal.Terminal(columns, 24) as window:
        for options, line in (((), "differs"), (("-i",), ">f.s"), (("--format=rsync",), ">f.s")):
            assert window.run(command(ONE, ["--progress=never", *options, *pair], FDIFF)) == 3
            assert line in window.screen()
            assert ("only in A  only a" in window.screen()) == (line == "differs")
    assert ">f.s" in run_fdiff(ONE, *pair).out.decode()
