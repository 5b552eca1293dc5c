"""Filters and treatment of symbolic links: options that shape the walk.

rsync copies the same tree with the same rules, and the two copies must be equal.
`tests/unit/test_globs.py` compares the matching with rsync; these tests check that every rank
applies it, that excluded entries are not looked up, and that accounts and dry runs agree.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from itertools import chain

import pytest

from .judge import METADATA, differences
from .running import (
    FOUR,
    ONE,
    Launcher,
    copy,
    document,
    every_launcher,
    run_fcp,
    some_launchers,
    without_rights,
)
from .trees import make_directory, write_file


def _build_project(root: bytes) -> bytes:
    """Build a tree like those that people write rules for, in many directories."""
    for part in (b"", b"a", b"a/src", b"a/build", b"b/build/deep", b"b/src/cache", b"c/\xff\n"):
        context = make_directory(root, part)
        for number in range(80):
            write_file(context + b"/%d.c" % number, b"c")
            write_file(context + b"/%d.o" % number, b"o")
        write_file(context + b"/core", b"core")
        write_file(context + b"/\xfe\n.o", b"odd")
        os.symlink(b"core", context + b"/link.o")
        os.symlink(b"src", context + b"/build-link")
    return root


def _names(root: bytes) -> set[bytes]:
    walked = os.walk(root)
    found = (os.path.join(top, name) for top, *kinds in walked for name in chain(*kinds))
    return {os.path.relpath(path, root) for path in found}


def _by_rsync(source: bytes, target: bytes, options: list[bytes]) -> set[bytes]:
    rsync = shutil.which("rsync")
    if rsync is None:
        pytest.skip("rsync, the judge, is not installed")
    subprocess.run([rsync, b"-a", *options, source + b"/", target + b"/"], check=True)
    return _names(target)


RULES = {
    "names": [b"--exclude=*.o", b"--exclude", b"core"],
    "directories": [b"--exclude=build/", b"--exclude=/b/src/*/"],
    "only": [b"--include=*/", b"--include=*.c", b"--exclude=*"],
    "order": [b"--include", b"1?.o", b"--exclude=*.o", b"--include=*.o"],
    "paths": [b"--exclude=src/cache", b"--exclude=a/**.c", b"--exclude=/core"],
    "whole": [b"--include=/a/***", b"--exclude=*"],
    "bytes": [b"--exclude=\xff*", b"--exclude=[\xf0-\xff]?*"],
    "nothing left": [b"--exclude=*"],
    "forgotten": [b"--exclude=*", b"--exclude=!", b"--exclude=- *.o"],
}


@some_launchers
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
def test_the_copy_is_rsyncs(launcher: Launcher, rules: list[bytes], place: bytes) -> None:
    source = _build_project(place + b"/source")
    wanted = _by_rsync(source, place + b"/judge", rules)
    report = place + b"/report"
    copy(launcher, "-p", "--json", report, *rules, source, place + b"/copy")
    assert _names(place + b"/copy") == wanted
    assert not differences(place + b"/judge", place + b"/copy", METADATA - {"times"})
    result = document(report)
    assert result["found"] == result["entries"] == len(wanted) + 1  # and the root


def test_a_file_of_rules(place: bytes) -> None:
    source = _build_project(place + b"/source")
    rules = write_file(place + b"/rules", b"# what\n; why\n\n+ 1.o\n*.o\n- core\n\xff*\n")
    wanted = _by_rsync(source, place + b"/judge", [b"--exclude-from=" + rules])
    copy(FOUR, b"--exclude-from", rules, source, place + b"/copy")
    assert _names(place + b"/copy") == wanted


def test_files_of_rules_and_rules_keep_their_order(place: bytes) -> None:
    source = _build_project(place + b"/source")
    rules_file = write_file(place + b"/some", b"1*.o\0- core\0\xfe\n.o")
    options = [b"-0", b"--exclude=11.o", b"--include-from=" + rules_file, b"--exclude=*.o"]
    wanted = _by_rsync(source, place + b"/judge", options)
    assert b"1.o" in wanted
    assert b"11.o" not in wanted
    copy(FOUR, *options, source, place + b"/copy")
    assert _names(place + b"/copy") == wanted


def test_operands_are_never_excluded(place: bytes) -> None:
    file = write_file(place + b"/one.o", b"1")
    folder = make_directory(place, b"two.o")
    target = make_directory(place, b"target")
    copy(ONE, "--exclude=*.o", file, folder, target)
    assert _names(target) == {b"one.o", b"two.o"}


def test_excluded_entries_are_not_read(place: bytes) -> None:
    closed = make_directory(place, b"source", b"closed")
    write_file(place + b"/source/secret", b"s", 0)
    os.mkfifo(place + b"/source/pipe")
    os.chmod(closed, 0)
    prefix = without_rights("dac_override", "dac_read_search")
    options = ["--exclude=closed", "--exclude=secret", "--exclude=pipe"]
    finished = run_fcp(ONE, *options, place + b"/source", place + b"/copy", prefix=prefix)
    os.chmod(closed, 0o700)
    assert finished.code == 0, finished.said
    assert _names(place + b"/copy") == set()


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_dry_run_excludes_the_same(jobs: int, place: bytes) -> None:
    source = _build_project(place + b"/source")
    for name, options in {"dry": ["--dry-run"], "real": []}.items():
        report = place + b"/" + name.encode()
        rules = ["--exclude=*.o", "--exclude=build/", "-L"]
        rules += ["--exclude=build-link"]  # dangles in some places
        copy(Launcher(jobs=jobs), *options, "--json", report, *rules, source, place + b"/copy")
        assert os.path.exists(place + b"/copy") == (name == "real")
    dry, real = document(place + b"/dry"), document(place + b"/real")
    for key in ("found", "files", "directories", "links", "bytes"):
        assert dry[key] == real[key], key
    assert real["links"] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--exclude="], "empty pattern"),
        (["--exclude=+ "], "empty pattern"),
        (["--exclude-from=/nowhere"], "No such file or directory"),
    ],
)
def test_invalid_rules_are_refused(options: list[str], says: str, place: bytes) -> None:
    source = make_directory(place, b"source")
    finished = run_fcp(FOUR, *options, source, place + b"/copy")
    assert finished.code == 2
    assert says in finished.said
    assert finished.said.count("fcp: ") == 1
    assert not os.path.exists(place + b"/copy")


# ---- other file systems -------------------------------------------------------------------


@some_launchers
@pytest.mark.parametrize("dry", [False, True], ids=["", "dry"])
def test_mount_points_are_copied_empty(
    launcher: Launcher, dry: bool, place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    source = mount_tmpfs("")
    inner = make_directory(source, b"inner")
    mount = ["mount", "-t", "tmpfs", "-o", "mode=0750", "tmpfs", os.fsdecode(inner)]
    subprocess.run(mount, check=True)
    try:
        write_file(inner + b"/inside", b"i")
        os.utime(inner, ns=(10**18, 10**18))
        os.symlink(inner, source + b"/link")
        write_file(source + b"/beside", b"b")
        report = place + b"/report"
        options = ["-x", "-p", "--json", os.fsdecode(report), *(["--dry-run"] if dry else [])]
        copy(launcher, *options, source, place + b"/copy")
    finally:
        subprocess.run(["umount", "-l", inner], check=True)
    counted = document(report)
    assert (counted["files"], counted["directories"], counted["links"]) == (1, 2, 1)
    if not dry:
        assert _names(place + b"/copy") == {b"inner", b"link", b"beside"}
        status = os.stat(place + b"/copy/inner")
        assert (status.st_mode & 0o7777, status.st_mtime_ns) == (0o750, 10**18)


# ---- symbolic links -----------------------------------------------------------------------


def _build_linked(root: bytes) -> bytes:
    real = make_directory(root, b"real")
    outside = make_directory(root + b"-outside", b"deep")
    write_file(root + b"-outside/large", b"L" * (5 << 20))
    write_file(outside + b"/file", b"deep", 0o640)
    links = make_directory(root, b"links")
    for number in range(600):
        write_file(real + b"/%d" % number, b"%d" % number)
        os.symlink(b"../real/%d" % number, links + b"/%d" % number)
    os.symlink(root + b"-outside", root + b"/out")
    os.symlink(b"out/large", root + b"/large")
    os.symlink(b"large", root + b"/twice")
    os.symlink(b"real", root + b"/to real")
    return root


@every_launcher
def test_with_L_the_copy_has_no_links(launcher: Launcher, place: bytes) -> None:
    source = _build_linked(place + b"/source")
    judge = place + b"/judge"
    subprocess.run(["cp", "-rLp", source, judge], check=True)
    # The smallest chunks, so that several ranks copy the large file, link or not.
    copy(launcher, "-L", "-p", "--chunksize=4M", source, place + b"/copy")
    assert not differences(judge, place + b"/copy", METADATA)


@some_launchers
def test_cycles_are_found(launcher: Launcher, place: bytes) -> None:
    source = make_directory(place, b"source")
    write_file(make_directory(source, b"a/b") + b"/file", b"f")
    os.symlink(b"..", source + b"/a/b/up")
    os.symlink(b".", source + b"/a/self")
    os.symlink(source, source + b"/root")
    os.symlink(b"loop", source + b"/loop")
    os.symlink(b"nowhere", source + b"/dangling")
    finished = run_fcp(launcher, "-L", source, place + b"/copy")
    assert finished.code == 1
    assert finished.said.count("it leads back to a directory above it") == 3
    assert os.strerror(errno.ELOOP) in finished.said
    assert "dangling': No such file or directory" in finished.said
    assert _names(place + b"/copy") == {b"a", b"a/b", b"a/b/file"}
    dry = run_fcp(launcher, "-L", "--dry-run", source, place + b"/copy 2")
    assert dry.code == 1
    assert dry.said.count("it leads back to a directory above it") == 3


def test_links_into_the_copy_are_not_entered(place: bytes) -> None:
    """Otherwise each would be copied into the other, deeper and deeper."""
    for one, other in ((b"a", b"b"), (b"b", b"a")):
        context = make_directory(place, b"source", one)
        make_directory(place, b"copy", other)
        os.symlink(place + b"/copy/" + other, context + b"/link")
    finished = run_fcp(FOUR, "-L", "-T", place + b"/source", place + b"/copy")
    assert finished.code == 1
    assert finished.said.count("it leads into the copy") == 2
    assert _names(place + b"/copy") == {b"a", b"b"}


@some_launchers
def test_hard_links_behind_links(
    launcher: Launcher, place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """A link may leave the file system, which gives inode numbers another meaning."""
    source = make_directory(mount_tmpfs(""), b"source")
    names = [source + b"/%d" % number for number in range(40)]
    other = mount_tmpfs("")
    for number, name in enumerate(names):
        write_file(name, b"here %d" % number)
        os.link(name, source + b"/also %d" % number)
        os.symlink(b"%d" % number, source + b"/link %d" % number)
    inodes = {os.stat(name).st_ino for name in names}
    for number in range(200):
        write_file(other + b"/%d" % number, b"there %d" % number)
        os.link(other + b"/%d" % number, other + b"/also %d" % number)
        os.symlink(other + b"/%d" % number, source + b"/other %d" % number)
    taken = inodes & {entry.inode() for entry in os.scandir(other)}
    assert taken, "two new file systems of one kind number their files alike"
    copy(launcher, "-L", "--preserve=links", source, place + b"/copy")
    for number in range(200):
        with open(place + b"/copy/other %d" % number, "rb") as stream:
            assert stream.read() == b"there %d" % number
    for number in range(40):
        assert os.path.samefile(
            place + b"/copy/%d" % number, place + b"/copy/also %d" % number
        ) or os.path.samefile(place + b"/copy/%d" % number, place + b"/copy/link %d" % number)
        with open(place + b"/copy/link %d" % number, "rb") as stream:
            assert stream.read() == b"here %d" % number


LAST = {"-P": b"link", "-H": b"directory", "-L": b"directory"}


@pytest.mark.parametrize("option", LAST)
@pytest.mark.parametrize("before", LAST)
def test_a_directory_behind_a_link_as_operand(option: str, before: str, place: bytes) -> None:
    real = make_directory(place, b"real")
    os.symlink(write_file(place + b"/file", b"f"), real + b"/inner")
    os.symlink(b"real", place + b"/link")
    target = make_directory(place, b"target")
    copy(ONE, before, option, place + b"/link", target)  # the last one counts
    assert os.path.islink(target + b"/link") == (option == "-P")
    if option != "-P":
        assert os.path.islink(target + b"/link/inner") == (option == "-H")


@some_launchers
@pytest.mark.parametrize("option", ["-H", "-L"])
def test_a_file_behind_a_link_as_operand(option: str, launcher: Launcher, place: bytes) -> None:
    make_directory(place, b"elsewhere")
    write_file(place + b"/elsewhere/small", b"s")
    write_file(place + b"/elsewhere/large", b"l" * (5 << 20))
    target = make_directory(place, b"target")
    for name in (b"small", b"large"):
        os.symlink(b"elsewhere/" + name, place + b"/link to " + name)
    names = [place + b"/link to small", place + b"/link to large"]
    finished = copy(launcher, option, "--chunksize=4M", *names, target)
    assert "symbolic link" not in finished.said
    assert _names(target) == {b"link to small", b"link to large"}
    assert not any(map(os.path.islink, (target + b"/" + name for name in _names(target))))


def test_a_dangling_operand_is_refused_if_links_are_followed(place: bytes) -> None:
    os.symlink(b"nowhere", place + b"/link")
    assert run_fcp(ONE, "-H", place + b"/link", place + b"/copy").code == 2
    copy(ONE, place + b"/link", place + b"/copy")
    assert os.readlink(place + b"/copy") == b"nowhere"


def test_a_file_onto_the_link_that_leads_to_it_is_refused(place: bytes) -> None:
    file = write_file(place + b"/file", b"precious")
    os.symlink(b"file", place + b"/link")
    assert run_fcp(ONE, "-L", place + b"/link", file).code == 2
    assert os.path.getsize(file) == 8
