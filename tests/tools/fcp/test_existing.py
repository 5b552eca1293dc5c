"""Existing entries in the destination: -n, -u, -f, --skip-same, --inplace and --fsync.

Where cp has the same option, cp is the reference: both run over copies of one destination, and the
results are compared. Other tests cover promises that cp does not make: that a replacement is
atomic, that -n replaces nothing that appears meanwhile, and the required precision of times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from functools import cache

import pytest

from pcircle.fs.naming import claim_and_rename, give_free_name, rename_to_free
from tests.programs import required
from tests.strace import read_calls

from ...fusefs.mounting import Mounted
from .judge import CONTENT, METADATA, differences, snapshot
from .running import (
    FOUR,
    ONE,
    TWO,
    Finished,
    Launcher,
    Run,
    clean_environment,
    copy,
    document,
    run_fcp,
    some_launchers,
    without_rights,
)
from .trees import BLOCK_BYTES, MIB, build_small_tree, content, make_directory, write_file

SMALL_BYTES = 3000
LARGE_BYTES = BLOCK_BYTES + 77
T0_NS = 1_600_000_001_123_456_789
LONG = b"n" * 255

# The option, and additional options of both programs.
CP_CASES = [
    ["-n"],
    ["-u"],
    ["-f"],
    ["-u", "-p"],
    ["-n", "-p"],
    ["-n", "-u"],
    ["-u", "-n"],
    ["-f", "-n"],
    ["-f", "-u", "-p"],
]


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _write_at(path: bytes, data: bytes, modified_ns: int) -> bytes:
    write_file(path, data)
    os.utime(path, ns=(modified_ns, modified_ns))
    return path


@cache
def _content(size_bytes: int) -> bytes:
    return content(size_bytes, size_bytes)


def _build_pair(place: bytes) -> tuple[bytes, bytes]:
    """Build a source and a destination with older, newer, equal, missing and extra entries."""
    make_directory(place, b"source/below")
    make_directory(place, b"target/below")
    for directory in (b"", b"/below"):
        for size in (SMALL_BYTES, LARGE_BYTES):
            for age, modified_ns in (
                (b"older", T0_NS - 1),
                (b"newer", T0_NS + 1),
                (b"equal", T0_NS),
                (b"second", T0_NS // 10**9 * 10**9),
                (b"missing", None),
            ):
                name = directory + b"/%s %d" % (age, size)
                _write_at(place + b"/source" + name, _content(size), T0_NS)
                if modified_ns is not None:
                    _write_at(place + b"/target" + name, b"old", modified_ns)
        write_file(place + b"/target" + directory + b"/surplus", b"surplus")
    _write_at(place + b"/source/" + LONG, b"new", T0_NS)
    _write_at(place + b"/target/" + LONG, b"old", T0_NS - 1)
    return place + b"/source", place + b"/target"


@pytest.mark.parametrize("options", CP_CASES, ids=" ".join)
def test_results_equal_those_of_cp(options: list[str], place: bytes) -> None:
    _compare_with_cp(ONE, options, place)


@some_launchers
@pytest.mark.parametrize("options", [["-n"], ["-u", "-p"]], ids=" ".join)
def test_results_equal_those_of_cp_at_every_size(
    launcher: Launcher, options: list[str], place: bytes
) -> None:
    _compare_with_cp(launcher, options, place)


def _compare_with_cp(launcher: Launcher, options: list[str], place: bytes) -> None:
    source, target = _build_pair(place)
    theirs = place + b"/theirs"
    subprocess.run(["cp", "-a", target, theirs], check=True)
    subprocess.run(["cp", "-r", "-T", *options, source, theirs], check=True)
    keep = METADATA if "-p" in options else CONTENT
    copy(launcher, "-T", "--chunksize", "4M", *options, source, target)
    assert differences(theirs, target, keep) == []


@some_launchers
@pytest.mark.parametrize("option", ["-n", "-u"])
def test_skipped_entries_are_counted_and_reported(
    launcher: Launcher, option: str, place: bytes
) -> None:
    source, target = build_small_tree(place + b"/source"), place + b"/target"
    copy(launcher, "-p", source, target)
    before = snapshot(target)
    result = place + b"/result"
    finished = copy(launcher, "-p", "-T", option, "--json", result, source, target)
    summary = document(result)
    assert snapshot(target) == before
    assert (summary["files"], summary["bytes"]) == (0, 0)
    assert summary["skipped"] + summary["directories"] == summary["found"] == len(before)
    assert f"{summary['skipped']} entr" in finished.out.decode()
    assert "skipped" in finished.out.decode()


@some_launchers
def test_skip_same(launcher: Launcher, place: bytes) -> None:
    """Files of equal size and time are kept, whatever their content; others are replaced."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    other_times = {b"later": T0_NS + 1, b"earlier": T0_NS - 1, b"next second": T0_NS + 10**9}
    for name, modified_ns in ({b"exact": T0_NS} | other_times).items():
        _write_at(os.path.join(source, name), b"new", T0_NS)
        _write_at(os.path.join(target, name), b"old", modified_ns)
    _write_at(source + b"/longer", b"longer", T0_NS)
    _write_at(target + b"/longer", b"short", T0_NS)
    for name, text in ((b"same link", b"text"), (b"other link", b"old text")):
        os.symlink(b"text", os.path.join(source, name))
        os.symlink(text, os.path.join(target, name))
    result = place + b"/result"
    copy(launcher, "-p", "-T", "--skip-same", "--json", result, source, target)
    assert _read(target + b"/exact") == b"old"
    for name in other_times:
        assert _read(os.path.join(target, name)) == b"new", name
    assert _read(target + b"/longer") == b"longer"
    assert os.readlink(target + b"/other link") == b"text"
    assert document(result)["skipped"] == 2
    copy(launcher, "-p", "-T", "--skip-same", "--json", result, source, target)
    assert document(result)["skipped"] == len(other_times) + 4


