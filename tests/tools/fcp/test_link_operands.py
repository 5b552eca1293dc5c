"""Symbolic links as SRC and DST, compared with the `cp` of this machine.

fcp copies a link that is given as SRC as a link, like `cp -P` does. Each pair of operands is tried
in a separate directory; fcp runs in this process, for speed.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from pcircle.core.errors import UsageError
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from tests.tools.fcp.running import copy_here, run_fcp
from tests.tools.fcp.trees import make_directory, write_file

LINKS = {
    b"to file": b"file",
    b"to other": b"other",
    b"dangling": b"nowhere",
    b"looped": b"looped",
    b"to directory": b"directory",
}
ALL = (*LINKS, b"file", b"other", b"directory", b"free")
EXISTING = {
    "-f": OverwriteOptions(force=True),
    "-n": OverwriteOptions(stays=True),
    "-u": OverwriteOptions(newer=True),
}


@pytest.fixture(scope="module", autouse=True)
def _cp() -> None:
    version = subprocess.run(["cp", "--version"], check=False, capture_output=True).stdout
    if b"GNU coreutils" not in version:
        pytest.skip("the cp of this machine is not that of GNU coreutils")


def scene(path: bytes) -> bytes:
    """Create files, a directory, and links to each and to nothing."""
    write_file(make_directory(path) + b"/file", b"file")
    write_file(path + b"/other", b"other")
    make_directory(path, b"directory")
    for name, text in LINKS.items():
        os.symlink(text, path + b"/" + name)
    return path


def state(path: bytes) -> dict[bytes, bytes | None]:
    """Return a scene: texts of links, contents of files, None for directories."""
    found: dict[bytes, bytes | None] = {}
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            entry = os.path.join(folder, name)
            key = os.path.relpath(entry, path)
            if os.path.islink(entry):
                found[key] = b"link to " + os.readlink(entry)
            elif os.path.isdir(entry):
                found[key] = None
            else:
                with open(entry, "rb") as stream:
                    found[key] = stream.read()
    return found


def outcome_of_cp(path: bytes, options: list[str], operands: list[bytes]) -> tuple[bool, object]:
    """Return whether cp succeeded, and the resulting state."""
    scene(path)
    finished = subprocess.run(
        ["cp", *options, *operands], check=False, capture_output=True, cwd=path
    )
    found = state(path)
    shutil.rmtree(path)
    return finished.returncode == 0, found


def outcome_of_fcp(
    path: bytes, existing: OverwriteOptions, exact: bool, operands: list[bytes]
) -> tuple[bool, object]:
    """Return the same for fcp."""
    scene(path)
    *sources, target = [path + b"/" + name for name in operands]
    try:
        code = copy_here(
            sources, target, exact=exact, existing=existing, jobs=1, transport="local", quiet=True
        )
    except UsageError:
        code = 2
    found = state(path)
    shutil.rmtree(path)
    return code == 0, found


@pytest.mark.parametrize("exact", [False, True], ids=["", "-T"])
def test_links_as_sources(exact: bool, place: bytes) -> None:
    """The links are compared: a common target does not make them equal."""
    wrong = []
    for source in LINKS:
        for target in ALL:
            path = place + b"/scene"
            options = ["-PT"] if exact else ["-P"]
            expected = outcome_of_cp(path, options, [source, target])
            found = outcome_of_fcp(path, OverwriteOptions(), exact, [source, target])
            if found != expected:
                wrong.append((source, target, expected, found))
    assert wrong == []


@pytest.mark.parametrize("option", ["", "-f", "-n", "-u"])
def test_a_looped_link_as_destination(option: str, place: bytes) -> None:
    """It is refused, except with -f, which replaces it like cp does."""
    existing = EXISTING.get(option, OverwriteOptions())
    options = [option] if option else []
    for more in ([b"file"], [b"file", b"other"], [b"directory"]):
        operands = [*more, b"looped"]
        expected = outcome_of_cp(place + b"/scene", ["-r", *options], operands)
        assert outcome_of_fcp(place + b"/scene", existing, False, operands) == expected, operands
    refused = run_fcp(None, *options, scene(place + b"/s") + b"/file", place + b"/s/looped/")
    assert refused.code == 2
    assert state(place + b"/s") == state(scene(place + b"/again"))


def test_links_copied_twice(place: bytes) -> None:
    """`fcp a/* d/`, where the links in both lead to one file, or one directory."""
    outer, source, target = (make_directory(place, name) for name in (b"outer", b"a", b"d"))
    write_file(outer + b"/file", b"not to be touched")
    texts = outer + b"/file", outer, b"/nowhere", b"p", b"/proc/version"
    for name, text in zip((b"l", b"m", b"n", b"p", b"q"), texts, strict=True):
        os.symlink(text, source + b"/" + name)
    write_file(source + b"/plain", b"plain")
    operands = [source + b"/" + name for name in sorted(os.listdir(source))]
    for _ in range(2):
        for option in ("-r", "-a", "--inplace"):
            finished = run_fcp(None, option, *operands, target)
            assert finished.code == 0, finished.said
    assert state(target) == state(source)
    assert os.listdir(outer) == [b"file"]


@pytest.mark.parametrize(("source", "target"), [("a", "hard"), ("a", "soft"), ("soft", "a")])
def test_a_file_and_a_link_to_it_are_the_same_file(
    place: bytes, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is cp's; the exit code is 2, because nothing was touched."""
    monkeypatch.chdir(os.fsdecode(place))
    write_file(b"a", b"content")
    os.link("a", "hard")
    os.symlink("a", "soft")
    words = ["-a", "-H", source, target]
    environment = {**os.environ, "LC_ALL": "C"}
    by_cp = subprocess.run(
        ["cp", *words], capture_output=True, text=True, env=environment, check=False
    )
    finished = run_fcp(None, *words)
    assert (finished.code, by_cp.returncode) == (2, 1)
    assert finished.said == by_cp.stderr.replace("cp: ", "fcp: ", 1)
    assert os.stat("hard").st_ino == os.stat("a").st_ino
    assert os.readlink("soft") == "a"
