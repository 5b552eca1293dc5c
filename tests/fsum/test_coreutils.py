"""--format=coreutils: what tools of that kind print and check, and what fsum checks of theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.fsum.coreutils import line_of, read_line, read_list
from tests.fcp.running import FOUR, ONE, TWO, Launcher, without_rights

from .running import run_fsum, some_launchers

TOOLS = {
    "sha256": "sha256sum",
    "md5": "md5sum",
    "sha1": "sha1sum",
    "sha224": "sha224sum",
    "sha384": "sha384sum",
    "sha512": "sha512sum",
    "blake2b": "b2sum",
    "xxh128": "xxh128sum",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of some sizes, odd names; links and a FIFO, which have no digest here."""
    top = tmp_path / "tree"
    (top / "a" / "b").mkdir(parents=True)
    for number in range(700):
        (top / "a" / f"f{number}").write_bytes(b"%d" % number * (number % 40))
    (top / "a" / "b" / "large").write_bytes(os.urandom(9_000_001))
    (top / "a-b").write_text("x")
    (top / "link").symlink_to("a-b")
    os.mkfifo(top / "pipe")
    return top


def _add_odd_names(top: Path) -> None:
    for name in (b"new\nline", b"back\\slash", b"\\", b"return\r", b" blank ", b"\xff\xfe"):
        with open(os.fsencode(top) + b"/a/" + name, "wb") as stream:
            stream.write(name)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name}, the judge, is not installed")
    return found


@some_launchers
@pytest.mark.parametrize("algorithm", TOOLS)
def test_the_tools_accept_it(launcher: Launcher, algorithm: str, tree: Path) -> None:
    """Every file of the tree, in the order of their paths, as the tool itself would say."""
    tool = _tool(TOOLS[algorithm])
    if algorithm != "xxh128":  # xxhsum knows names that are escaped only in new versions
        _add_odd_names(tree)
    said = run_fsum(
        launcher, "--format=coreutils", "-a", algorithm, "tree", cwd=os.fsencode(tree.parent)
    )
    assert said.code == 0, said.said
    files = sum(path.is_file() and not path.is_symlink() for path in tree.rglob("*"))
    assert len(said.out.splitlines()) == files
    checked = subprocess.run(
        [tool, "-c", "-"], input=said.out, cwd=tree.parent, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    one = subprocess.run(
        [tool, "tree/a-b"], cwd=tree.parent, capture_output=True, check=True
    ).stdout
    assert one in said.out


@some_launchers
def test_it_checks_what_the_tools_print(launcher: Launcher, tree: Path) -> None:
    tool = _tool("sha256sum")
    _add_odd_names(tree)
    files = [os.fsencode(path) for path in sorted(tree.rglob("*")) if path.is_file()]
    for options in ([], ["--tag"], ["-b"]):
        printed = subprocess.run(
            [tool, *options, *(os.path.relpath(path, os.fsencode(tree)) for path in files)],
            cwd=tree,
            capture_output=True,
            check=True,
        ).stdout
        (tree.parent / "list").write_bytes(printed)
        checked = run_fsum(launcher, "--check", "../list", cwd=os.fsencode(tree))
        assert (checked.code, checked.out) == (0, b""), checked.said
    (tree / "a" / "f7").write_text("changed")
    os.unlink(os.fsencode(tree) + b"/a/new\nline")
    checked = run_fsum(launcher, "--check", str(tree.parent / "list"), str(tree))
    assert checked.code == 3
    assert checked.out == b"changed  a/f7\nmissing  a/new\\x0aline\n"


def test_which_algorithm_is_found_or_asked_for(tree: Path) -> None:
    name = tree.parent / "list"
    name.write_bytes(b"d41d8cd98f00b204e9800998ecf8427e  a/f0\n")
    asked = run_fsum(ONE, "--check", str(name), str(tree))
    assert asked.code == 2
    assert "say with -a which it is: md5 or xxh128" in asked.said
    assert run_fsum(ONE, "-a", "md5", "--check", str(name), str(tree)).code == 0
    wrong = run_fsum(ONE, "-a", "sha256", "--check", str(name), str(tree))
    assert wrong.code == 2
    assert "line 1: it is not a digest of sha256" in wrong.said
    name.write_bytes(b"d41d8cd98f00b204e9800998ecf8427e  a/f0\nwhat is this\n")
    assert "line 2: " in run_fsum(ONE, "-a", "md5", "--check", str(name), str(tree)).said


def test_what_can_not_be_read_is_named(tree: Path) -> None:
    (tree / "a" / "f1").chmod(0)
    prefix = without_rights("dac_override", "dac_read_search")
    said = run_fsum(FOUR, "--format=coreutils", "-a", "sha256", str(tree), prefix=prefix)
    assert said.code == 1
    assert f"cannot read '{tree}/a/f1': Permission denied" in said.said
    assert len(said.out.splitlines()) == 701


def test_results_that_can_not_be_written_are_a_failure(tree: Path) -> None:
    prefix = ("sh", "-c", '"$@" > /dev/full', "sh")
    for arguments in (["--format=coreutils"], [], ["-a", "sha256"]):
        finished = run_fsum(TWO, *arguments, str(tree), prefix=prefix)
        assert finished.code == 1
        assert "cannot write standard output: No space left on device" in finished.said


@given(st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name))
def test_any_name_comes_back(name: bytes) -> None:
    digest = b"0123456789abcdef" * 4
    line = line_of(digest, name)
    assert b"\n" not in line
    assert read_line(line)[:2] == (digest, name)
    if not name.endswith(b"\r"):
        assert read_list(iter([line + b"\n"]), None)[1][0].path == name
