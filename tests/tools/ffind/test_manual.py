"""The examples of find's own manual and their features: ffind gives the same answers as find."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.fcp.running import TWO
from tests.tools.ffind.calling import find

from .running import by_find, found, run_ffind

EXAMPLES = [
    r". -name core -type f -print",
    r". -name a -type f -print0",
    r". -type f -exec echo {} ;",
    r". -type f -exec echo x {} y {} ;",
    r". -mtime 0",
    r". -executable ! -readable -print",
    r". -perm 664",
    r". -perm -664",
    r". -perm /222",
    r". -perm /220",
    r". -perm /u+w,g+w",
    r". -perm /u=w,g=w",
    r". -perm -220",
    r". -perm -g+w,u+w",
    r". -perm -444 -perm /222 ! -perm /111",
    r". -perm -a+r -perm /a+w ! -perm /a+x",
    r". -name .hid -prune -o ( ! -name *~ -print0 )",
    r". ( -exec test -d {}/dd ; -or -exec test -d {}/ddd ; ) -print -prune",
    r". -type f,d,l",
    r". ( -type f -o -type d -o -type l )",
    r". .. / /tmp d plain d/dd -maxdepth 0 -printf [%h][%f]\n",
    r"d/ ./d/ d// -maxdepth 1 -printf [%h][%f][%P][%H][%p]\n",
    r". -name *.c -o -name *.txt -print , -type d -printf %f\n",
    r"-L links -type l",
    r"-H links/up -maxdepth 1 -name d",
    r". -depth -type d",
    r". -not -newer plain -and -size +1k -o -empty",
    r"-O3 -D tree . -maxdepth 1",
    r". -execdir echo {} ;",
    r". -type d -empty -ls",
    r". -ls",
    r". -samefile sparse -ls",
]


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples(tree: bytes, line: str) -> None:
    words = shlex.split(line.replace("\\", "\\\\"))
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        ["find", *words], cwd=tree, env=environment, capture_output=True, check=False
    )
    finished = run_ffind(TWO, *words, cwd=tree)
    # find widens columns after earlier output; ours are constant.
    expected, lines = (
        sorted(output.replace(b"\0", b"\n").split(b"\n")) for output in (done.stdout, finished.out)
    )
    if "-ls" in words:
        expected, lines = (sorted(b" ".join(e.split()) for e in x) for x in (expected, lines))
    assert lines == expected
    assert finished.code == done.returncode, finished.said


def test_two_actions_in_one_walk(tree: bytes, tmp_path: Path) -> None:
    written = {}
    for tool in ("find", "ffind"):
        names = [
            str(tmp_path / f"{tool}-{suffix}") for suffix in ("suid", "big", "list", "null", "ls")
        ]
        words = [
            ".", "(", "-perm", "-4000", "-fprintf", names[0], "%#m %u %p\\n", ")", ",",
            "(", "-size", "+10k", "-fprintf", names[1], "%-10s %p\\n", ")", ",",
            "(", "-type", "d", "-fprint", names[2], "-fprint0", names[3], ")", ",",
            "-name", "plain", "-fls", names[4],
        ]  # fmt: skip
        if tool == "find":
            assert by_find(*words, cwd=tree) == []
        else:
            assert found(*words, launcher=TWO, cwd=tree) == []
        written[tool] = [
            sorted(Path(name).read_bytes().replace(b"\0", b"\n").splitlines()) for name in names
        ]
    assert all(written["find"])
    assert written["ffind"] == written["find"]


def test_starting_points_from_a_list(tree: bytes, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"plain\0d\0links/to file\0.hid/a\0")
    words = ("-files0-from", str(tmp_path / "list"), "-maxdepth", "0", "-type", "f", "-size", "-5k")
    assert found(*words, cwd=tree) == by_find(*words, cwd=tree)
    refused = run_ffind(TWO, *words, "d", cwd=tree)
    assert refused.code == 2
    assert "cannot be combined with PATH" in refused.said


def test_a_path_may_follow_the_expression(tree: bytes) -> None:
    assert found("-name", "a*", "d", cwd=tree) == by_find("d", "-name", "a*", cwd=tree)


def test_the_value_of_a_comma_is_the_last(tree: bytes) -> None:
    """find 4.9 violates this if the last operand is a test of names."""
    names = found(".", "-readable", ",", "-name", "a*", cwd=tree)
    assert names == by_find(".", "-name", "a*", cwd=tree)
    assert found(".", "-true", ",", "-false", cwd=tree) == []


def test_characters_are_those_of_the_locale(tmp_path: Path) -> None:
    (tmp_path / "é").touch()
    (tmp_path / "ab").touch()
    for locale, pattern in (("C.UTF-8", "?"), ("C", "??"), ("C.UTF-8", "[é]")):
        words = (".", "-mindepth", "1", "-name", pattern)
        finished = run_ffind(TWO, *words, cwd=bytes(tmp_path), environment={"LC_ALL": locale})
        done = subprocess.run(
            ["find", *words],
            cwd=tmp_path,
            env={**os.environ, "LC_ALL": locale},
            capture_output=True,
            check=True,
        )
        assert done.stdout
        assert sorted(finished.out.splitlines()) == sorted(done.stdout.splitlines())


def test_birth_times_are_the_kernels(tmp_path: Path) -> None:
    for name in ("old", "young"):
        (tmp_path / name).touch()
        time.sleep(0.05)  # longer than a tick of the clock that files get their times from
    done = subprocess.run(["stat", "-c", "%W", tmp_path / "old"], capture_output=True, check=True)
    if not int(done.stdout):
        pytest.skip("this file system keeps no birth times")
    words = (".", "-newerBB", "old", "-printf", "%f %B@\n")
    lines = found(*words, cwd=bytes(tmp_path))
    assert [line.split()[0] for line in lines] == [b"young"]
    assert float(lines[0].split()[1]) >= float(done.stdout)


def test_for_programs(tree: bytes) -> None:
    result = find(tree, "-name", "*.txt", "-print0", jobs=1)
    expected = by_find(tree, "-name", "*.txt", cwd=tree)
    assert sorted(result.paths) == expected
    assert result.report.counts["found"] > len(expected)
