"""File systems that report wrong sizes and holes: files are read to their ends."""

from __future__ import annotations

import os
import subprocess
import zlib

import pytest

from pcircle.fs import file_system

from ...fusefs.fixture import Mount
from ...fusefs.rules import Rule
from .running import ONE, TWO, Finished, Launcher, Run, copy, document
from .trees import content, make_directory, write_file

MADE_UP = (b"/proc/version", b"/proc/sys/kernel/threads-max", b"/sys/kernel/mm/ksm/run")


def made_up() -> list[bytes]:
    """Return files of this machine whose content differs from their size."""
    found = [path for path in MADE_UP if os.access(path, os.R_OK)]
    if not found:
        pytest.skip("no readable files in /proc and /sys")
    return found


def read_file(path: bytes) -> bytes:
    """Return the content of a file."""
    with open(path, "rb") as stream:
        return stream.read()


def run(tool: str, *arguments: str | bytes, launcher: Launcher = ONE, code: int = 0) -> Finished:
    """Run a tool to its end."""
    with Run(launcher, *arguments, program=(f"pcircle.tools.{tool}",)) as started:
        finished = started.finish()
    assert finished.code == code, finished.said
    return finished


@pytest.mark.parametrize("options", [(), ("-a", "--verify"), ("-s",), ("--inplace",)], ids=" ".join)
def test_fcp_reads_to_the_end(options: tuple[str, ...], place: bytes) -> None:
    """A file of /proc/sys returns everything to the first read; the bytes read are counted."""
    sources, target = made_up(), make_directory(place, b"target")
    if "--inplace" in options:
        for path in sources:
            write_file(os.path.join(target, os.path.basename(path)), b"old content" * 100)
    copy(TWO, *options, "--json", place + b"/json", *sources, target)
    total = 0
    for path in sources:
        expected = read_file(path)
        assert read_file(os.path.join(target, os.path.basename(path))) == expected
        total += len(expected)
    assert document(place + b"/json")["bytes"] == total


def test_other_tools_read_to_the_end(place: bytes) -> None:
    """fmirror, fdiff, fsum and fbcast do not use the size as the length of the content."""
    sources = made_up()
    for path in sources:
        name = os.path.basename(path)
        same, empty = write_file(place + b"/" + name, read_file(path)), place + b"/empty " + name
        write_file(empty, b"")
        run("fdiff", "-c", "--fields=kind,content", path, same)
        run("fdiff", "-c", "--fields=kind,content", path, empty, code=3)
        signatures = [
            run("fsum", "-q", "--force", "-o", place + b"/m", tree_path).out[:40]
            for tree_path in (path, same)
        ]
        assert signatures[0] == signatures[1]
        node = make_directory(place, b"node " + name)
        run("fbcast", "-q", path, node)
        assert read_file(node + b"/" + name) == read_file(path)
        run("fbcast", "-q", "--check", path, node)
        os.chmod(node + b"/" + name, 0o600)
        os.truncate(node + b"/" + name, 0)
        run("fbcast", "-q", "--check", path, node, code=3)


def test_fmirror_reads_to_the_end(place: bytes) -> None:
    """An empty file is no copy of a file that only claims to be empty."""
    source = b"/proc/sys/kernel/keys"
    if not os.path.isdir(source):
        pytest.skip("the kernel has no keys")
    target = make_directory(place, b"target")
    for name in os.listdir(source):
        write_file(target + b"/" + name, b"")
    for _ in range(2):
        run("fmirror", "-q", "-c", source, target)
        subprocess.run(["diff", "-r", source, target], check=True)


@pytest.mark.parametrize("options", [(), ("-s",), ("--chunksize", "4M", "--verify")], ids=" ".join)
def test_false_holes(options: tuple[str, ...], place: bytes, fuse: Mount) -> None:
    """A FUSE server that reports no data is not trusted; zeros become holes."""
    mounted = fuse()
    size = 9_000_000
    for name, at in ((b"small", 60_000), (b"large", size)):
        path = write_file(mounted.backing + b"/" + name, content(1, 20_000))
        os.truncate(path, at)
        with open(path, "r+b") as stream:
            stream.seek(at)
            stream.write(content(2, 20_000))
    mounted.rules(Rule(("lseek",), errno="ENXIO"))
    target = place + b"/target"
    copy(TWO, *options, "-T", mounted.path, target)
    subprocess.run(["diff", "-r", mounted.backing, target], check=True)
    assert os.stat(target + b"/large").st_blocks * 512 < size
    run("fdiff", "-c", "--fields=kind,content", mounted.path, target)
    run("fmirror", "-q", mounted.path, place + b"/mirror")
    subprocess.run(["diff", "-r", mounted.backing, place + b"/mirror"], check=True)
    sums = [run("fsum", "-q", tree_path).out.split()[0] for tree_path in (mounted.path, target)]
    assert sums[0] == sums[1]


def test_file_system_types(place: bytes) -> None:
    """The types of statfs(2) match the names in mountinfo."""
    fds = [os.open(path, os.O_RDONLY) for path in (b"/proc", place)]
    try:
        assert [file_system.is_pseudo(fd) for fd in fds] == [True, False]
        name = subprocess.run(["stat", "-fc", "%T", place], capture_output=True).stdout.strip()
        if name in (b"tmpfs", b"xfs", b"btrfs", b"ext2/ext3"):
            assert file_system.reports_holes(fds[1])
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("chunks", [(), ("--chunksize", "4M")], ids=["whole", "chunks"])
@pytest.mark.parametrize("to_view", [True, False], ids=["to", "from"])
def test_a_view_of_the_source(
    chunks: tuple[str, ...], to_view: bool, place: bytes, fuse: Mount
) -> None:
    """--inplace into a FUSE view of the source, or the reverse, leaves the source unchanged."""
    mounted = fuse()
    data = content(1, 9_000_000 if chunks else 50_000)
    path = write_file(mounted.backing + b"/file", data)
    os.utime(path, (10, 20))
    sides = (mounted.backing, mounted.path) if to_view else (mounted.path, mounted.backing)
    for side in sides:
        os.stat(side + b"/file")  # the look-up may be cached
    finished = run("fcp", "--inplace", *chunks, "-T", *sides, code=1)
    assert "the same file" in finished.said
    assert read_file(path) == data
    assert os.stat(path).st_mtime == 20


def test_fprof_samples_content_that_has_no_size(place: bytes) -> None:
    """An empty file does not count as a piece that could not be read."""
    sources = made_up()
    run("fprof", "-q", "--compress", "--json", place + b"/json", *sources)
    contents = [read_file(path) for path in sources]
    packed = sum(min(len(data), len(zlib.compress(data, 1))) for data in contents)
    found = document(place + b"/json")["compression"]
    assert (found["pieces"], found["unread"]) == (len(sources), 0)
    assert found["ratio"] == pytest.approx(packed / sum(map(len, contents)), abs=1e-6)
