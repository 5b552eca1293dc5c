"""--format=coreutils: lists for the tools of coreutils, and checks of their lists."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.ops.digest.checksums import format_line, parse_line, parse_list
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, clean_environment, without_rights

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
    """Create files of several sizes and odd names; links and a FIFO, which have no digest here."""
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


def test_special_files_have_no_checksum_and_no_system_error(tree: Path) -> None:
    log, result = tree.parent / "log", tree.parent / "result"
    logs = ("--error-log", str(log), "--json", str(result))
    paths = ("/dev/null", str(tree / "pipe"))
    finished = run_fsum(TWO, "--format=coreutils", *logs, *paths)
    assert finished.code == 1
    assert "'/dev/null': it is a character device: only regular files have" in finished.said
    assert f"'{tree / 'pipe'}': it is a FIFO" in finished.said
    assert finished.said.endswith("fsum: 2 failures: 2 special file\n")
    logged = [json.loads(line) for line in log.read_bytes().splitlines()]
    for failure in (*json.loads(result.read_bytes())["failures"], *logged):
        assert (failure["errno"], failure["error"]) == (None, "special file")


@some_launchers
@pytest.mark.parametrize("algorithm", TOOLS)
def test_coreutils_accept_our_lists(launcher: Launcher, algorithm: str, tree: Path) -> None:
    """Every file of the tree is listed in the order of paths, as by the tool itself."""
    tool = _tool(TOOLS[algorithm])
    if algorithm != "xxh128":  # older versions of xxhsum do not support escaped names
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
def test_lists_of_the_tools_are_checked(launcher: Launcher, tree: Path) -> None:
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


def test_the_algorithm_is_detected_or_requested(tree: Path) -> None:
    name = tree.parent / "list"
    name.write_bytes(b"d41d8cd98f00b204e9800998ecf8427e  a/f0\n")
    asked = run_fsum(ONE, "--check", str(name), str(tree))
    assert asked.code == 2
    assert "ambiguous digest length; choose with -a: md5 or xxh128" in asked.said
    assert run_fsum(ONE, "-a", "md5", "--check", str(name), str(tree)).code == 0
    wrong = run_fsum(ONE, "-a", "sha256", "--check", str(name), str(tree))
    assert wrong.code == 2
    assert "line 1: not a digest of sha256" in wrong.said


def test_unreadable_files_are_named(tree: Path) -> None:
    (tree / "a" / "f1").chmod(0)
    prefix = without_rights("dac_override", "dac_read_search")
    said = run_fsum(FOUR, "--format=coreutils", "-a", "sha256", str(tree), prefix=prefix)
    assert said.code == 1
    assert f"cannot read '{tree}/a/f1': Permission denied" in said.said
    assert len(said.out.splitlines()) == 701


def test_unwritable_results_are_a_failure(tree: Path) -> None:
    prefix = ("sh", "-c", '"$@" > /dev/full', "sh")
    for arguments in (["--format=coreutils"], [], ["-a", "sha256"]):
        finished = run_fsum(TWO, *arguments, str(tree), prefix=prefix)
        assert finished.code == 1
        assert "cannot write standard output: No space left on device" in finished.said


@given(st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name))
def test_any_name_survives(name: bytes) -> None:
    digest = b"0123456789abcdef" * 4
    line = format_line(digest, name)
    assert b"\n" not in line
    assert parse_line(line)[:2] == (digest, name)
    if not name.endswith(b"\r"):
        assert parse_list(line + b"\n", None).lines[0].path == name


# ---- lists are parsed as by the tools ---------------------------------------------------------

_MEANT = {b"n": b"\n", b"r": b"\r", b"\\": b"\\"}
_DIGEST = b"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
_LINES = [
    b"# comment",
    b" # none, for the blank",
    b"",
    b"   ",
    b"\r",
    b"garbage",
    *(
        before + escape + digest + between + name + after
        for before in (b"", b"  ", b"\t ")
        for escape, name in (
            (b"", b"a"),
            (b"", b"long name"),
            (b"", b"b\\n"),
            (b"", b" c"),
            (b"", b"*d"),
            (b"\\", b"e\\n\\\\\\r"),
            (b"\\", b"f\\q"),
            (b"\\", b"g\\"),
        )
        for digest in (_DIGEST, _DIGEST.upper(), _DIGEST[1:], _DIGEST + b"0")
        for between in (b"  ", b" *", b" ", b"\t ")
        for after in (b"", b"\r")
    ),
    *(
        escape + tag + b"(" + name + b")" + equals + _DIGEST + after
        for escape, name in ((b"", b"h"), (b" ", b"i)j"), (b"\\", b"k\\n"), (b"\\", b"l\\q"))
        for tag in (b"SHA256 ", b"SHA256", b"SHA256  ", b"SHA-256 ", b"MD5 ", b"sha256 ")
        for equals in (b" = ", b"=", b"\t= ", b" ")
        for after in (b"", b"0", b" ")
    ),
]


def _by_the_tool(listed: bytes, folder: Path, *options: str) -> tuple[list[bytes], int, int]:
    """Return the names that sha256sum finds in a list, its number of bad lines, and its code."""
    (folder / "list").write_bytes(listed)
    environment = {**os.environ, "LC_ALL": "C"}
    command = [_tool("sha256sum"), *options, "-c", "list"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    names = []
    for line in done.stdout.split(b"\n")[:-1]:
        name = line.removesuffix(b": FAILED open or read")
        if name.startswith(b"\\"):  # since coreutils 9.4 also if it has no newline
            name = re.sub(rb"\\(.)", lambda match: _MEANT[match[1]], name[1:])
        names.append(name)
    bad = re.search(rb"WARNING: (\d+) lines? (?:is|are) improperly formatted", done.stderr)
    return names, int(bad[1]) if bad else 0, done.returncode


@pytest.mark.parametrize("seed", range(3))
def test_lists_are_parsed_as_the_tool_does(seed: int, tmp_path: Path) -> None:
    """All files are missing, so the tool names each one that it parsed."""
    rng = Random(seed)
    for _ in range(25):
        lines = rng.sample(_LINES, rng.choice((1, 2, 3, 8, 40)))
        listed = b"".join(line + b"\n" for line in lines)
        names, bad, _ = _by_the_tool(listed, tmp_path)
        try:
            found = parse_list(listed, "sha256")
        except ValueError:
            assert names == [], listed
        else:
            assert [parsed.path for parsed in found.lines] == names, listed
            assert found.malformed_count == bad, listed


def test_bad_lines_are_counted_and_fail(tree: Path) -> None:
    """The tools do this with --strict, and otherwise only warn."""
    (tree / "zero").write_bytes(b"0")
    name, result = tree.parent / "list", tree.parent / "result"
    good, bad = b"  %b  zero\n" % _DIGEST, b"\\%b  zero\\q\nplease\n" % _DIGEST
    for listed, lines in ((b"# c\n\n" + good, 0), (b"please\n" + good, 1), (bad + good, 2)):
        name.write_bytes(listed)
        for options in ([], ["--strict"]):
            expected = int(lines > 0)
            assert _by_the_tool(listed, tree, "--strict") == ([b"zero: OK"], lines, expected)
            logs = ("--json", str(result))
            finished = run_fsum(ONE, "--check", str(name), *options, *logs, str(tree))
            assert finished.code == expected, finished.said
            assert finished.said.count(f"'{name}': line ") == lines
            words = {0: "", 1: "1 line is", 2: "2 lines are"}[lines]
            assert bool(lines) == ("improperly formatted" in finished.said)
            assert f"fsum: {words}" in finished.said
            assert json.loads(result.read_bytes())["bad_lines"] == lines
    name.write_bytes(good + b"please\n" * 1000)
    many = run_fsum(ONE, "--check", str(name), str(tree))
    assert (many.code, many.said.count("not a checksum line")) == (1, 10)
    assert "fsum: 1,000 lines are improperly formatted" in many.said
    line = [sys.executable, "-m", "pcircle.tools.fsum", "--check", "/dev/stdin", str(tree)]
    piped = subprocess.run(line, input=good, check=False, env=clean_environment())
    assert piped.returncode == 0
    line[4] = "-"
    for text, code in (
        (good, 0),
        (good.replace(_DIGEST[:8], b"0" * 8), 3),
        (b"pcmanifest 1 sha256\n", 2),
    ):
        assert (
            subprocess.run(line, input=text, check=False, env=clean_environment()).returncode
            == code
        )
    name.write_bytes(b"# only\n" + bad)
    refused = run_fsum(ONE, "--check", str(name), str(tree))
    assert refused.code == 2
    assert "line 2: invalid escape in a file name" in refused.said
    assert run_fsum(ONE, "--strict", str(tree)).code == 2


@pytest.mark.parametrize("tool", ["sha256sum", "md5sum", "b2sum"])
@pytest.mark.parametrize("options", [[], ["--tag"], ["-b"]], ids=str)
def test_lists_with_nul_are_read(tmp_path: Path, tool: str, options: list[str]) -> None:
    """Names are literal, and NUL ends each line. A last line without it counts as malformed."""
    names = ["a", "new\nline", "back\\slash", "\\first", " blank", "*star", "# c"]
    for name in names:
        (tmp_path / name).write_text(name)
    command = [_tool(tool), "-z", *options, "--", *names]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    listed = tmp_path / "list"
    algorithm = {"sha256sum": (), "md5sum": ("-a", "md5"), "b2sum": ("-a", "blake2b")}[tool]

    def check(text: bytes, *more: str) -> tuple[int, bytes, str]:
        listed.write_bytes(text)
        done = run_fsum(ONE, *algorithm, *more, "--check", str(listed), str(tmp_path))
        return done.code, done.out, done.said

    assert (
        check(text)
        == check(text, "-0")
        == (0, b"", f"fsum: contents match the list: {len(names)} files\n")
    )
    code, out, said = check(text[:-1], "-0")
    assert (code, out) == (1, b"")
    assert f"'{listed}': line {len(names)}: it does not end with NUL and may be truncated" in said
    code, _, said = check(text[:-1])
    assert (code, "add --null" in said) == (2, True)
    (tmp_path / "a").unlink()
    (tmp_path / "new\nline").write_text("other")
    assert check(text)[:2] == (3, b"missing  a\nchanged  new\\x0aline\n")


def test_a_manifest_is_recognized(tmp_path: Path) -> None:
    """Its digest is printed, as of any file, but a note names the option for those in it."""
    tree, manifest = tmp_path / "tree", tmp_path / "manifest"
    tree.mkdir()
    assert run_fsum(ONE, "-a", "sha256", "-o", str(manifest), str(tree)).code == 0
    done = run_fsum(ONE, "--format", "coreutils", "-a", "sha256", str(manifest), str(tree))
    expected = hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert done.out == f"{expected}  {manifest}\n".encode()
    assert f"use --export '{manifest}'" in done.said
    quiet = run_fsum(ONE, "-q", "--format", "coreutils", str(manifest))
    assert not quiet.said
