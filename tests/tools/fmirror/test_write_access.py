"""Copies that forbid their owner to change them: closed directories, immutable and append-only."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pcircle.fs.attributes.xattrs import FORBIDDING, read_flags
from tests.programs import required
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, run_fcp, without_rights
from tests.tools.fcp.trees import write_file

from .running import (
    FMIRROR,
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    run_fmirror,
)

pytestmark = needs_rsync
BOUND = ("dac_override", "dac_read_search", "linux_immutable")
"""Without these capabilities root is an ordinary user, and can still run the interpreter."""
MODES = (0o555, 0o500, 0o300, 0o000)


def closed(place: bytes) -> tuple[bytes, bytes]:
    """Create a tree of directories of each mode, in directories of each mode, and its copy."""
    source, target = place + b"/a", place + b"/b"
    for outer in MODES:
        for inner in MODES:
            path = source + b"/%o/%o" % (outer, inner)
            os.makedirs(path)
            for name in (b"changes", b"goes", b"stays"):
                write_file(path + b"/" + name, name)
    mirrored(ONE, source, target)
    close(target)
    return source, target


def close(top: bytes) -> None:
    """Give the directories below a root the modes in their names, deepest first."""
    for path, names, _ in os.walk(top, topdown=False):
        for name in names:
            with suppress(ValueError):
                os.chmod(path + b"/" + name, int(name, 8))


def modes(top: bytes) -> dict[bytes, int]:
    """Return the modes of all directories of a tree."""
    found = {}
    for path, _, _ in os.walk(top):
        found[path.removeprefix(top)] = stat.S_IMODE(os.lstat(path).st_mode)
    return found


def edit(source: bytes) -> None:
    """Change, remove and add entries in all directories."""
    for outer in MODES:
        for inner in MODES:
            path = source + b"/%o/%o" % (outer, inner)
            write_file(path + b"/new", b"new")
            os.unlink(path + b"/goes")
            os.unlink(path + b"/changes")
            write_file(path + b"/changes", b"has changed")
            os.mkdir(path + b"/directory")
        subprocess.run(["rm", "-r", source + b"/%o/0" % outer], check=True)


@as_root
@every_launcher
@pytest.mark.parametrize("option", ["--delete", "--delete=during", "--backup-dir", "--moved"])
def test_closed_directories_of_an_ordinary_user(
    place: bytes, launcher: Launcher, option: str
) -> None:
    source, target = closed(place)
    edit(source)
    options: list[str | bytes] = ["-q", option]
    if option == "--backup-dir":
        options = ["-q", "--delete", option, place + b"/kept"]
    if option == "--moved":
        options.append("--delete")
        os.rename(source + b"/555/555/stays", source + b"/500/500/moved")
    done = run_fmirror(launcher, *options, source, target, prefix=without_rights(*BOUND))
    assert (done.code, done.said) == (0, "")
    assert differences(source, target) == ""
    if option == "--backup-dir":
        assert os.path.exists(place + b"/kept/555/0/goes")
        assert stat.S_IMODE(os.stat(place + b"/kept/555/0").st_mode) == 0


@as_root
def test_a_closed_directory_keeps_its_mode(place: bytes) -> None:
    """Without preserved modes, entries are created and removed, and modes of directories stay."""
    source, target = closed(place)
    edit(source)
    before = modes(target)
    prefix = without_rights(*BOUND)
    options = ("-q", "--delete", "--preserve=timestamps")
    assert run_fmirror(TWO, *options, source, target, prefix=prefix).code == 0
    after = modes(target)
    common = {path: mode for path, mode in before.items() if path in after}
    assert len(common) > len(MODES) * 2
    assert {path: after[path] for path in common} == common
    assert differences(source, target, "--no-p", "--no-o", "--no-g", "--no-A") == ""


@as_root
@pytest.mark.parametrize("option", ["--delete", "--delete=during"])
def test_an_interrupted_run_closes_directories_again(place: bytes, option: str) -> None:
    source, target = place + b"/a", place + b"/b"
    for top in (source, target):
        os.makedirs(top + b"/d")
        write_file(top + b"/d/stays", b"")
    os.utime(source + b"/d/stays", (0, 0))
    os.utime(target + b"/d/stays", (0, 0))
    for number in range(3000):
        write_file(target + b"/d/%d" % number, b"")
    os.chmod(target + b"/d", 0o555)
    os.chmod(source + b"/d", 0o555)
    words: list[str | bytes] = ["-q", "-j1", "--ops-limit=300", option, source, target]
    with Run(None, *words, program=FMIRROR, prefix=without_rights(*BOUND)) as run:
        while len(os.listdir(target + b"/d")) > 2900:
            time.sleep(0.01)
        run.signal(signal.SIGINT)
        assert run.finish().code == 130
    assert len(os.listdir(target + b"/d")) > 1
    assert stat.S_IMODE(os.stat(target + b"/d").st_mode) == 0o555


@as_root
def test_no_other_user_gets_rights_meanwhile(place: bytes) -> None:
    """Every mode that the run sets on closed directories adds only rights of the owner."""
    source, target = closed(place)
    edit(source)
    trace = place + b"/trace"
    strace = (required("strace"), "-f", "-e", "trace=/^f?chmod", "-o", os.fsdecode(trace))
    prefix = (*strace, *without_rights(*BOUND))
    options = ("-q", "-j1", "--delete")
    assert run_fmirror(None, *options, source, target, prefix=prefix).code == 0
    # strace also prints calls that it does not know, whose arguments are arbitrary numbers.
    calls = [call.text for call in read_calls(trace) if "chmod" in call.text]
    # The mode is the last argument of each call except fchmodat2, whose flags follow it.
    modes = [re.search(r", (0\d*)(?:, [A-Z_|]+)?\)", call) for call in calls]
    given = {int(mode[1], 8) for mode in modes if mode}
    assert None not in modes
    assert 0o700 in given
    # The modes of the source's directories, of new ones, and these with the owner's rights.
    source_modes = {*MODES, *(mode | 0o700 for mode in MODES), 0o755, 0o644}
    assert given <= source_modes, given - source_modes


@as_root
def test_a_plan_for_closed_directories(place: bytes) -> None:
    """It includes parent directories that are only traversed, and these are closed again."""
    source, target = place + b"/a", place + b"/b"
    for top in (source, target):
        os.makedirs(top + b"/d/e")
        write_file(top + b"/d/e/f", b"")
    os.utime(source + b"/d/e/f", (0, 0))
    write_file(source + b"/d/e/new", b"")
    for top in (source, target):
        os.chmod(top + b"/d/e", 0o555)
        os.chmod(top + b"/d", 0o500)
    prefix, plan = without_rights(*BOUND), os.fsdecode(place + b"/plan")
    assert run_fmirror(ONE, "-q", "--plan", plan, source, target, prefix=prefix).code == 0
    assert run_fmirror(TWO, "-q", "--apply", plan, prefix=prefix).code == 0
    assert differences(source, target) == ""


@as_root
def test_snapshots_with_closed_directories_expire(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/d/e")
    write_file(source + b"/d/e/f", b"")
    os.chmod(source + b"/d/e", 0o555)
    os.chmod(source + b"/d", 0o500)
    prefix = without_rights(*BOUND)
    for day in (1, 2, 3):
        options = ("-q", f"--snapshot=2026-01-0{day}", "--keep=1")
        assert run_fmirror(ONE, *options, source, target, prefix=prefix).code == 0
    assert sorted(os.listdir(target)) == [b"2026-01-03", b"latest"]
    assert differences(source, target + b"/2026-01-03") == ""


@as_root
def test_fcp_completes_a_closed_directory(place: bytes) -> None:
    """--retry-from completes a directory that fcp created; with -p an existing one, like rsync."""
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/d")
    write_file(source + b"/d/f", b"")
    os.chmod(write_file(source + b"/d/denied", b""), 0)
    os.chmod(source + b"/d", 0o555)
    prefix, log = without_rights(*BOUND), os.fsdecode(place + b"/log")
    for options in (("-q", "-r", "-T"), ("-q", "-a", "-T")):
        os.chmod(source + b"/d/denied", 0)
        assert run_fcp(ONE, *options, "--error-log", log, source, target, prefix=prefix).code == 1
        os.chmod(source + b"/d/denied", 0o644)
        retry = ("--retry-from", log)
        assert run_fcp(ONE, *options, *retry, source, target, prefix=prefix).code == 0
        assert stat.S_IMODE(os.stat(target + b"/d").st_mode) == 0o555
        if "-a" in options:
            assert differences(source, target) == ""
        else:
            assert os.path.exists(target + b"/d/denied")
            subprocess.run(["rm", "-r", target], check=True)
    write_file(source + b"/d/new", b"")
    assert run_fcp(TWO, *options, source, target, prefix=prefix).code == 0
    assert differences(source, target, "--no-t") == ""
    write_file(source + b"/d/newer", b"")
    assert run_fcp(ONE, "-q", "-r", "-T", source, target, prefix=prefix).code == 1  # like cp


# ---- inode flags -------------------------------------------------------------------------------


def chattr(flags: str, *paths: bytes) -> None:
    """Set or clear flags. Skip the test where that is impossible."""
    if subprocess.run(["chattr", flags, *paths], check=False, capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")


def flags_of(path: bytes) -> int:
    """Return the flags of a path that forbid changes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_flags(fd, FORBIDDING)
    finally:
        os.close(fd)


