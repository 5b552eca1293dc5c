"""Manual pages and lists of options are current, complete and valid."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from docutils.utils import SystemMessage

from docs.generate import manpages, roff
from docs.generate.__main__ import ROOT, files
from docs.generate.primaries import Primary
from docs.generate.reference import Option, Reference, references
from tests.conftest import Run

every_command = pytest.mark.parametrize(
    "about", references(), ids=[each.command.name for each in references()]
)
# A page belongs to a version; a build date would make wheels differ.
EXPECTED = re.compile(r"missing date, using")


MANUALS = ROOT / "share" / "man" / "man1"


def _page(about: Reference) -> Path:
    return MANUALS / f"{about.command.name}.1"


def test_generated_files_are_current() -> None:
    """If this test fails, run: python -m docs.generate"""
    made = dict(files())
    differ = [path.name for path, text in made.items() if path.read_text("utf-8") != text]
    assert differ == []
    there = {path for path in (ROOT / "share").rglob("*") if path.is_file()}
    assert there <= made.keys(), "of no command"


@every_command
def test_every_option_is_on_the_page_and_in_the_manual(about: Reference, run: Run) -> None:
    """Each flag is there with its value and its description, as a reader sees it."""
    mandoc = shutil.which("mandoc")
    if mandoc is None:
        pytest.skip("mandoc is not installed")
    shown = run([mandoc, "-T", "utf8", "-O", "width=1000", _page(about)]).stdout.decode()
    page = " ".join(re.sub(".\b", "", shown).split())
    manual = (ROOT / "docs" / f"{about.command.page}.rst").read_text(encoding="utf-8")
    both: list[Option | Primary] = [*about.options, *about.primaries]
    for option in both:
        text = option.help[0].upper() + option.help[1:]
        assert f"{option.invocation} {text}" in page
        for flag in option.flags:
            assert re.search(rf"``{re.escape(flag)}[`= \[]", manual), flag
    for example in about.examples:
        assert example in page
    sections = ("NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES")
    assert [
        name for name in (*sections, "SEE ALSO") if f"\n{name}\n" not in re.sub(".\b", "", shown)
    ] == []


@pytest.mark.parametrize(
    "name", ["pcircle", *(reference.command.name for reference in references())]
)
@pytest.mark.parametrize("judge", ["mandoc", "groff"])
def test_pages_are_valid(name: str, run: Run, judge: str) -> None:
    command = shutil.which(judge)
    if command is None:
        pytest.skip(f"{judge} is not installed")
    options = {"mandoc": ["-T", "lint", "-W", "warning"]}
    default = ["-man", "-t", "-ww", "-z", "-T", "utf8", "-rLL=78n"]
    done = run([command, *options.get(judge, default), MANUALS / f"{name}.1"])
    said = (done.stdout + done.stderr).decode().splitlines()
    assert [line for line in said if not EXPECTED.search(line)] == []


def test_man_finds_and_shows_a_page(run: Run, tmp_path: Path) -> None:
    """Pages are next to the command, as in an environment: bin/ and share/man/."""
    man = shutil.which("man")
    if man is None:
        pytest.skip("man is not installed")
    shutil.copytree(ROOT / "share" / "man", tmp_path / "share" / "man")
    (tmp_path / "bin").mkdir()
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = run([man, "-P", "cat", "fcp"], env=environment)
    if b"minimized" in done.stdout:
        pytest.skip("this system has another program in place of man")
    assert done.returncode == 0, done.stderr
    shown = re.sub(".\b", "", done.stdout.decode())
    assert "\n       fcp - copy files and directory trees\n" in shown


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Plain *text* and ``a-b 'c'``.", [".PP", r"Plain \fItext\fR and \fBa\-b \(aqc\(aq\fR."]),
        (".. note at the start", []),
        ("``x``\n    One.\n\n    Two.", [".TP", r"\fBx\fR", "One.", ".RS", "Two.", ".RE"]),
        ("- a\n- b", [r".IP \(bu 4", "a", r".IP \(bu 4", "b"]),
        ("::\n\n    .x \\y", [".PP", ".RS 4", ".nf", r"\&.x \ey", ".fi", ".RE"]),
        (r"a\\b µs", [".PP", r"a\eb \[u00B5]s"]),
        ("`the manual <fcp.rst>`_", [".PP", r"\fBfcp\fR(1)"]),
        ("`x <y.rst>`_ `z <https://example.org/>`_", [".PP", "x z (https://example.org/)"]),
        ("\\ .. is a directory", [".PP", r"\&.. is a directory"]),
        ("=  =\na  b\n=  =", [".TP", "a", "b"]),
    ],
)
def test_text_becomes_roff(text: str, made: list[str]) -> None:
    title = manpages.parsed(f"Title\n=====\n\n{text}\n")
    assert roff.Page({"fcp": "fcp"}).body(title) == made


def test_unsupported_content_of_a_page_is_an_error() -> None:
    title = manpages.parsed("Title\n=====\n\n.. math:: x\n")
    with pytest.raises(ValueError, match="no way to put this on a manual page"):
        roff.Page({}).body(title)


def test_a_faulty_manual_is_an_error() -> None:
    with pytest.raises(SystemMessage):
        manpages.parsed("Title\n=====\n\n``never ended\n")
