"""The log of failed entries, the retry of its entries, and the accounts of a run.

A log must name exactly the failed entries, in a form that preserves every byte of a name; a retry
must process exactly these, with the modes and times of a copy that never failed; and a manipulated
log must not lead it out of SRC or DST.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcircle.core.errors import UsageError
from pcircle.jobs.failures import decode, encode
from pcircle.ops.copy.tree.counters import CopyCounters
from pcircle.tools.common.copy_console import account
from pcircle.tools.common.copy_error_log import read_log

from .judge import CONTENT, METADATA, differences, snapshot
from .running import (
    FOUR,
    TWO,
    Launcher,
    Run,
    copy,
    document,
    run_fcp,
    some_launchers,
    without_rights,
)
from .trees import (
    BLOCK_BYTES,
    build_failing,
    build_flat_tree,
    content,
    make_directory,
    set_times,
    write_file,
)

Mount = Callable[[str], bytes]
LARGE_BYTES = BLOCK_BYTES + 77
ODD = b"odd \xff %41\n\\"


def _lines(path: bytes) -> list[dict[str, Any]]:
    with open(path, "rb") as stream:
        return [json.loads(line) for line in stream]


def _build(place: bytes) -> bytes:
    """Build a tree with entries that a user can't read: files, a directory, an odd name."""
    source = make_directory(place, b"source")
    inner = make_directory(source, b"a", b"b")
    for directory in (source, inner):
        for name in (b"fine", b"refused", ODD):
            write_file(os.path.join(directory, name), content(1, 3000))
        write_file(directory + b"/large", content(2, LARGE_BYTES))
        os.symlink(b"fine", directory + b"/link")
    closed = make_directory(inner, b"closed", b"deep")
    write_file(closed + b"/file", b"data")
    os.symlink(b"x", closed + b"/link")
    os.chmod(source + b"/a", 0o751)
    set_times(source)
    return source


def _refused(source: bytes) -> list[bytes]:
    inner = source + b"/a/b/"
    names = [source + b"/refused", source + b"/" + ODD, inner + b"large", inner + ODD]
    return [*names, inner + b"closed"]


@some_launchers
def test_a_retry_from_a_log(launcher: Launcher, place: bytes) -> None:
    """The log has all failures; the retry processes only these, and completes the copy."""
    prefix = without_rights("dac_override", "dac_read_search")
    source, target, log = _build(place), place + b"/target", place + b"/log"
    modes = {path: stat.S_IMODE(os.stat(path).st_mode) for path in _refused(source)}
    for path in modes:
        os.chmod(path, 0)
    options = ["-p", "--chunksize", "4M", "--error-log"]
    first = run_fcp(launcher, *options, log, source, target, prefix=prefix)
    assert first.code == 1, first.said
    lines = _lines(log)
    logged = {os.path.join(decode(line["source"]), decode(line["entry"])) for line in lines}
    assert logged == set(modes)
    assert {line["error"] for line in lines} == {"EACCES"}
    assert {line["errno"] for line in lines} == {13}
    assert {decode(line["target"]) for line in lines} == {target}
    assert all(line["doing"] and line["reason"] and line["root"] == 0 for line in lines)
    assert re.search(r"5 failures: 5 EACCES \(Permission denied\)", first.said)

    for path, mode in modes.items():
        os.chmod(path, mode)
    # Entries that had not failed are not looked up again.
    write_file(source + b"/made later", b"new")
    arguments = ("--retry-from", log, "--json", place + b"/result", "-p", "--chunksize", "4M")
    second = copy(launcher, *arguments, source, target)
    result = document(place + b"/result")
    assert result["files"] == 5, second.said  # four that failed, one in the directory
    assert (result["links"], result["directories"]) == (1, 5)
    os.unlink(source + b"/made later")
    # The removal has changed the time of the source directory.
    assert differences(source, target, METADATA - {"times"}) == []
    assert snapshot(source)[1:] == snapshot(target)[1:]