@pytest.fixture
def protected(place: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Create a tree with immutable and append-only files and directories, and its copy."""
    required("chattr")
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/fixed/d")
    os.makedirs(source + b"/gone/d")
    for path in (b"conf", b"log", b"goes", b"fixed/f", b"fixed/d/f", b"gone/d/f", b"touched"):
        write_file(source + b"/" + path, path)
    try:
        set_flags(source)
        mirrored(ONE, source, target)
        yield source, target
    finally:
        subprocess.run(["chattr", "-R", "-i", "-a", place], check=False, capture_output=True)


def set_flags(source: bytes) -> None:
    """Set the flags on existing entries."""
    fixed = (b"conf", b"goes", b"touched", b"fixed/d", b"fixed", b"gone/d/f", b"gone/d", b"gone")
    for name in fixed:
        if os.path.exists(source + b"/" + name):
            chattr("+i", source + b"/" + name)
    chattr("+a", source + b"/log")


def edit_protected(source: bytes) -> None:
    """Change entries that have flags, and restore the flags."""
    subprocess.run(["chattr", "-R", "-i", "-a", source], check=True)
    for name in (b"conf", b"log", b"fixed/f"):
        with open(source + b"/" + name, "ab") as stream:
            stream.write(b" more")
    os.chmod(source + b"/touched", 0o640)
    os.unlink(source + b"/goes")
    os.unlink(source + b"/fixed/d/f")
    write_file(source + b"/fixed/d/new", b"new")
    os.mkdir(source + b"/fixed/directory")
    subprocess.run(["rm", "-r", source + b"/gone"], check=True)
    set_flags(source)


@as_root
@every_launcher
@pytest.mark.parametrize("option", ["--delete", "--delete=during", "--backup-dir"])
def test_protected_copies_are_kept_up_to_date(
    protected: tuple[bytes, bytes], launcher: Launcher, option: str
) -> None:
    source, target = protected
    edit_protected(source)
    options: list[str | bytes] = [option]
    copy = os.path.dirname(source) + b"/kept"
    if option == "--backup-dir":
        options = ["--delete", option, copy]
    mirrored(launcher, *options, source, target)
    assert differences(source, target) == ""
    for name in (b"conf", b"log", b"touched", b"fixed", b"fixed/d"):
        assert flags_of(target + b"/" + name) == flags_of(source + b"/" + name) != 0, name
    if option == "--backup-dir":
        assert flags_of(copy + b"/conf") == flags_of(copy + b"/goes") == flags_of(source + b"/conf")
        assert sorted(os.listdir(copy)) == [b"conf", b"fixed", b"goes", b"gone", b"log"]
        assert flags_of(copy + b"/gone") != 0


@as_root
def test_a_copy_loses_the_flags_that_its_source_has_lost(protected: tuple[bytes, bytes]) -> None:
    source, target = protected
    edit_protected(source)
    subprocess.run(["chattr", "-R", "-i", "-a", source], check=True)
    mirrored(TWO, "--delete", source, target)
    assert differences(source, target) == ""
    assert flags_of(target + b"/conf") == flags_of(target + b"/fixed/d") == 0


@as_root
def test_unpreserved_flags_are_respected(protected: tuple[bytes, bytes]) -> None:
    source, target = protected
    edit_protected(source)
    done = run_fmirror(ONE, "-q", "--delete", "--preserve=mode,timestamps", source, target)
    assert done.code == 1
    for name in (b"conf", b"goes", b"gone", b"fixed"):
        assert flags_of(target + b"/" + name) != 0


@as_root
@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_snapshots_share_protected_files_and_expire(place: bytes, launcher: Launcher) -> None:
    """A file that another snapshot still has keeps its flags."""
    required("chattr")
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/d")
    for number in range(20):
        write_file(source + b"/d/%d" % number, b"content")
    try:
        chattr("+i", *(source + b"/d/%d" % number for number in range(20)), source + b"/d")
        for day in (1, 2, 3, 4):
            mirrored(launcher, f"--snapshot=2026-01-0{day}", "--keep=2", source, target)
        days = [target + b"/2026-01-03", target + b"/2026-01-04"]
        assert sorted(os.listdir(target)) == [*map(os.path.basename, days), b"latest"]
        for number in range(20):
            both = [day + b"/d/%d" % number for day in days]
            assert os.stat(both[0]).st_ino == os.stat(both[1]).st_ino
            assert flags_of(both[0]) != 0
        assert flags_of(days[0] + b"/d") == flags_of(days[1] + b"/d") != 0
        assert differences(source, days[1]) == ""
    finally:
        subprocess.run(["chattr", "-R", "-i", place], check=False, capture_output=True)


@as_root
def test_a_protected_file_that_has_moved_is_renamed(protected: tuple[bytes, bytes]) -> None:
    source, target = protected
    inode = os.stat(target + b"/conf").st_ino
    chattr("-i", source + b"/conf", source + b"/fixed")
    os.rename(source + b"/conf", source + b"/fixed/moved")
    chattr("+i", source + b"/fixed/moved", source + b"/fixed")
    mirrored(TWO, "--moved", "--delete", source, target)
    assert differences(source, target) == ""
    assert os.stat(target + b"/fixed/moved").st_ino == inode
    assert flags_of(target + b"/fixed/moved") == flags_of(target + b"/fixed") != 0
