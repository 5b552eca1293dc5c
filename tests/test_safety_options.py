"""`--strict-operands` and `--insecure-links`, in all tools that walk.

The tests run as root, against links that another user has made, each in a directory of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pcircle import change, entries, remove
from pcircle.cli.program import TreeReport
from pcircle.core.errors import UsageError, require
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.directories import HOLDER
from pcircle.fs.safe_open import Untrusted, named, place_of
from pcircle.ops.copy.tree.items import CopyPlan, CopyRoot, open_sides
from pcircle.walk.roots import Root, open_roots
from tests.tools.ffind.calling import find

OTHER = 65534
# The arguments of each tool and its exit code on success; OPERAND is the path in question.
TOOLS: dict[str, tuple[list[str], int]] = {
    "frm": (["-r", "OPERAND"], 0),
    "ffind": (["OPERAND", "-name", "file"], 0),
    "fls": (["-R", "OPERAND"], 0),
    "fchmod": (["-R", "0600", "OPERAND"], 0),
    "fdiff": (["OPERAND", "PAIR"], 0),
    "fcp": (["-T", "OPERAND", "COPY"], 0),
    "fmirror": (["OPERAND", "COPY"], 0),
    "fsum": (["OPERAND"], 0),
    "fprof": (["OPERAND"], 0),
}


def _report_of_entries(*paths: str, **options: Any) -> TreeReport:
    rows = entries(*paths, **options)
    list(rows)
    return require(rows.report)


FUNCTIONS: dict[str, Any] = {
    "frm": remove,
    "ffind": find,
    "fls": _report_of_entries,
    "fchmod": change,
}
NO_SUCH = (
    ("ffind", "--files-from"),
    ("fdiff", "--list-out"),
    ("fsum", "--list-out"),
    ("fprof", "--list-out"),
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
every_tool = pytest.mark.parametrize("tool", sorted(TOOLS))
every_number = pytest.mark.parametrize("jobs", ["-j1", "-j3"])


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("tree", "pair"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file").touch()
        os.utime(tmp_path / name / "inner" / "file", (1e9, 1e9))
        os.utime(tmp_path / name / "inner", (1e9, 1e9))
        os.utime(tmp_path / name, (1e9, 1e9))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    return tmp_path


def _plant_link(path: Path, target: Path, owner: int = OTHER) -> str:
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return str(path)


def _run(top: Path, tool: str, operand: str, *options: str) -> tuple[int, str]:
    words, _ = TOOLS[tool]
    copy = top / "copy"
    known = {"OPERAND": operand, "PAIR": str(top / "pair" / "inner"), "COPY": str(copy)}
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", *options]
    command += [known.get(word, word) for word in words]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def _is_untouched(top: Path) -> bool:
    return (top / "tree" / "inner" / "file").stat().st_mode & 0o777 == 0o644


@every_tool
@every_number
def test_a_strict_operand_is_an_absolute_path(top: Path, tool: str, jobs: str) -> None:
    code, said = _run(top, tool, str(top / "tree" / "inner"), jobs, "--strict-operands")
    assert code == TOOLS[tool][1], said
    if tool == "frm":
        assert os.listdir(top / "tree") == []
    elif tool == "fchmod":
        assert (top / "tree" / "inner" / "file").stat().st_mode & 0o777 == 0o600


@every_tool
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tree/inner", "is not absolute"),
        ("./tree/inner", "is not absolute"),
        ("TOP/./tree/inner", "is not normalized"),
        ("TOP/tree/../tree/inner", "is not normalized"),
        ("TOP//tree/inner", "is not normalized"),
        ("/TOP/tree/inner", "is not normalized"),
        ("TOP/tree/inner/", "is not normalized"),
        ("TOP/tree/inner/.", "is not normalized"),
    ],
)
def test_loose_operands_are_refused(top: Path, tool: str, text: str, why: str) -> None:
    code, said = _run(top, tool, text.replace("TOP", str(top)), "-j1", "--strict-operands")
    assert (code, why in said) == (2, True), said
    assert _is_untouched(top)


@as_root
@every_tool
@pytest.mark.parametrize("owner", [OTHER, 0])
def test_operands_with_links_are_refused(top: Path, tool: str, owner: int) -> None:
    """Links at the end or in the middle of an operand are refused, whoever owns them."""
    end = _plant_link(top / "shared" / "end", top / "tree" / "inner", owner)
    way = _plant_link(top / "shared" / "way", top / "tree", owner)
    for operand in (end, f"{way}/inner"):
        code, said = _run(top, tool, operand, "-j2", "--strict-operands")
        assert code == 2, said
        assert "is a symbolic link" in said
    assert _is_untouched(top)


@as_root
def test_a_link_created_later_is_not_followed(top: Path) -> None:
    """Every rank that opens the root detects a link that was made after the first check."""
    _plant_link(top / "shared" / "way", top / "tree", 0)
    path = os.fsencode(top / "shared" / "way" / "inner")
    loose = open_roots([Root(path, b"", path)], os.getcwdb(), is_first=True)
    with loose.lease(0, b"") as lease:
        assert os.listdir(lease.fd) == ["file"]
    loose.close()
    strict = open_roots([Root(path, b"", path, strict=True)], os.getcwdb(), is_first=True)
    with pytest.raises(Untrusted, match="symbolic link"):
        strict.lease(0, b"")
    strict.close()


@as_root
@pytest.mark.parametrize("tool", ["fcp", "fmirror"])
@pytest.mark.parametrize("where", ["shared/end", "shared/way/inner", "shared/way/new", "./x", "x"])
def test_destinations_are_operands(top: Path, tool: str, where: str) -> None:
    """Links of root, which a copy normally follows, are refused."""
    _plant_link(top / "shared" / "end", top / "pair" / "inner", 0)
    _plant_link(top / "shared" / "way", top / "pair", 0)
    operand, target = str(top / "tree" / "inner"), where
    if where.startswith("shared"):
        target = str(top / where)
    words = ["-T"] if tool == "fcp" else []
    command = [sys.executable, "-m", f"pcircle.tools.{tool}", *words, "-j2", operand, target]
    before = sorted(os.listdir(top / "pair")), sorted(os.listdir(top / "pair" / "inner"))
    done = subprocess.run(
        [*command, "--strict-operands"], cwd=top, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "--strict-operands: " in done.stderr
    assert (sorted(os.listdir(top / "pair")), sorted(os.listdir(top / "pair" / "inner"))) == before
    assert not (top / "x").exists()
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tool", ["fcp", "fmirror"])
def test_sides_are_opened_without_following_links(top: Path, tool: str) -> None:
    """Each rank refuses a link, even one that is made after the first check."""
    for side in ("tree", "pair"):
        (top / "shared" / side).symlink_to(top / side)
    direct = {side: os.fsencode(top / side) for side in ("tree", "pair")}
    planted = {side: os.fsencode(top / "shared" / side) for side in ("tree", "pair")}
    for ways, wrong in ((direct, False), (direct | {"tree": planted["tree"]}, True)):
        assert _is_refused(ways, 0) is wrong
    assert _is_refused(direct | {"pair": planted["pair"]}, 1)
    assert not _is_refused(planted, 0, strict=False)


def _is_refused(ways: dict[str, bytes], side: int, *, strict: bool = True) -> bool:
    root = CopyRoot(ways["tree"], b"inner", ways["pair"], b"inner", "directory", b"a", b"b")
    plan = CopyPlan(
        roots=(root,),
        tool="fcp",
        chunk_bytes=None,
        directory=b"/",
        strict=strict,
        keep=PreservedAttributes(),
        large_bytes=1,
        token=b"",
        umask=0,
    )
    directories = open_sides(plan)
    try:
        directories[side].lease(0, HOLDER).end()
    except Untrusted:
        return True
    finally:
        for directory in directories:
            directory.close()
    return False


@pytest.mark.parametrize("option", ["--apply", "--trash", "--empty-trash"])
def test_strict_operands_require_operands(top: Path, option: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pcircle.tools.frm",
        "--strict-operands",
        option,
        str(top / "x"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--strict-operands cannot be combined with {option}" in done.stderr


@as_root
@every_tool
@pytest.mark.parametrize("option", ["--json", "--error-log", "--list-out", "--files-from"])
def test_insecure_links_to_files_of_options(top: Path, tool: str, option: str) -> None:
    if (tool, option) in NO_SUCH:
        pytest.skip("there is no such option")
    (top / "real").mkdir()
    (top / "real" / "named").write_text("file\n" if option == "--files-from" else "")
    link = _plant_link(top / "shared" / "link", top / "real" / "named")
    way = _plant_link(top / "shared" / "way", top / "real")
    operand = str(top / "tree" / "inner")
    for path in (link, f"{way}/named"):
        code, said = _run(top, tool, operand, "-j2", option, path)
        assert code == 2, said
        assert "is a symbolic link that another user could have created" in said
    assert _is_untouched(top)
    before = (top / "real" / "named").stat().st_mtime_ns
    code, said = _run(top, tool, operand, "-j2", "--insecure-links", option, f"{way}/named")
    assert code == TOOLS[tool][1], said
    if option == "--json":
        assert (top / "real" / "named").stat().st_mtime_ns > before
        assert (top / "real" / "named").read_text()
    elif option == "--list-out" and tool in ("ffind", "fls", "frm", "fcp", "fmirror"):
        assert "file" in (top / "real" / "named").read_text()


@as_root
@pytest.mark.parametrize(
    "words",
    [
        ["fsum", "-o", "WAY/new", "TREE"],
        ["fsum", "--check", "WAY/manifest", "TREE"],
        ["fsum", "--update", "WAY/manifest", "TREE"],
        ["fsum", "--diff", "WAY/manifest", "WAY/manifest"],
        ["fprof", "--save", "WAY/new", "TREE"],
        ["fprof", "--html", "WAY/new", "TREE"],
        ["fprof", "--csv", "WAY/new", "TREE"],
        ["fprof", "--merge", "WAY/profile"],
        ["fprof", "--diff", "WAY/profile", "WAY/profile"],
        ["fcp", "-T", "--json-lines", "WAY/new", "TREE", "COPY"],
        ["fcp", "-T", "--retry-from", "WAY/errors", "TREE", "COPY"],
        ["fcp", "-T", "--checkpoint-dir", "WAY", "TREE", "COPY"],
        ["fmirror", "--json-lines", "WAY/new", "--delete", "TREE", "COPY"],
        ["fmirror", "--error-log", "WAY/new", "--delete", "TREE", "COPY"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_insecure_links_to_more_files_of_options(top: Path, words: list[str]) -> None:
    (top / "real").mkdir()
    (top / "copy" / "surplus").mkdir(parents=True)
    run = partial(subprocess.run, cwd=top, capture_output=True, text=True, check=False)
    python = [sys.executable, "-m"]
    run([*python, "pcircle.tools.fsum", "-o", top / "real" / "manifest", top / "tree"])
    run([*python, "pcircle.tools.fprof", "--save", top / "real" / "profile", top / "tree"])
    run([*python, "pcircle.tools.fcp", "--error-log", top / "real" / "errors", "tree", "other"])
    known = {"TREE": str(top / "tree"), "COPY": str(top / "copy")}
    way = _plant_link(top / "shared" / "way", top / "real")
    command_words = [known.get(word, word).replace("WAY", way) for word in words[1:]]
    jobs = [] if words[1] in ("--diff", "--merge") else ["-j2"]
    command = [*python, f"pcircle.tools.{words[0]}", *jobs, *command_words]
    before = {path: path.read_bytes() for path in (top / "real").iterdir()}
    done = run(command)
    assert done.returncode == 2, done.stderr
    assert "is a symbolic link that another user could have created" in done.stderr
    assert {path: path.read_bytes() for path in (top / "real").iterdir()} == before
    done = run([*command, "--insecure-links"])
    assert done.returncode == 0, done.stderr
    assert (top / "real" / "new").exists() is any("/new" in word for word in words)


PLANTED: list[tuple[str, dict[str, Any]]] = [
    ("frm", {"plan": "WAY/new", "recursive": True}),
    ("frm", {"apply": "WAY/plan"}),
    ("frm", {"json_lines": "WAY/new", "recursive": True}),
    ("frm", {"exclude_from": "WAY/rules", "recursive": True}),
    ("frm", {"trash": "WAY", "recursive": True}),
    ("frm", {"empty_trash": "WAY"}),
    ("ffind", {"plan": "WAY/new", "words": ["-delete"]}),
    ("ffind", {"json_lines": "WAY/new", "words": ["-delete"]}),
    ("ffind", {"words": ["-fprint", "WAY/new"]}),
    ("ffind", {"words": ["-fprintf", "WAY/new", "%p"]}),
    ("ffind", {"words": ["-fls", "WAY/new"]}),
    ("ffind", {"words": ["-files0-from", "WAY/names"]}),
    ("fls", {"csv": "WAY/new"}),
    ("fls", {"parquet": "WAY/new"}),
    ("fls", {"json_lines": "WAY/new"}),
    ("fchmod", {"mode": "0600", "undo": "WAY/new", "recursive": True}),
    ("fchmod", {"apply": "WAY/undo"}),
    ("fchmod", {"mode": "0600", "json_lines": "WAY/new", "recursive": True}),
]


@as_root
@pytest.mark.parametrize(
    ("tool", "options"),
    PLANTED,
    ids=lambda value: value if isinstance(value, str) else next(iter(value.items()))[0],
)
def test_functions_refuse_planted_links_to_files_of_options(
    top: Path, tool: str, options: dict[str, Any]
) -> None:
    """Functions refuse planted links like the commands.

    With insecure links allowed, every option works except a trash, which is not a file.
    """
    if options.keys() & {"parquet"}:
        pytest.importorskip("pyarrow")
    (top / "real").mkdir()
    remove(str(top / "pair"), recursive=True, plan=str(top / "real" / "plan"), jobs=1)
    undo = str(top / "real" / "undo")
    change(str(top / "pair"), mode="0600", recursive=True, undo=undo, jobs=1)
    (top / "real" / "rules").write_text("nothing\n")
    (top / "real" / "names").write_text(f"{top}/tree\0")
    way = _plant_link(top / "shared" / "way", top / "real")
    given: dict[str, Any] = {
        name: [word.replace("WAY", way) for word in value]
        if name == "words"
        else value.replace("WAY", way)
        if isinstance(value, str)
        else value
        for name, value in options.items()
    }
    words = given.pop("words", [])
    has_none = options.keys() & {"apply", "empty_trash"} or "-files0-from" in words
    operands = [] if has_none else [str(top / "tree" / "inner")]
    before = {path: path.read_bytes() for path in (top / "real").iterdir()}
    why = "is a symbolic link that another user could have created"
    with pytest.raises(UsageError, match=why):
        FUNCTIONS[tool](*operands, *words, **given, jobs=1)
    assert {path: path.read_bytes() for path in (top / "real").iterdir()} == before
    assert _is_untouched(top)
    if options.keys() & {"trash", "empty_trash"}:
        with pytest.raises(UsageError, match="is a symbolic link"):
            FUNCTIONS[tool](*operands, **given, insecure_links=True, jobs=1)
        return
    result = FUNCTIONS[tool](*operands, *words, **given, insecure_links=True, jobs=1)
    assert getattr(result, "report", result).exit_code == 0


@as_root
def test_operands_differ_from_files_of_options(top: Path) -> None:
    """fchmod never follows a link of another user in an operand."""
    link = _plant_link(top / "shared" / "link", top / "tree" / "inner" / "file")
    command = [sys.executable, "-m", "pcircle.tools.fchmod", "--insecure-links", "0600", link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "another user could have created" in done.stderr
    assert _is_untouched(top)


@as_root
def test_the_permission_ends_with_the_run(top: Path) -> None:
    (top / "real").touch()
    link = os.fsencode(_plant_link(top / "shared" / "link", top / "real"))
    remove(str(top / "tree"), recursive=True, insecure_links=True, jobs=1)
    for way in (named, place_of):
        with pytest.raises(Untrusted), way(link):
            pass