@some_launchers
def test_log_of_a_copy_that_is_killed(launcher: Launcher, place: bytes) -> None:
    """All of its lines are complete, and each is for another entry."""
    prefix = without_rights("dac_override", "dac_read_search")
    source, log = make_directory(place, b"source"), place + b"/log"
    for number in range(20_000):
        if not number % 200:
            directory = make_directory(source, b"%d" % number)
        os.close(os.open(directory + b"/%d" % number, os.O_CREAT | os.O_WRONLY, 0))
    # Otherwise it might end before its start is noticed.
    arguments = ("--ops-limit", "5000", "--error-log", log, source, place + b"/target")
    with Run(launcher, *arguments, prefix=prefix, stderr=subprocess.DEVNULL) as run:
        while not os.path.exists(log) or os.path.getsize(log) < 100_000:
            assert run.process.poll() is None
            time.sleep(0.001)
        run.kill()
    entries = [failed.entry for failed in read_log(os.fsdecode(log))]
    assert 200 < len(set(entries)) == len(entries)


@some_launchers
def test_retry_creates_parents_with_their_modes(launcher: Launcher, place: bytes) -> None:
    source, target, log = _build(place), place + b"/target", place + b"/log"
    with open(log, "xb") as stream:
        for entry in (b"a/b/" + ODD, b"a/b/link", b"a/b/large"):
            stream.write(_line(source, target, entry))
    copy(launcher, "-p", "--retry-from", log, "--chunksize", "4M", source, target)
    assert sorted(os.listdir(target)) == [b"a"]
    assert sorted(os.listdir(target + b"/a/b")) == sorted([ODD, b"link", b"large"])
    for path in (b"", b"/a", b"/a/b", b"/a/b/large"):
        ours, theirs = os.stat(target + path), os.stat(source + path)
        assert ours.st_mode == theirs.st_mode
        assert ours.st_mtime_ns == theirs.st_mtime_ns


def _line(source: bytes, target: bytes, entry: bytes | str, **changes: object) -> bytes:
    line = {
        "path": "x",
        "doing": "open",
        "errno": 13,
        "error": "EACCES",
        "reason": "Permission denied",
        "root": 0,
        "source": encode(source),
        "target": encode(target),
        "entry": encode(entry) if isinstance(entry, bytes) else entry,
    }
    return json.dumps(line | changes).encode() + b"\n"


HOSTILE = {
    "above": b"../precious",
    "above within": b"a/../../precious",
    "absolute": b"/etc/passwd",
    "dot": b"./fine",
    "empty part": b"a//b",
    "slash at the end": b"a/",
    "nul": b"a\0b",
    "only dots": b"..",
}


