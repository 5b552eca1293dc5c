"""Filters by type, path, size, owner and time in a copy and in a profile.

`tests/walk/test_attributes.py` compares the selection with find; these tests check that every rank
applies it, its cost in system calls, and the state that a resume compares and keeps.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import msgspec
import pytest

from pcircle.core.errors import UsageError
from pcircle.core.units import timestamp
from pcircle.ops.checkpoint.plan import CheckpointOptions
from pcircle.ops.copy.tree.items import CopyPlan
from pcircle.tools.common.copy_program import CopyProgram
from pcircle.tools.fcp.cli import FcpOptions
from pcircle.walk.attributes import Moment

from ..fprof.running import profiled
from ..fsum.running import run_fsum
from .running import FOUR, ONE, Launcher, document, launchers, run_fcp, some_launchers
from .test_syscalls import calls_of
from .trees import build_flat_tree, make_directory, write_file

LOOK_UPS = ("newfstatat", "statx", "fstat", "fstatat64", "lstat", "stat")
OPTIONS = ("--newer-than", "@1000000000", "--max-size", "2k", "--kind", "f,l", "--match", "[05]$")
FIND = ("-newermt", "@1000000000", "!", "-size", "+2048c", "-type", "f,l", "-regex", ".*[05]")


def _build(root: bytes) -> bytes:
    for folder in range(12):
        inner = make_directory(root, b"%d" % folder)
        for number in range(100):
            path = inner + b"/\xff%d" % number
            if number % 7 == 0:
                os.symlink(b"nowhere", path)
            elif number % 11 == 0:
                os.mkfifo(path)
            else:
                write_file(path, b"x" * (number * 40))
            if number % 3 == 0:
                os.utime(path, (0, 1_000_000_000 - folder % 2), follow_symlinks=False)
    return root


def _found(root: bytes, expression: Sequence[str]) -> list[bytes]:
    """Return the directories, and the other entries that find selects."""
    wanted = ["(", "-type", "d", "-o", *expression, ")"]
    command = ["find", ".", *wanted, "-printf", r"%P\0"]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, env=environment)
    return sorted(done.stdout.split(b"\0")[:-1])


@some_launchers
def test_a_copy_has_the_entries_of_find(launcher: Launcher, place: bytes) -> None:
    source, target = _build(place + b"/source"), place + b"/copy"
    result, expected = place + b"/result", _found(source, FIND)
    assert 13 < len(expected) < 500
    planned = run_fcp(launcher, "-a", "--dry-run", *OPTIONS, "--json", result, source, target)
    assert planned.code == 0, planned.said
    assert document(result)["entries"] == len(expected)
    copied = run_fcp(launcher, "-a", *OPTIONS, "--json", result, source, target)
    assert copied.code == 0, copied.said
    assert _found(target, ("-true",)) == expected
    assert document(result)["found"] == len(expected)


@pytest.mark.parametrize("launcher", launchers([1, 4], []))
def test_digests_cover_the_entries_of_find(launcher: Launcher, place: bytes) -> None:
    source = _build(place + b"/source")
    finished = run_fsum(launcher, "--format", "coreutils", *OPTIONS, ".", cwd=source)
    assert finished.code == 0, finished.said
    everything = set(_found(source, ("-type", "f", *FIND)))
    expected = sorted(everything - set(_found(source, ("-false",))))
    lines = finished.out.splitlines()
    assert sorted(line.split(b"  ", 1)[1].removeprefix(b"./") for line in lines) == expected


def test_a_signature_covers_the_entries_of_a_copy(place: bytes) -> None:
    source, target = _build(place + b"/source"), place + b"/copy"
    assert run_fcp(ONE, "-a", *OPTIONS, source, target).code == 0
    finished = run_fsum(ONE, *OPTIONS, source, target)
    first, second = (line.split(b" ")[0] for line in finished.out.splitlines())
    assert first == second
    assert first not in run_fsum(ONE, source).out


@pytest.mark.parametrize("option", ["--check", "--update", "--rot", "-o"])
def test_a_manifest_has_all_types_and_times(option: str, place: bytes) -> None:
    finished = run_fsum(ONE, option, place + b"/manifest", "--max-size", "1k", place)
    assert finished.code == 2
    assert "manifests cannot be combined with filters by time, size, owner or kind" in finished.said


@pytest.mark.parametrize("launcher", launchers([1, 4], []))
def test_a_profile_covers_the_entries_of_find(launcher: Launcher, place: bytes) -> None:
    source = _build(place + b"/source")
    counts = profiled(launcher, *OPTIONS, source)["counts"]
    assert counts["directories"]["number"] == 13
    for kind, letter in (("files", "f"), ("links", "l")):
        expected = _found(source, ("-type", letter, *FIND))
        assert counts[kind]["number"] == len(expected) - 13, kind
    assert counts["special"]["number"] == 0


def test_filters_apply_to_listed_paths(place: bytes) -> None:
    source, target = _build(place + b"/source"), place + b"/copy"
    write_file(place + b"/list", b"1/\xff5\n1/\xff8\n2\n")
    done = run_fcp(
        FOUR, "-r", "--match", "[05]$", "--kind", "f", "--files-from", place + b"/list",
        "-T", source, target,
    )  # fmt: skip
    assert done.code == 0, done.said
    assert sorted(os.listdir(target + b"/1")) == [b"\xff5"]
    assert sorted(os.listdir(target)) == [b"1", b"2"]
    found = _found(source + b"/2", ("-type", "f", "-regex", ".*[05]"))
    assert _found(target + b"/2", ("-true",)) == found


def _look_ups(place: bytes, name: bytes, files: int, options: list[str]) -> int:
    source = place + b"/source %d" % files
    if not os.path.exists(source):
        build_flat_tree(source, 1, files, 100)
    calls = calls_of(place, source, place + b"/copy %b %d" % (name, files), options, ONE)
    return sum(calls[name] for name in LOOK_UPS)


def test_system_calls_of_filters(place: bytes) -> None:
    """Any number of filters needs one look-up per entry, or none."""

    def look_ups_per_file(name: bytes, *options: str) -> float:
        few, many = (_look_ups(place, name, files, list(options)) for files in (300, 600))
        return (many - few) / 300

    plain = look_ups_per_file(b"plain")
    needs_none = look_ups_per_file(b"none", "--kind", "f,l", "--match", "0")
    needs_some = look_ups_per_file(
        b"some", "--min-size", "1", "--newer-than", "1d", "--owner", f"{os.getuid()}"
    )
    left_out = look_ups_per_file(b"out", "--match", "nothing", "--min-size", "1")
    assert needs_some <= plain + 1.1
    # Names that a pattern excludes are not looked up.
    assert needs_none <= plain + 0.1
    assert left_out <= 0.1


def _prepared(place: bytes, newer: Moment, wish: CheckpointOptions) -> CopyPlan:
    """Return the plan at the start of a copy; its checkpoint is left as after a crash."""
    source, target = place + b"/source", place + b"/copy"
    options = FcpOptions(
        tool="fcp", sources=(source,), target=target, exact=True, newer_than=newer, checkpoint=wish
    )
    program = CopyProgram(options, 0o022)
    plan = msgspec.msgpack.decode(program.prepare([0]), type=CopyPlan)
    assert program._checkpoint_session is not None
    program._checkpoint_session.close()
    return plan


def test_a_resumed_copy_counts_from_the_first_runs_now(place: bytes) -> None:
    make_directory(place, b"source")
    month = Moment(timestamp(30 * 86400 * 10**9), ago=True)
    first = _prepared(place, month, CheckpointOptions())
    resumed = _prepared(place, month, CheckpointOptions(resume=True))
    assert resumed.now_ns == first.now_ns > 0
    with pytest.raises(UsageError, match=r"different options \(--newer-than\)"):
        _prepared(place, Moment(timestamp(1), ago=True), CheckpointOptions(resume=True))
    restarted = _prepared(place, month, CheckpointOptions(restart=True))
    assert restarted.now_ns > first.now_ns


@pytest.mark.parametrize(
    "words",
    [
        ("--newer-than", "@9999999999999999999"),
        ("--newer-than", "@99999999999999999999"),
        ("--older-than", "9999-13-31"),
        ("--owner", "9" * 23),
        ("--group", "9" * 23),
        ("--match", "a{4294967296}"),
        ("--match", "[[:alpha:]]"),
        ("--match", "(" * 2000 + ")" * 2000),
        ("--resume", "--by-time", "atime", "--older-than", "1d"),
    ],
    ids=lambda words: words[0] + words[1][:21],
)
def test_invalid_filters_are_refused(words: tuple[str, ...], place: bytes) -> None:
    """Invalid values are usage errors, and not internal errors."""
    source = make_directory(place, b"source")
    finished = run_fcp(ONE, *words, source, place + b"/copy")
    assert (finished.code, os.path.exists(place + b"/copy")) == (2, False), finished.said
    assert "Traceback" not in finished.said


def test_failures_are_retried_at_any_age(place: bytes) -> None:
    source = make_directory(place, b"source")
    path, log = write_file(source + b"/file", b"data"), place + b"/log"
    os.makedirs(place + b"/copy/file")
    copying = "--newer-than", "1h", "-T", source, place + b"/copy"
    assert run_fcp(ONE, "--error-log", log, *copying).code == 1
    os.rmdir(place + b"/copy/file")
    day_old = os.stat(path).st_mtime - 86400
    os.utime(path, (day_old, day_old))  # as if a day had passed
    finished = run_fcp(ONE, "--retry-from", log, *copying)
    assert finished.code == 0, finished.said
    assert os.listdir(place + b"/copy") == [b"file"]
