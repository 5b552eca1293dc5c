"""`--files-from`: exactly the listed entries are copied.

rsync accepts the same lists, and the two copies must be equal. Long lists take other code paths (a
part for rank 0, portions for all), so there are long and short ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from random import Random

import pytest

from tests.signed import signature_of
from tests.tools.fprof.running import run_fprof
from tests.tools.fsum.running import run_fsum

from .interrupts import interrupt
from .judge import METADATA, differences
from .running import FOUR, ONE, Launcher, copy, document, every_launcher, run_fcp, some_launchers
from .trees import make_directory, write_file

ODD = b"\xff\n #"


def _build(place: bytes) -> bytes:
    """Build 300 directories in two levels, 7,000 files, some odd names."""
    source = make_directory(place, b"source")
    for outer in range(3):
        for inner in range(100):
            context = make_directory(source, b"%d/directory of some length %d" % (outer, inner))
            for number in range(23):
                write_file(context + b"/file of some length %d" % number, b"%d" % number)
            os.symlink(b"nowhere", context + b"/" + ODD)
    wide = make_directory(source, b"wide")
    for number in range(3000):
        write_file(wide + b"/one of many names %d" % number, b"%d" % number)
    make_directory(wide, b"inner/deep")
    write_file(wide + b"/inner/deep/" + ODD, b"odd")
    return source


def _all_paths(source: bytes) -> list[bytes]:
    found = []
    for top, directories, files in os.walk(source):
        found += [os.path.relpath(os.path.join(top, name), source) for name in directories + files]
    return sorted(found)


def _write_list(place: bytes, paths: list[bytes], end: bytes = b"\0") -> bytes:
    write_file(place + b"/list", b"".join(path + end for path in paths))
    return place + b"/list"


def _by_rsync(source: bytes, target: bytes, options: list[bytes]) -> None:
    rsync = shutil.which("rsync")
    if rsync is None:
        pytest.skip("rsync, the judge, is not installed")
    subprocess.run([rsync, b"-aH", *options, source + b"/", target + b"/"], check=True)


def _compare(expected: bytes, target: bytes, source: bytes) -> None:
    """Compare, except for times, which rsync does not preserve for parent directories."""
    assert differences(expected, target, METADATA - {"times"}) == []
    for path in (b".", *_all_paths(target)):
        ours = os.lstat(os.path.join(target, path)).st_mtime_ns
        assert ours == os.lstat(os.path.join(source, path)).st_mtime_ns


def _random_paths(paths: list[bytes], seed: int, share: float) -> list[bytes]:
    rng = Random(seed)
    chosen = [path for path in paths if rng.random() < share]
    rng.shuffle(chosen)
    return chosen + chosen[:5]


@pytest.fixture(scope="session")
def source(shared_place: bytes) -> bytes:
    return _build(make_directory(shared_place, b"listed"))


@every_launcher
@pytest.mark.parametrize("share", [0.005, 0.7])
def test_results_equal_those_of_rsync(
    launcher: Launcher, source: bytes, place: bytes, share: float
) -> None:
    listed = _write_list(place, _random_paths(_all_paths(source), 1, share))
    copy(launcher, "-a", "-0", "--files-from", listed, source, place + b"/target")
    _by_rsync(source, place + b"/expected", [b"-0", b"--files-from=" + listed])
    _compare(place + b"/expected", place + b"/target", source)


def test_comments_are_skipped_as_rsync_does(place: bytes) -> None:
    """They are not with -0, nor after `./`, which `find` writes."""
    top = make_directory(place, b"source")
    names = [b"#c", b";c", b" #b", b"a#", b"a", b"#kept", b";kept"]
    for name in names:
        write_file(top + b"/" + name, name)
    lines = [b"# comment", b"#c", b";c", b"", b" #b", b"a#", b"a", b"./#kept", b".//;kept"]
    listed = _write_list(place, lines, b"\n")
    finished = copy(ONE, "-a", "--files-from", listed, top, place + b"/target")
    _by_rsync(top, place + b"/expected", [b"--files-from=" + listed])
    _compare(place + b"/expected", place + b"/target", top)
    assert sorted(os.listdir(place + b"/target")) == sorted(names[2:])
    note = f"skipped 3 lines of comments (starting with '#' or ';') in '{os.fsdecode(listed)}'"
    warning = f"fcp: --files-from: {note}; write './#name' to list such a file\n"
    assert finished.said.count(warning) == 1
    expected = signature_of(place + b"/target")
    for tool, options in ((run_fsum, ()), (run_fprof, ("--json", place + b"/profile"))):
        run = tool(ONE, *options, "--files-from", listed, top)
        assert run.code == 0
        assert note in run.said
        if tool is run_fsum:
            assert run.out.decode().split()[0] == expected
            assert note not in tool(ONE, "-q", "--files-from", listed, top).said
    assert document(place + b"/profile")["counts"]["files"]["number"] == 5
    os.unlink(listed)
    listed = _write_list(place, [b"#c", b";c"])
    finished = copy(ONE, "-a", "-0", "--files-from", listed, top, place + b"/nul")
    assert sorted(os.listdir(place + b"/nul")) == [b"#c", b";c"]
    assert "skipped" not in finished.said


@some_launchers
def test_listed_subtrees(launcher: Launcher, source: bytes, place: bytes) -> None:
    """With -r every listed directory is complete, otherwise only if the name ends with a slash."""
    chosen = [b"1", b"0/directory of some length 7", b"wide/inner", b"2"]
    listed = _write_list(place, chosen)
    copy(launcher, "-a", "-r", "-0", "--files-from", listed, source, place + b"/target")
    _by_rsync(source, place + b"/expected", [b"-r", b"-0", b"--files-from=" + listed])
    _compare(place + b"/expected", place + b"/target", source)
    slashes = _write_list(make_directory(place, b"b"), [path + b"/" for path in chosen], b"\n")
    copy(launcher, "-a", "--files-from", slashes, source, place + b"/slashes")
    _compare(place + b"/expected", place + b"/slashes", source)


@some_launchers
def test_all_listed_entries_are_accounted_for(
    launcher: Launcher, source: bytes, place: bytes
) -> None:
    """Missing paths fail one by one; their parents are copied, with their counts."""
    paths = _random_paths([p for p in _all_paths(source) if p.startswith(b"wide/")], 2, 0.9)
    missing = [b"wide/missing %d" % number for number in range(700)]
    missing += [b"nowhere/at/all", b"0/directory of some length 1/no/such"]
    listed = _write_list(place, paths + missing)
    arguments: list[str | bytes] = [
        "-a",
        "-0",
        "--files-from",
        listed,
        "--json",
        place + b"/result",
    ]
    finished = run_fcp(launcher, *arguments, source, place + b"/target")
    result = document(place + b"/result")
    assert finished.code == 1, finished.said
    assert "702 failures" in finished.said
    assert (result["failed"], result["exit_code"]) == (702, 1)
    expected = {*paths, b"wide", b"wide/inner", b"wide/inner/deep"}
    expected |= {b"0", b"0/directory of some length 1"}
    assert set(_all_paths(place + b"/target")) == expected


@some_launchers
def test_filters_and_dry_runs_follow(launcher: Launcher, source: bytes, place: bytes) -> None:
    paths = _random_paths(_all_paths(source), 3, 0.8)
    listed = _write_list(place, paths)
    rules = [b"--exclude=*1", b"--exclude=/2/", b"-0", b"--files-from=" + listed]
    copy(launcher, "-a", *rules, "--json", place + b"/result", source, place + b"/target")
    dry: list[str | bytes] = [*rules, "--dry-run", "--json", place + b"/dry"]
    copy(launcher, "-a", *dry, source, place + b"/untouched")
    assert not os.path.exists(place + b"/untouched")
    done, promised = document(place + b"/result"), document(place + b"/dry")
    for kind in ("files", "directories", "links", "bytes", "found"):
        assert promised[kind] == done[kind], kind
    left_out = [path for path in _all_paths(place + b"/target") if path.endswith(b"1")]
    assert left_out == []
    assert done["files"] > 1000


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_the_list_may_be_a_pipe(launcher: Launcher, source: bytes, place: bytes) -> None:
    listed = _write_list(place, [b"wide/one of many names 7", b"1"], b"\n")
    run_fcp(
        launcher,
        *("--files-from=-", source, place + b"/target"),
        prefix=("sh", "-c", 'cat "$LISTED" | "$@"', "sh"),
        environment={"LISTED": os.fsdecode(listed)},
    )
    assert _all_paths(place + b"/target") == [b"1", b"wide", b"wide/one of many names 7"]


def test_the_signature_of_a_list(source: bytes, place: bytes) -> None:
    """It equals the signature of the copy, as if that were copied completely."""
    listed = _write_list(place, _random_paths(_all_paths(source), 4, 0.6))
    one = copy(FOUR, "-a", "-s", "-0", "--files-from", listed, source, place + b"/target")
    two = copy(ONE, "-a", "-s", place + b"/target", place + b"/again")
    assert one.out.split()[0] == two.out.split()[0]
    assert one.out.startswith(b"pcsig1:")


def test_invalid_options_are_refused(source: bytes, place: bytes) -> None:
    listed = _write_list(place, [b"1", b"2/../.."])
    target = place + b"/target"
    refused: list[tuple[list[str | bytes], str]] = [
        (["-0", "--files-from", listed, source, target], "contains '..'"),
        (["--files-from", listed, source, target], "NUL"),
        (["--files-from", place + b"/none", source, target], "No such file"),
        (
            ["--files-from", listed, listed, target],
            "--files-from requires exactly one SRC, which must be a directory",
        ),
        (
            ["--files-from", listed, source, source + b"/wide", place],
            "--files-from requires exactly one SRC, which must be a directory",
        ),
        (
            ["--files-from", listed, "--retry-from", listed, source, target],
            "--retry-from cannot be combined with --files-from",
        ),
    ]
    for arguments, said in refused:
        finished = run_fcp(FOUR, *arguments)
        assert finished.code == 2
        assert said in finished.said
    assert not os.path.exists(target)


def test_a_killed_copy_of_a_list_is_resumed(source: bytes, place: bytes) -> None:
    """It is resumed only by the same list, and completed work is not repeated."""
    listed = _write_list(place, _random_paths(_all_paths(source), 5, 0.9))
    target = place + b"/target"
    arguments: list[str | bytes] = ["-a", "-0", "--files-from", listed, source, target]
    interrupt(Launcher(jobs=3), place, *arguments)
    other = _write_list(make_directory(place, b"b"), [b"1"])
    refused = run_fcp(FOUR, "--resume", "-a", "-0", "--files-from", other, source, target)
    assert refused.code == 2, refused.said
    assert "--files-from" in refused.said
    resumed = run_fcp(Launcher(jobs=2), "--resume", "--json", place + b"/result", *arguments)
    assert resumed.code == 0, resumed.said
    assert document(place + b"/result")["resumed"] > 0
    _by_rsync(source, place + b"/expected", [b"-0", b"--files-from=" + listed])
    _compare(place + b"/expected", target, source)


@pytest.mark.parametrize("launcher", [ONE, Launcher(jobs=2)], ids=str)
def test_a_full_temporary_directory(
    launcher: Launcher, place: bytes, mount_tmpfs: Callable[[str], bytes]
) -> None:
    """The run stops, and the message names the full directory."""
    room = mount_tmpfs("size=64k")
    source = make_directory(place, b"source")
    name = b"d%d/" + b"x" * 60
    listed = _write_list(place, [name % number for number in range(300_000)])
    options: list[str | bytes] = ["--files-from", listed, "-0", source, place + b"/copy"]
    finished = run_fcp(launcher, *options, environment={"TMPDIR": os.fsdecode(room)})
    assert finished.code == 4, finished.said[-300:]
    assert "temporary directory" in finished.said
    assert "Traceback" not in finished.said
    assert not os.path.exists(place + b"/copy")


def test_a_file_that_is_no_list_is_refused(place: bytes) -> None:
    """A large file without any line end is refused at once, not after hours."""
    source = make_directory(place, b"source")
    with open(place + b"/zeros", "wb") as stream:
        stream.truncate(1 << 30)
    finished = run_fcp(ONE, "--files-from", place + b"/zeros", source, place + b"/copy")
    assert finished.code == 2
    assert "a name of more than" in finished.said