@pytest.mark.parametrize("entry", HOSTILE.values(), ids=HOSTILE)
def test_hostile_entries_are_refused(entry: bytes, place: bytes) -> None:
    """They are refused before anything is touched, together with valid entries."""
    source, target, log = _build(place), place + b"/target", place + b"/log"
    write_file(place + b"/precious", b"precious")
    write_file(log, _line(source, target, b"fine") + _line(source, target, entry))
    finished = run_fcp(TWO, "--retry-from", log, source, target)
    assert finished.code == 2, finished.said
    assert "line 2" in finished.said
    assert sorted(os.listdir(place)) == [b"log", b"precious", b"source"]


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON\n",
        b"[]\n",
        b"{}\n",
        b'{"path": 3}\n',
        b"\xff\xfe\n",
        _line(b"/s", b"/t", "a", errno="EACCES"),
        _line(b"/s", b"/t", "%zz"),
        _line(b"/s", b"/t", "%4"),
        _line(b"/s", b"/t", "%61"),
        _line(b"/s", b"/t", "\u00e9"),
        _line(b"/s", b"/t", b"a")[:-20],
        b'{"path":"x","y":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
    ],
    ids=range(12),
)
def test_other_files_are_refused(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(line)
    with pytest.raises(UsageError, match="line 1 "):
        list(read_log(str(path)))


def test_every_name_survives_the_log() -> None:
    for name in (bytes(range(1, 256)), b"", b"%41", b"a/b", ODD):
        assert decode(encode(name)) == name
        assert encode(name).isascii()


@some_launchers
def test_log_of_other_roots_is_refused(launcher: Launcher, place: bytes) -> None:
    source, target, log = _build(place), place + b"/target", place + b"/log"
    write_file(log, _line(source, target, b"fine"))
    other = make_directory(place, b"other")
    for roots in ((other, target), (source, place + b"/elsewhere")):
        finished = run_fcp(launcher, "--retry-from", log, *roots)
        assert finished.code == 2, finished.said
        assert "a different copy" in finished.said
    assert sorted(os.listdir(place)) == [b"log", b"other", b"source"]
    assert run_fcp(launcher, "--retry-from", log + b" missing", source, target).code == 2


@some_launchers
def test_retry_never_follows_links(launcher: Launcher, place: bytes) -> None:
    """Links on the way, on either side, are failures of the entry."""
    source, target, log = _build(place), make_directory(place, b"target"), place + b"/log"
    outside = make_directory(place, b"outside")
    secret = make_directory(place, b"secret")
    write_file(secret + b"/file", b"secret")
    os.symlink(secret, source + b"/way")
    os.symlink(outside, target + b"/a")
    log_lines = [_line(source, target, entry) for entry in (b"way/file", b"a/b/fine", b"fine")]
    write_file(log, b"".join(log_lines))
    finished = run_fcp(launcher, "-T", "--retry-from", log, source, target)
    assert finished.code == 1, finished.said
    assert os.listdir(outside) == []
    assert sorted(os.listdir(target)) == [b"a", b"fine"]


@some_launchers
def test_retry_of_roots(launcher: Launcher, place: bytes) -> None:
    """A failed SRC is a file, or a directory with all its contents; other SRCs are not copied."""
    prefix = without_rights("dac_override", "dac_read_search")
    target, log = make_directory(place, b"target"), place + b"/log"
    tree = build_flat_tree(place + b"/tree", 2, 10, 100)
    file, large = write_file(place + b"/file", b"data", 0), place + b"/large"
    write_file(large, content(1, LARGE_BYTES), 0)
    fine = write_file(place + b"/fine", b"fine")
    os.chmod(tree, 0)
    arguments: tuple[str | bytes, ...] = ("--chunksize", "4M", tree, file, fine, large, target)
    first = run_fcp(launcher, "--error-log", log, *arguments, prefix=prefix)
    assert first.code == 1, first.said
    assert sorted((line["root"], line["entry"]) for line in _lines(log)) == [
        (0, ""),
        (1, ""),
        (3, ""),
    ]
    os.chmod(tree, 0o755)
    os.chmod(file, 0o644)
    os.chmod(large, 0o644)
    os.unlink(target + b"/fine")
    copy(launcher, "--retry-from", log, "--error-log", log, *arguments)
    assert sorted(os.listdir(target)) == [b"file", b"large", b"tree"]
    assert differences(tree, target + b"/tree", CONTENT) == []
    assert _lines(log) == []  # the same file: read first, then started again
    result = place + b"/result"
    copy(launcher, "--retry-from", log, "--json", result, *arguments)
    assert document(result)["found"] == 0


def test_vanished_entry_fails_again(place: bytes) -> None:
    source, target, log = _build(place), place + b"/target", place + b"/log"
    lines = [_line(source, target, entry) for entry in (b"gone", b"a/gone/too", b"fine")]
    write_file(log, b"".join(lines))
    again = place + b"/again"
    finished = run_fcp(TWO, "--retry-from", log, "--error-log", again, source, target)
    assert finished.code == 1
    assert sorted(line["entry"] for line in _lines(again)) == ["a/gone", "gone"]
    assert {line["error"] for line in _lines(again)} == {"ENOENT"}
    assert os.listdir(target + b"/a") == []
    assert sorted(os.listdir(target)) == [b"a", b"fine"]


def test_retry_in_a_dry_run(place: bytes) -> None:
    source, target, log = _build(place), place + b"/target", place + b"/log"
    write_file(log, _line(source, target, b"a/b/" + ODD) + _line(source, target, b"link"))
    results = []
    for dry in (["--dry-run"], []):
        copy(FOUR, *dry, "--retry-from", log, "--json", place + b"/result", source, target)
        result = document(place + b"/result")
        results.append([result[key] for key in ("found", "files", "links", "directories")])
        assert os.path.lexists(target) == (not dry)
    assert results == [[5, 1, 1, 3]] * 2


# ---- the file ------------------------------------------------------------------------


def test_log_is_checked_before_anything_is_touched(place: bytes) -> None:
    source = write_file(place + b"/source", b"data")
    directory = make_directory(place, b"directory")
    for path in (directory, place + b"/missing/log", source + b"/log"):
        finished = run_fcp(TWO, "--error-log", path, source, place + b"/target")
        assert finished.code == 2, finished.said
        assert "--error-log" in finished.said
    assert sorted(os.listdir(place)) == [b"directory", b"source"]


def test_refused_run_leaves_an_old_log(place: bytes) -> None:
    log = write_file(place + b"/log", b"old\n")
    assert run_fcp(TWO, "--error-log", log, place + b"/missing", place + b"/target").code == 2
    with open(log, "rb") as stream:
        assert stream.read() == b"old\n"


def test_an_unwritable_log_is_a_failure(place: bytes) -> None:
    """It is reported once, with exit code 1; the copy continues."""
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    source, target = build_failing(place, *(b"taken %d" % number for number in range(5)))
    write_file(source + b"/fine", b"fine")
    finished = run_fcp(TWO, "--error-log", "/dev/full", "-T", source, target)
    assert finished.code == 1
    assert finished.said.count("cannot write the error log: No space") == 1
    assert os.path.exists(target + b"/fine")


@some_launchers
def test_failures_by_kind(launcher: Launcher, place: bytes) -> None:
    prefix = without_rights("dac_override", "dac_read_search")
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for number in range(3):
        write_file(source + b"/closed %d" % number, b"x", 0)
    write_file(source + b"/in the way", b"x")
    make_directory(target, b"in the way")
    finished = run_fcp(launcher, "-q", "-T", source, target, prefix=prefix)
    assert finished.code == 1
    expected = "fcp: 4 failures: 3 EACCES (Permission denied), 1 EISDIR (Is a directory)\n"
    assert finished.said.endswith(expected)


@some_launchers
def test_log_after_an_abort(launcher: Launcher, place: bytes, mount_tmpfs: Mount) -> None:
    """The log lists entries that failed earlier, and those that met the full destination."""
    full, log = mount_tmpfs("size=8m"), place + b"/log"
    source = make_directory(place, b"source")
    os.symlink(b"x", source + b"/taken")  # links of a small directory are copied before its files
    make_directory(full, b"target/taken")
    for number in range(50):
        write_file(source + b"/%d" % number, content(number, 200_000))
    below = make_directory(source, b"below")
    write_file(below + b"/large", content(1, 2 * LARGE_BYTES))
    finished = run_fcp(launcher, "--error-log", log, "-T", source, full + b"/target")
    assert finished.code == 4, finished.said
    first, *others = _lines(log)
    assert first["entry"] == "taken"
    assert {line["error"] for line in others} == {"ENOSPC"}
    assert all(f"cannot write '{line['path']}'" in finished.said for line in others)


# ---- the accounts --------------------------------------------------------------------


def test_accounts_that_agree() -> None:
    total = CopyCounters(
        found=9, files=3, directories=1, links=1, skipped=3, failed=1, bytes_found=5
    )
    assert account(total, (), ()) is None


@pytest.mark.parametrize(
    "total",
    [CopyCounters(found=2, files=1), CopyCounters(found=1, files=1, bytes_found=5, bytes_done=4)],
    ids=["entries", "bytes"],
)
def test_accounts_that_differ_name_a_report(
    total: CopyCounters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said = account(total, (), ())
    assert said is not None
    assert "accounted for" in said
    (report,) = (tmp_path / "pcircle").iterdir()
    assert str(report) in said
    assert str(total) in report.read_text()
