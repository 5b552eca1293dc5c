"""`--strict-operands` and `--insecure-links`, of the tools that remove, change, list and compare.

As root, against links that another user has made, each test in a directory of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcircle.frm import remove
from pcircle.trusted import Untrusted, named, place_of
from pcircle.walk.roots import Root, open_roots

OTHER = 65534
# What each is asked, and its exit code if all is well; OPERAND is the path in question.
TOOLS: dict[str, tuple[list[str], int]] = {
    "frm": (["-r", "OPERAND"], 0),
    "ffind": (["OPERAND", "-name", "file"], 0),
    "fls": (["-R", "OPERAND"], 0),
    "fchmod": (["-R", "0600", "OPERAND"], 0),
    "fdiff": (["OPERAND", "PAIR"], 0),
}
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


def _planted(path: Path, target: Path, owner: int = OTHER) -> str:
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return str(path)


def _run(top: Path, tool: str, operand: str, *options: str) -> tuple[int, str]:
    words, _ = TOOLS[tool]
    known = {"OPERAND": operand, "PAIR": str(top / "pair" / "inner")}
    command = [sys.executable, "-m", f"pcircle.{tool}", *options]
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
        ("TOP/./tree/inner", "is not normal"),
        ("TOP/tree/../tree/inner", "is not normal"),
        ("TOP//tree/inner", "is not normal"),
        ("/TOP/tree/inner", "is not normal"),
        ("TOP/tree/inner/", "is not normal"),
        ("TOP/tree/inner/.", "is not normal"),
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
    """At the end and on the way, whoever has made them."""
    end = _planted(top / "shared" / "end", top / "tree" / "inner", owner)
    way = _planted(top / "shared" / "way", top / "tree", owner)
    for operand in (end, f"{way}/inner"):
        code, said = _run(top, tool, operand, "-j2", "--strict-operands")
        assert code == 2, said
        assert "is a symbolic link" in said
    assert _is_untouched(top)


@as_root
def test_a_link_that_is_put_there_later_is_not_followed(top: Path) -> None:
    """By whichever rank opens the root, although it was looked at before."""
    _planted(top / "shared" / "way", top / "tree", 0)
    path = os.fsencode(top / "shared" / "way" / "inner")
    loose = open_roots([Root(path, b"", path)], os.getcwdb(), is_first=True)
    with loose.lease(0, b"") as lease:
        assert os.listdir(lease.fd) == ["file"]
    loose.close()
    strict = open_roots([Root(path, b"", path, strict=True)], os.getcwdb(), is_first=True)
    with pytest.raises(Untrusted, match="symbolic link"):
        strict.lease(0, b"")
    strict.close()


@pytest.mark.parametrize("option", ["--apply", "--trash", "--empty-trash"])
def test_strict_operands_are_not_for_what_has_none(top: Path, option: str) -> None:
    command = [sys.executable, "-m", "pcircle.frm", "--strict-operands", option, str(top / "x")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--strict-operands cannot be combined with {option}" in done.stderr


@as_root
@every_tool
@pytest.mark.parametrize("option", ["--json", "--error-log", "--list-out", "--files-from"])
def test_files_of_options_along_any_link(top: Path, tool: str, option: str) -> None:
    if (tool, option) in (("ffind", "--files-from"), ("fdiff", "--list-out")):
        pytest.skip("there is no such option")
    (top / "real").mkdir()
    (top / "real" / "named").write_text("file\n" if option == "--files-from" else "")
    link = _planted(top / "shared" / "link", top / "real" / "named")
    way = _planted(top / "shared" / "way", top / "real")
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
    elif option == "--list-out" and tool in ("ffind", "fls", "frm"):
        assert "file" in (top / "real" / "named").read_text()


@as_root
def test_operands_are_no_files_of_options(top: Path) -> None:
    """fchmod follows a link of another user neither way."""
    link = _planted(top / "shared" / "link", top / "tree" / "inner" / "file")
    command = [sys.executable, "-m", "pcircle.fchmod", "--insecure-links", "0600", link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "another user could have created" in done.stderr
    assert _is_untouched(top)


@as_root
def test_it_ends_with_the_run(top: Path) -> None:
    (top / "real").touch()
    link = os.fsencode(_planted(top / "shared" / "link", top / "real"))
    remove(str(top / "tree"), recursive=True, insecure_links=True, jobs=1)
    for way in (named, place_of):
        with pytest.raises(Untrusted), way(link):
            pass