def test_skip_same_needs_times(place: bytes) -> None:
    finished = run_fcp(ONE, "--skip-same", write_file(place + b"/a", b"a"), place + b"/b")
    assert finished.code == 2
    assert "--skip-same" in finished.said
    assert sorted(os.listdir(place)) == [b"a"]


SECOND_NS = 10**9
KEPT = {
    "tmpfs": 1,
    "ext3": SECOND_NS,
    "vfat": 2 * SECOND_NS,
    "fuse: two seconds, exact change times": 2 * SECOND_NS,
    "fuse: whole change times": 1,
}


@pytest.mark.parametrize("kind", list(KEPT))
def test_times_are_compared_at_the_precision_of_the_target(
    kind: str, place: bytes, mount: Callable[..., bytes], fuse: Callable[..., Mounted]
) -> None:
    """A time equals the source's, truncated to the stored precision; probing leaves no trace."""
    unit_ns = KEPT[kind]
    if kind.startswith("fuse"):
        exact = kind.endswith("exact change times")
        options = {"times_ns": unit_ns, "changes_ns": 1 if exact else 2 * SECOND_NS}
        home = fuse(**options).path
    elif kind == "tmpfs":
        home = mount("tmpfs")
    else:
        home = mount(kind, 16 << 20, *(("-I", "128") if kind == "ext3" else ()))
    sources = make_directory(place, b"sources")
    cuts_ns = (1, 100, 1000, 10**6, SECOND_NS, 2 * SECOND_NS)
    for option in ("--skip-same", "-u"):
        source, target = sources + option.encode(), make_directory(home, option.encode())
        make_directory(source)
        for cut_ns in cuts_ns:
            _write_at(source + b"/%d" % cut_ns, b"new", T0_NS)
            cut = T0_NS // cut_ns * cut_ns
            os.utime(write_file(target + b"/%d" % cut_ns, b"old"), ns=(cut, cut))
        os.utime(source, ns=(T0_NS, T0_NS))
        found = {cut: os.stat(target + b"/%d" % cut).st_mtime_ns for cut in cuts_ns}
        precise = {cut for cut in cuts_ns if found[cut] == T0_NS // unit_ns * unit_ns}
        arguments = ("--preserve=timestamps", "-T", option, "--json", place + b"/result")
        copy(ONE, *arguments, source, target)
        for cut_ns in cuts_ns:
            expected = b"old" if cut_ns in precise else b"new"
            assert _read(target + b"/%d" % cut_ns) == expected, (option, cut_ns)
        assert document(place + b"/result")["skipped"] == len(precise)
        # A copy of the previous run is the same, in a dry run too; one that is a unit newer is not.
        os.utime(source + b"/1", ns=(T0_NS, T0_NS + unit_ns))
        for dry in (("--dry-run",), ()):
            copy(ONE, *dry, *arguments, source, target)
            foretold = document(place + b"/result")["skipped"]
            if not dry or kind in ("tmpfs", "ext3", "vfat"):
                assert foretold == len(cuts_ns) - 1, (option, dry)
        assert sorted(os.listdir(target)) == sorted(b"%d" % cut for cut in cuts_ns)
        assert os.stat(target).st_mtime_ns == T0_NS // unit_ns * unit_ns


@pytest.mark.parametrize(
    ("launcher", "option"), [(TWO, "-n"), (ONE, "-u"), (FOUR, "--inplace")], ids=str
)
def test_dry_run_reports_the_same(launcher: Launcher, option: str, place: bytes) -> None:
    source, target = _build_pair(place)
    arguments = (option, "-p", "-T", "--chunksize", "4M", "--json", place + b"/result")
    before = snapshot(target)
    copy(launcher, "--dry-run", *arguments, source, target)
    foretold = document(place + b"/result")
    assert snapshot(target) == before
    copy(launcher, *arguments, source, target)
    done = document(place + b"/result")
    for name in ("files", "links", "directories", "skipped", "bytes"):
        assert foretold[name] == done[name], name


@pytest.mark.parametrize(
    ("launcher", "option"), [(TWO, "-n"), (ONE, "-u"), (ONE, "-f"), (FOUR, "--inplace")], ids=str
)
def test_conflicting_types(launcher: Launcher, option: str, place: bytes) -> None:
    """A directory in place of a file, and the reverse, are failures; other entries are copied."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    write_file(source + b"/file over directory", b"new")
    write_file(source + b"/large over directory", content(1, LARGE_BYTES))
    os.symlink(b"new", source + b"/link over directory")
    make_directory(source, b"directory over file", b"inner")
    write_file(source + b"/fine", b"fine")
    for name in (b"file", b"large", b"link"):
        make_directory(target, name + b" over directory", b"inner")
    write_file(target + b"/directory over file", b"precious")
    before = snapshot(target)
    finished = run_fcp(launcher, "-T", "--chunksize", "4M", option, source, target)
    assert finished.code == 1, finished.said
    for name in os.listdir(source):
        assert (name != b"fine") == (f"{name.decode()}'" in finished.said)
    assert _read(target + b"/fine") == b"fine"
    os.unlink(target + b"/fine")
    assert [e._replace(modified_ns=0) for e in snapshot(target)] == [
        e._replace(modified_ns=0) for e in before
    ]


def test_no_clobber_keeps_special_files(place: bytes) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    write_file(source + b"/fifo", b"new")
    os.mkfifo(target + b"/fifo")
    copy(TWO, "-n", "-T", source, target)
    assert os.listdir(target) == [b"fifo"]


# ---- atomicity -----------------------------------------------------------------------


# Remaining files are found by name, and no later run should be refused.
UNKEPT = ("--no-checkpoint",)


@pytest.mark.parametrize("options", [[], ["-u"], ["-f"]], ids=["default", "-u", "-f"])
@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_killed_replacement_leaves_the_old_file(
    launcher: Launcher, options: list[str], place: bytes
) -> None:
    """SIGKILL reaches all processes as soon as the copy is being created."""
    source = write_file(place + b"/source", content("new", 16 * MIB) * 16)
    holder = make_directory(place, b"holder")
    target = _write_at(holder + b"/target", b"old", T0_NS)
    killed = _kill_after_start(launcher, options, source, holder, target)
    assert killed
    assert _read(target) == b"old"


def _kill_after_start(
    launcher: Launcher, options: list[str], source: bytes, holder: bytes, target: bytes
) -> bool:
    """Kill a copy while its temporary file exists; return False if it always ended earlier."""
    for _attempt in range(5):
        with Run(launcher, *options, *UNKEPT, "--chunksize", "4M", source, target) as run:
            while run.process.poll() is None:
                if len(os.listdir(holder)) > 1:
                    run.kill(signal.SIGSTOP)
                    break
            begun = any(name.startswith(b".fcp-") for name in os.listdir(holder))
            run.kill()
            run.process.wait()
        for name in os.listdir(holder):
            if name.startswith(b".fcp-"):
                os.unlink(os.path.join(holder, name))
        if begun:
            return True
        write_file(target + b".again", b"old")
        os.utime(target + b".again", ns=(T0_NS, T0_NS))
        os.rename(target + b".again", target)
    return False


@pytest.mark.parametrize("option", ["-n", "-u"])
@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_killed_copy_leaves_no_truncated_file(
    launcher: Launcher, option: str, place: bytes
) -> None:
    """Files that a later -n would keep are complete: the copy is killed, then finished with it."""
    source, target = make_directory(place, b"source"), place + b"/target"
    data = content("files", 50_000)
    for number in range(1000):
        write_file(source + b"/%d" % number, data)
    with Run(launcher, option, *UNKEPT, "-T", source, target) as run:
        run.wait_for(target)
        run.kill()
        run.process.wait()
    for name in os.listdir(target):
        if name.startswith(b".fcp-"):
            os.unlink(os.path.join(target, name))
        else:
            assert os.stat(os.path.join(target, name)).st_size == len(data)
    copy(launcher, option, "-T", source, target)
    assert differences(source, target, CONTENT) == []


@some_launchers
def test_no_clobber_never_replaces_new_files(launcher: Launcher, place: bytes) -> None:
    """Another process creates the same names all the time: the first file of each name stays."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    names = [b"%d" % number for number in range(1500)]
    for name in names:
        write_file(os.path.join(source, name), b"fcp")
    write_file(source + b"/large", content("large", LARGE_BYTES))
    made: list[bytes] = []

    def create() -> None:
        for name in [b"large", *reversed(names)]:
            try:
                write_file(os.path.join(target, name), b"other")
            except FileExistsError:
                continue  # fcp was first
            made.append(name)

    other = threading.Thread(target=create)
    with Run(
        launcher, "-n", "-T", "--chunksize", "4M", "--json", place + b"/result", source, target
    ) as run:
        other.start()
        try:
            finished: Finished = run.finish()
        finally:
            other.join()
    assert finished.code == 0, finished.said
    foreign = set(made)
    for name in [*names, b"large"]:
        expected = b"other" if name in foreign else _read(os.path.join(source, name))
        assert _read(os.path.join(target, name)) == expected
    assert sorted(os.listdir(target)) == sorted(os.listdir(source))
    result = document(place + b"/result")
    assert result["skipped"] == len(foreign)
    assert result["files"] == len(names) + 1 - len(foreign)


@some_launchers
def test_no_clobber_keeps_a_file_created_during_a_copy(launcher: Launcher, place: bytes) -> None:
    """The name is taken while the temporary file is being filled, which is then removed."""
    source = write_file(place + b"/source", content("new", 16 * MIB) * 16)
    for attempt in range(5):
        holder = make_directory(place, b"holder %d" % attempt)
        target = holder + b"/target"
        arguments = ("-n", "--chunksize", "4M", "--json", holder + b".json", source, target)
        with Run(launcher, *arguments) as run:
            run.wait_for(holder)
            try:
                write_file(target, b"other")
            except FileExistsError:
                run.finish()
                continue  # it was faster
            finished = run.finish()
        assert finished.code == 0, finished.said
        assert os.listdir(holder) == [b"target"]
        assert _read(target) == b"other"
        assert document(holder + b".json")["skipped"] == 1
        return
    pytest.fail("the copy was always faster")


@pytest.mark.parametrize("way", [give_free_name, rename_to_free, claim_and_rename])
def test_ways_to_a_free_name(way: Callable[[bytes, bytes, int], None], place: bytes) -> None:
    directory_fd = os.open(place, os.O_RDONLY)
    try:
        write_file(place + b"/first", b"first")
        write_file(place + b"/second", b"second")
        way(b"first", b"name", directory_fd)
        with pytest.raises(FileExistsError):
            way(b"second", b"name", directory_fd)
    finally:
        os.close(directory_fd)
    assert sorted(os.listdir(place)) == [b"name", b"second"]
    assert _read(place + b"/name") == b"first"


# ---- in place ------------------------------------------------------------------------


@some_launchers
@pytest.mark.parametrize("options", [[], ["-p"], ["-f"]], ids=["plain", "-p", "-f"])
def test_in_place_writes_into_the_file(
    launcher: Launcher, options: list[str], place: bytes
) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for size in (0, SMALL_BYTES, LARGE_BYTES):
        write_file(source + b"/new %d" % size, content(size, size), 0o640)
        write_file(source + b"/%d" % size, content(size, size), 0o640)
        write_file(target + b"/%d" % size, content("old", LARGE_BYTES + 99), 0o604)
    with open(source + b"/holes", "xb") as stream:
        stream.truncate(LARGE_BYTES)
    write_file(target + b"/holes", content("old", LARGE_BYTES))
    inodes = {name: os.stat(os.path.join(target, name)).st_ino for name in os.listdir(target)}
    copy(launcher, "--inplace", "-T", "--chunksize", "4M", *options, source, target)
    assert differences(source, target, METADATA if "-p" in options else CONTENT) == []
    for name, inode in inodes.items():
        status = os.stat(os.path.join(target, name))
        assert status.st_ino == inode
        if options != ["-p"] and name != b"holes":
            assert status.st_mode & 0o777 == 0o604
    assert os.stat(target + b"/holes").st_blocks == 0


@some_launchers
def test_in_place_follows_no_link_and_spares_the_source(launcher: Launcher, place: bytes) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    precious = write_file(place + b"/precious", b"precious")
    for size in (SMALL_BYTES, LARGE_BYTES):
        write_file(source + b"/link %d" % size, content(size, size))
        os.symlink(precious, target + b"/link %d" % size)
        write_file(source + b"/same %d" % size, content(size, size))
        os.link(source + b"/same %d" % size, target + b"/same %d" % size)
    finished = run_fcp(launcher, "--inplace", "-T", "--chunksize", "4M", source, target)
    assert finished.code == 1
    assert finished.said.count("are the same file") == 2, finished.said
    assert _read(precious) == b"precious"
    assert differences(source, target, CONTENT) == []
    assert os.stat(source + b"/same %d" % LARGE_BYTES).st_size == LARGE_BYTES


@some_launchers
@pytest.mark.parametrize("options", [[], ["-s", "--verify"], ["-a"]], ids=["plain", "-s", "-a"])
def test_in_place_files_of_several_names_are_replaced(
    launcher: Launcher, options: list[str], place: bytes
) -> None:
    """Writing into one name would change the others: copies of other files, or unrelated ones."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    precious = write_file(place + b"/precious", b"precious")
    for size in (SMALL_BYTES, LARGE_BYTES):
        for number in range(4):
            write_file(source + b"/%d %d" % (number, size), content(number + size, size))
        first = write_file(target + b"/0 %d" % size, b"old")
        os.link(first, target + b"/1 %d" % size)
        os.link(source + b"/3 %d" % size, target + b"/2 %d" % size)
        os.link(precious, target + b"/3 %d" % size)
    before = _read(source + b"/3 %d" % LARGE_BYTES)
    copy(launcher, "--inplace", "-T", "--chunksize", "4M", *options, source, target)
    assert _read(precious) == b"precious"
    assert _read(source + b"/3 %d" % LARGE_BYTES) == before
    assert differences(source, target, CONTENT) == []


@pytest.mark.parametrize("size", [SMALL_BYTES, LARGE_BYTES])
def test_force_replaces_unopenable_files(size: int, place: bytes) -> None:
    """As in cp, a read-only file is a failure without -f, and is replaced with it."""
    prefix = without_rights("dac_override", "dac_read_search")
    for program in ("cp", "fcp"):
        for force in (False, True):
            holder = make_directory(place, f"{program} {force}".encode())
            source = write_file(holder + b"/source", content(size, size), 0o644)
            target = write_file(holder + b"/target", b"old", 0o444)
            options = ["-f"] if force else []
            if program == "cp":
                code = subprocess.run(
                    [*prefix, "cp", *options, source, target],
                    check=False,
                    capture_output=True,
                    env=clean_environment(),
                ).returncode
            else:
                options += ["--inplace", "--chunksize", "4M"]
                code = run_fcp(TWO, *options, source, target, prefix=prefix).code
            assert code == (not force), program
            assert _read(target) == (_read(source) if force else b"old"), program


# ---- on disk -------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_fsync_reaches_every_file_and_directory(launcher: Launcher, place: bytes) -> None:
    """strace sees the calls for each copied file, each directory and its parent."""
    source = make_directory(place, b"source", b"below")[: -len(b"/below")]
    for name in (b"one", b"below/two"):
        write_file(os.path.join(source, name), b"data")
    write_file(source + b"/large", content(1, LARGE_BYTES))
    log = place + b"/log"
    prefix = (required("strace"), "-f", "-y", "-e", "trace=fsync", "-o", os.fsdecode(log))
    target = place + b"/target"
    finished = run_fcp(
        launcher,
        *("--fsync", "-T", "--chunksize", "4M", source, target),
        prefix=prefix,
    )
    if b"ptrace" in finished.err and finished.code:
        pytest.skip(f"strace may not trace here: {finished.said}")
    assert finished.code == 0, finished.said
    synced = [call.text for call in read_calls(log) if call.result == "0"]
    for path in (place, target, target + b"/below", target + b"/one", target + b"/below/two"):
        assert any(f"<{os.fsdecode(path)}>" in text for text in synced), synced
    large = os.fsdecode(target) + "/.fcp-"
    assert sum(large in text for text in synced) >= 3, synced  # the chunks of the large one
    assert differences(source, target, CONTENT) == []


@some_launchers
@pytest.mark.parametrize("options", [["--fsync", "-p", "-u"], ["--fsync", "--inplace"]])
def test_fsync_copies_are_identical(launcher: Launcher, options: list[str], place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), place + b"/target"
    copy(launcher, *options, "--chunksize", "4M", source, target)
    assert differences(source, target, METADATA if "-p" in options else CONTENT) == []
    single = place + b"/single"
    copy(launcher, *options, source + b"/large", single)
    assert _read(single) == _read(source + b"/large")


# ---- hard links ----------------------------------------------------------------------


@some_launchers
@pytest.mark.parametrize("option", ["-n", "-u", "--skip-same"])
def test_hard_links(launcher: Launcher, option: str, place: bytes) -> None:
    """One of three names exists: -n never links to it, the other options do."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for size in (SMALL_BYTES, LARGE_BYTES):
        names = [b"%d %d" % (size, number) for number in range(3)]
        _write_at(os.path.join(source, names[0]), _content(size), T0_NS)
        for name in names[1:]:
            os.link(os.path.join(source, names[0]), os.path.join(source, name))
        _write_at(os.path.join(target, names[1]), _content(size), T0_NS)
    options = [option, "-p", "--preserve=links", "-T", "--chunksize", "4M"]
    copy(launcher, *options, source, target)
    assert differences(source, target, METADATA) == []
    for size in (SMALL_BYTES, LARGE_BYTES):
        inodes = [os.stat(target + b"/%d %d" % (size, number)).st_ino for number in range(3)]
        assert inodes[0] == inodes[2]
        if option == "-n":
            assert inodes[0] != inodes[1]
    result = place + b"/result"
    copy(launcher, *options, "--json", result, source, target)
    assert document(result)["skipped"] == 6
    assert differences(source, target, METADATA) == []


@pytest.mark.parametrize(
    ("launcher", "option"), [(ONE, "-n"), (FOUR, "-u"), (TWO, "--skip-same")], ids=str
)
def test_existing_special_files_stay(launcher: Launcher, option: str, place: bytes) -> None:
    source, target = make_directory(place, b"source"), place + b"/target"
    os.mkfifo(source + b"/fifo")
    os.link(source + b"/fifo", source + b"/again")
    os.mkfifo(source + b"/alone")
    copy(launcher, "-a", source, target)
    before = snapshot(target)
    result = place + b"/result"
    copy(launcher, "-a", "-T", option, "--json", result, source, target)
    assert document(result)["skipped"] == 3
    assert snapshot(target) == before
