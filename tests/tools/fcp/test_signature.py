"""fcp -s: the signature of a copy equals that of a plain reference, however it was made.

This holds at any number of processes, under mpirun, for all types of entries and chunk sizes; no
signature is printed if an entry has failed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.signed import signature_of
from tests.tools.fcp.interrupts import committed, interrupt
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, copy, document, launchers, run_fcp

MIB = 1 << 20
signing_launchers = pytest.mark.parametrize("launcher", launchers([1, 3], [2, 3]))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Build files of all sizes, holes, hard links, links, FIFOs, odd names, a full directory."""
    top = os.fsencode(tmp_path_factory.mktemp("signed")) + b"/src"
    for path in (b"many", b"deep/er/est", b"empty", b"\xff\xfe.d"):
        os.makedirs(os.path.join(top, path))
    for number in range(1200):
        with open(top + b"/many/%d" % number, "wb") as stream:
            stream.write(b"%d" % number * (number % 50))
    sizes = (0, 1, 128 << 10, (128 << 10) + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 13 * MIB + 7)
    for size in (*sizes, 33 * MIB + 5):
        with open(top + b"/deep/%d" % size, "wb") as stream:
            stream.write((b"%d" % size * (size // 2 + 1))[:size])
    for name, end in ((b"small", 300_000), (b"middle", 9 * MIB + 3), (b"large", 70 * MIB + 11)):
        with open(top + b"/deep/er/holes-" + name, "wb") as stream:
            stream.truncate(end)
            for at in (end // 3, end // 2 + 4097):
                stream.seek(at)
                stream.write(b"data")
    with open(top + b"/deep/hole", "wb") as stream:
        stream.truncate(40 * MIB + 1)
    with open(top + b"/\xff\xfe.d/\xff\xfe", "wb") as stream:
        stream.write(b"non-utf8 name")
    for number in range(3):
        os.link(top + b"/many/77", top + b"/deep/er/again%d" % number)
        os.link(top + b"/deep/%d" % (33 * MIB + 5), top + b"/\xff\xfe.d/big%d" % number)
    os.symlink(b"nowhere/\xff", top + b"/deep/link")
    os.link(top + b"/deep/link", top + b"/deep/link2", follow_symlinks=False)
    os.mkfifo(top + b"/deep/pipe")
    os.link(top + b"/deep/pipe", top + b"/many/pipe2")
    return top


def printed(out: bytes) -> list[str]:
    """Return the lines of signatures."""
    return [line for line in out.decode().splitlines() if line.startswith("pcsig1:")]


@signing_launchers
@pytest.mark.parametrize("options", [["-a"], ["-a", "--chunksize=4M", "-ssha256"]], ids=["", "4M"])
def test_signature_is_the_references(
    launcher: Launcher, options: list[str], tree: bytes, tmp_path: Path
) -> None:
    target = os.fsencode(tmp_path / "dst")
    signing = [] if "-ssha256" in options else ["-s"]
    done = copy(launcher, *options, *signing, tree, target)
    algorithm = "xxh128" if signing else "sha256"
    wanted = signature_of(tree, algorithm)
    assert signature_of(target, algorithm) == wanted
    assert printed(done.out) == [f"{wanted}  {os.fsdecode(target)}"]


@pytest.mark.parametrize(
    "options",
    [["--sparse=always"], ["--sparse=never"], ["--inplace"], ["--fsync"], ["-n"], ["--bwlimit=1G"]],
    ids=lambda options: options[0],
)
def test_other_ways_of_writing_have_the_same_signature(
    options: list[str], tree: bytes, tmp_path: Path
) -> None:
    target = os.fsencode(tmp_path / "dst")
    done = copy(TWO, "-a", "-s", *options, tree, target)
    assert printed(done.out)[0].split()[0] == signature_of(tree) == signature_of(target)


@signing_launchers
def test_verified_copies_are_signed_as_well(
    launcher: Launcher, tree: bytes, tmp_path: Path
) -> None:
    target = os.fsencode(tmp_path / "dst")
    done = copy(launcher, "-a", "-s", "--verify", "--chunksize=4M", tree, target)
    assert printed(done.out)[0].split()[0] == signature_of(tree) == signature_of(target)


@pytest.mark.parametrize("options", [[], ["--verify"]], ids=["", "verified"])
def test_a_resumed_copy_has_the_signature_of_the_whole(
    options: list[str], tree: bytes, tmp_path: Path
) -> None:
    """Entries of the killed run are not read again, except those whose signature needs it."""
    place = os.fsencode(tmp_path)
    arguments: list[str | bytes] = ["-a", "-s", "--chunksize=4M", *options, tree, place + b"/dst"]
    slowly = ["--bwlimit=20M", "--ops-limit=700"]
    interrupt(Launcher(jobs=3), place, *slowly, *arguments, when=lambda: committed(place).names > 0)
    for refused in ([], ["-ssha256"]):
        other = [*refused, "-a", "--chunksize=4M", *options]
        finished = run_fcp(ONE, "--resume", *other, tree, place + b"/dst")
        assert finished.code == 2
        assert "--signature" in finished.said
    done = copy(TWO, "--resume", "--json", place + b"/report", *arguments)
    assert document(place + b"/report")["resumed"] > 0
    assert printed(done.out)[0].split()[0] == signature_of(tree) == signature_of(place + b"/dst")


@pytest.mark.parametrize("option", ["-n", "-u", "--skip-same"])
@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_existing_files_are_read_in_place(
    launcher: Launcher, option: str, tree: bytes, tmp_path: Path
) -> None:
    target = os.fsencode(tmp_path / "dst")
    copy(TWO, "-a", tree, target)
    for path in (b"/many/5", b"/deep/%d" % (33 * MIB + 5)):
        status = os.stat(target + path)
        with open(target + path, "r+b") as stream:
            stream.write(b"!")
        os.utime(target + path, ns=(status.st_atime_ns, status.st_mtime_ns))
    wanted = signature_of(target)
    done = copy(launcher, "-a", "-s", "-T", option, tree, target)
    assert printed(done.out)[0].split()[0] == wanted == signature_of(target)
    assert wanted != signature_of(tree)


@signing_launchers
def test_roots_have_a_signature_each(launcher: Launcher, tree: bytes, tmp_path: Path) -> None:
    target = os.fsencode(tmp_path)
    names = [b"many", b"deep/%d" % (33 * MIB + 5), b"deep/link", b"deep/er", b"deep/0"]
    names.append(b"\xff\xfe.d/big0")
    done = copy(launcher, "-a", "-s", "-t", target, *(tree + b"/" + name for name in names))
    found = [line.split("  ", 1)[0] for line in printed(done.out)]
    assert found == [signature_of(tree + b"/" + name) for name in names]


def test_filters_and_followed_links(tmp_path: Path) -> None:
    source, target = tmp_path / "src", tmp_path / "dst"
    (source / "sub").mkdir(parents=True)
    (source / "a").write_text("a")
    (source / "b.o").write_text("b")
    (source / "sub" / "to").symlink_to("../a")
    done = copy(TWO, "-s", "-L", "--exclude=*.o", str(source), str(target))
    assert not (target / "b.o").exists()
    assert printed(done.out)[0].split()[0] == signature_of(os.fsencode(target))


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_a_failure_prevents_the_signature(launcher: Launcher, tmp_path: Path) -> None:
    """The other root, without a failure, has a signature."""
    for name in ("bad", "good"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file").write_text("x")
    (tmp_path / "dst" / "bad" / "sub" / "file").mkdir(parents=True)
    names = [str(tmp_path / name) for name in ("bad", "good", "dst")]
    done = run_fcp(launcher, "-s", *names)
    assert done.code == 1
    good = tmp_path / "dst" / "good"
    assert printed(done.out) == [f"{signature_of(os.fsencode(good))}  {good}"]
    assert f"no signature of '{tmp_path / 'dst' / 'bad'}'" in done.said


def test_a_failed_directory_prevents_the_signature(tmp_path: Path) -> None:
    """Entries below a directory that could not be created do not appear elsewhere."""
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "sub" / "same").write_text("x")
    (tmp_path / "src" / "same").write_text("y")
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst" / "sub").write_text("in the way")
    done = run_fcp(TWO, "-s", "-T", str(tmp_path / "src"), str(tmp_path / "dst"))
    assert done.code == 1
    assert printed(done.out) == []


def test_in_the_json_document(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    target = tmp_path / "dst"
    done = copy(TWO, "-s", "--json=-", str(tmp_path / "src"), str(target))
    wanted = signature_of(os.fsencode(target))
    assert json.loads(done.out)["signatures"] == [{"path": str(target), "signature": wanted}]
    assert printed(done.err) == [f"{wanted}  {target}"]


@pytest.mark.parametrize(
    "options",
    [["-s", "--dry-run"], ["-s", "--reflink=always"], ["--signature=md4"]],
    ids=lambda options: options[-1],
)
def test_invalid_options_are_refused(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    done = run_fcp(ONE, *options, str(tmp_path / "src"), str(tmp_path / "dst"))
    assert done.code == 2
    assert "--signature" in done.said
    assert not (tmp_path / "dst").exists()
