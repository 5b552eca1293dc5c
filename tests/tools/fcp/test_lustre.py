"""Lustre layouts, end to end: layouts of new files and directories on a simulated Lustre.

The file system is `tests.fusefs` with `lustre=True`: it stores `lustre.lov` like Lustre does,
ignores layouts after a file has one, and rejects writes to files without one. So a copy with
correct layouts was created correctly. Further tests cover sides that are not on Lustre, servers
that refuse, interruptions, and the cost on other file systems, which is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.directories import HOLDER
from pcircle.ops.copy.entry.settings import Striping
from pcircle.ops.copy.tree.items import FILE, CopyChunk, CopyPlan, CopyRoot, Item, LargeFileItem
from pcircle.ops.copy.tree.large_files import LargeFileCopier
from pcircle.ops.copy.tree.worker import Worker
from pcircle.walk.items import DirectoryIdentity
from tests import strace

from ...fusefs.fixture import Mount
from ...fusefs.layouts import (
    EOF,
    MDT,
    NAME,
    OVERSTRIPED,
    V1,
    V3,
    Entry,
    Md,
    pack_composite,
    unpack_composite,
    unpack_md,
)
from ...fusefs.mounting import Mounted
from ...fusefs.rules import Rule
from .interrupts import committed, interrupt, temporary_in
from .running import (
    ONE,
    TWO,
    Launcher,
    clean_environment,
    command,
    copy,
    document,
    launchers,
    run_fcp,
    without_rights,
)
from .trees import MIB, content, write_file

PROGRESSIVE = [
    Entry(0, MIB, Md(0, MIB, pattern=MDT)),
    Entry(MIB, 64 * MIB, Md(2, 2 * MIB)),
    Entry(64 * MIB, EOF, Md(6, 4 * MIB, b"disk")),
]
LARGE_BYTES = 9 * MIB + 12345
CHUNKS = "--chunksize=4M"  # makes it one
FILES: dict[bytes, tuple[bytes | None, int]] = {
    b"plain": (Md(3, 2 * MIB).pack(), 5000),
    b"empty": (Md(2, 4 * MIB).pack(), 0),
    b"pooled": (Md(4, MIB, b"flash").pack(), 70_000),
    b"over": (Md(5, MIB, pattern=1 | OVERSTRIPED).pack(), 100),
    b"progressive": (pack_composite(PROGRESSIVE), 300_000),
    b"sub/usual": (None, 10),
    b"sub/large": (Md(6, 16 * MIB).pack(), LARGE_BYTES),
}
everywhere = pytest.mark.parametrize("launcher", launchers([1, 3], [2]))


def layout_of(path: bytes) -> Any:
    """Return a layout without objects, generation, ids and flags, which belong to the file."""
    value = os.getxattr(path, NAME)
    if int.from_bytes(value[:4], "little") in (V1, V3):
        return unpack_md(value)
    mirrors, entries = unpack_composite(value)
    return mirrors, [entry._replace(flags=0, number=0) for entry in entries]


def read_file(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def write_laid_out(path: bytes, layout: bytes | None, size: int) -> None:
    """Create a file with a layout."""
    if layout is None:
        write_file(path, content(size, size))
        return
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOCTTY | os.O_ASYNC)
    with open(fd, "wb") as stream:
        os.setxattr(fd, NAME, layout)
        stream.write(content(size, size))


def build(mount: Mounted) -> bytes:
    """Build a tree in which every file has its layout, and some directories have one too."""
    source = os.path.join(mount.path, b"source")
    for name in (b"", b"/sub", b"/sub/own", b"/sub/progressive", b"/sub/own/below"):
        os.mkdir(source + name)
    for name, (layout, size) in FILES.items():
        write_laid_out(os.path.join(source, name), layout, size)
    os.link(source + b"/plain", source + b"/sub/own/second")
    # Set last, so that entries below do not inherit it.
    os.setxattr(source + b"/sub/own", NAME, Md(5, 2 * MIB, b"flash").pack())
    os.setxattr(source + b"/sub/progressive", NAME, pack_composite(PROGRESSIVE))
    return source


@pytest.fixture
def sides(fuse: Mount) -> tuple[Mounted, Mounted]:
    """Mount two file systems with other defaults."""
    first, second = fuse(lustre=True), fuse(lustre=True)
    os.setxattr(first.path, NAME, Md(2, MIB).pack())
    os.setxattr(second.path, NAME, Md(1, 4 * MIB).pack())
    return first, second


def check(source: bytes, target: bytes, layout: Callable[[bytes], Any]) -> None:
    """Check contents, and the layout of each file by a function."""
    for name in FILES:
        path = os.path.join(target, name)
        assert read_file(path) == read_file(os.path.join(source, name)), name
        assert layout_of(path) == layout(name), name


@everywhere
@pytest.mark.parametrize("options", [["-a"], ["--stripe=keep"]], ids=["a", "keep"])
def test_layouts_are_preserved(
    launcher: Launcher, options: list[str], sides: tuple[Mounted, Mounted]
) -> None:
    first, second = sides
    source, target = build(first), second.path + b"/target"
    copy(launcher, CHUNKS, *options, source, target)
    check(source, target, lambda name: layout_of(os.path.join(source, name)))
    assert layout_of(target + b"/sub/own") == Md(5, 2 * MIB, b"flash")
    assert layout_of(target + b"/sub/progressive") == (1, PROGRESSIVE)
    # A default of the file system is not a layout of the directory.
    assert layout_of(source + b"/sub/own/below") == Md(2, MIB)
    for name in (b"", b"/sub", b"/sub/own/below"):
        assert layout_of(target + name) == Md(1, 4 * MIB)
    assert second.state().counts["layouts ignored"] == 0
    if options == ["-a"]:
        assert os.stat(target + b"/plain").st_ino == os.stat(target + b"/sub/own/second").st_ino


@everywhere
def test_a_specified_layout(launcher: Launcher, sides: tuple[Mounted, Mounted]) -> None:
    first, second = sides
    source, target = build(first), second.path + b"/target"
    copy(launcher, CHUNKS, "-a", "--stripe", "4:2M", source, target)
    check(source, target, lambda name: Md(4, 2 * MIB))
    assert layout_of(target + b"/sub/own") == Md(1, 4 * MIB)
    assert second.state().counts["layouts ignored"] == 0


@everywhere
def test_the_layout_of_the_destination(launcher: Launcher, sides: tuple[Mounted, Mounted]) -> None:
    first, second = sides
    source, target = build(first), second.path + b"/target"
    os.mkdir(target)
    os.setxattr(target, NAME, Md(3, 8 * MIB).pack())
    copy(launcher, CHUNKS, "-a", "-T", "--stripe=default", source, target)
    check(source, target, lambda name: Md(3, 8 * MIB))
    assert layout_of(target + b"/sub/own") == Md(3, 8 * MIB)
    assert second.state().counts["setxattr"] == 2  # those of this test


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("2", Md(2, MIB)), ("all", Md(8, MIB)), ("-1", Md(8, MIB)), ("0:8M", Md(1, 8 * MIB))],
)
def test_counts_and_sizes(text: str, wanted: Md, sides: tuple[Mounted, Mounted]) -> None:
    source, target = sides[0].path + b"/source", sides[1].path + b"/target"
    write_file(source, b"data")
    copy(ONE, "--stripe", text, source, target)
    assert layout_of(target) == wanted


@pytest.mark.parametrize(
    "options",
    [["-n"], ["-u"], ["--verify"], ["-s"], ["--inplace"], ["--fsync"], ["--no-checkpoint"],
     ["--sparse=always"], ["--bwlimit=1G", "--ops-limit=100000"]],
    ids=" ".join,
)  # fmt: skip
def test_together_with_other_options(options: list[str], sides: tuple[Mounted, Mounted]) -> None:
    first, second = sides
    source, target = build(first), second.path + b"/target"
    copy(TWO, CHUNKS, "--preserve=stripe", *options, source, target)
    check(source, target, lambda name: layout_of(os.path.join(source, name)))
    assert second.state().counts["layouts ignored"] == 0


def test_replaced_files_get_the_layout_and_rewritten_ones_keep_theirs(
    sides: tuple[Mounted, Mounted],
) -> None:
    first, second = sides
    source, target = build(first), second.path + b"/target"
    copy(ONE, CHUNKS, source, target)
    check(source, target, lambda name: Md(1, 4 * MIB))
    copy(ONE, CHUNKS, "--inplace", "--stripe=7", "-T", source, target)
    check(source, target, lambda name: Md(1, 4 * MIB))
    copy(ONE, CHUNKS, "--stripe=7", "-T", source, target)
    check(source, target, lambda name: Md(7, MIB))


def test_a_read_only_file(sides: tuple[Mounted, Mounted]) -> None:
    source, target = sides[0].path + b"/source", sides[1].path + b"/target"
    write_laid_out(source, Md(3, 2 * MIB).pack(), 100)
    os.chmod(source, 0o444)
    rights = without_rights("dac_override", "dac_read_search", "fowner")
    finished = run_fcp(ONE, "--stripe=keep", source, target, prefix=rights)
    assert finished.code == 0, finished.said
    assert layout_of(target) == Md(3, 2 * MIB)
    assert os.stat(target).st_mode & 0o7777 == 0o444


def test_not_on_lustre_is_refused_at_once(sides: tuple[Mounted, Mounted], place: bytes) -> None:
    on, off = sides[0].path + b"/file", place + b"/file"
    write_file(on, b"data")
    write_file(off, b"data")
    for options, source, target, strange in (
        (["--stripe=4"], on, place + b"/copy", b"copy"),
        (["--stripe=keep"], on, place + b"/copy", b"copy"),
        (["--stripe=keep"], off, sides[0].path + b"/copy", b"file"),
        (["--stripe=keep", "--dry-run"], off, sides[0].path + b"/copy", b"file"),
    ):
        finished = run_fcp(ONE, *options, source, target)
        assert finished.code == 2
        assert f"{strange.decode()}' is not on Lustre" in finished.said
        assert not os.path.exists(target)
    copy(ONE, "--stripe=default", on, place + b"/copy")
    copy(ONE, "--stripe=3", off, sides[0].path + b"/copy")
    assert layout_of(sides[0].path + b"/copy") == Md(3, MIB)


def test_invalid_values(place: bytes) -> None:
    for options, reason in (
        (["--stripe=4:1"], "not a multiple of 64k"),
        (["--stripe=some"], "is not keep, default, COUNT"),
        (["--stripe=2", "--preserve=stripe"], "cannot be combined with --preserve=stripe"),
    ):
        finished = run_fcp(ONE, *options, place, place + b"/copy")
        assert finished.code == 2
        assert reason in finished.said


def test_a_file_system_with_only_the_attribute_is_not_lustre(fuse: Mount, place: bytes) -> None:
    """It reports that the attribute is missing, and would store one."""
    other = fuse()
    write_file(place + b"/file", b"data")
    finished = run_fcp(ONE, "--stripe=2", place + b"/file", other.path)
    assert finished.code == 2
    assert "is not on Lustre" in finished.said
    copy(ONE, "-a", place + b"/file", other.path)
    assert "lustre.lov" not in os.listxattr(other.path + b"/file")


@pytest.mark.parametrize("launcher", launchers([1, 3], []))
def test_a_destination_without_layouts(
    launcher: Launcher, sides: tuple[Mounted, Mounted], place: bytes
) -> None:
    source, target, result = build(sides[0]), place + b"/target", place + b"/result"
    copy(launcher, CHUNKS, "-a", "--json", result, source, target)
    assert document(result)["not_kept"] == {}
    assert "lustre.lov" not in os.listxattr(target + b"/plain")
    # If named, it is required: for every file, and the two directories that pass one on.
    finished = run_fcp(
        launcher, CHUNKS, "--preserve=stripe", "--json", result, source, place + b"/strict"
    )
    assert finished.code == 1
    assert document(result)["not_kept"] == {"Lustre layouts": len(FILES) + 3}
    assert "destination does not support its Lustre layouts" in finished.said
    left = [name for name in FILES if os.path.exists(os.path.join(place, b"strict", name))]
    assert left == []


def test_a_source_without_layouts_has_none_to_keep(
    sides: tuple[Mounted, Mounted], place: bytes
) -> None:
    write_file(place + b"/file", b"data")
    copy(ONE, "--preserve=stripe", place + b"/file", sides[0].path + b"/copy")
    assert layout_of(sides[0].path + b"/copy") == Md(2, MIB)


def test_layouts_that_the_server_refuses(sides: tuple[Mounted, Mounted], place: bytes) -> None:
    first, second = sides
    source, target, result = build(first), second.path + b"/target", place + b"/result"
    os.unlink(source + b"/sub/own/second")  # it may be the one that is copied
    second.rules(Rule(("setxattr",), "target/p*", errno="EINVAL"))
    finished = copy(TWO, CHUNKS, "-a", "--json", result, source, target)
    assert document(result)["not_kept"] == {"Lustre layouts": 3}
    assert "Lustre layouts of 3 entries were not kept" in finished.said
    refused = (b"plain", b"pooled", b"progressive")
    check(
        source,
        target,
        lambda name: Md(1, 4 * MIB) if name in refused else layout_of(os.path.join(source, name)),
    )
    second.rules(Rule(("setxattr",), "again/p*", errno="EINVAL"))
    finished = run_fcp(TWO, CHUNKS, "-a", "--stripe=keep", source, second.path + b"/again")
    assert finished.code == 1
    assert finished.said.count("destination does not support its Lustre layouts") == 3
    there = set(os.listdir(second.path + b"/again"))
    assert there == {b"empty", b"over", b"sub"}


def test_other_errors_are_failures(sides: tuple[Mounted, Mounted]) -> None:
    first, second = sides
    source, target = build(first), second.path + b"/target"
    os.unlink(source + b"/sub/own/second")  # it may be the one that is copied
    second.rules(
        Rule(("setxattr",), "target/plain", errno="EIO"),
        Rule(("setxattr",), "target/sub/own", errno="ENOSPC"),
    )
    finished = run_fcp(TWO, CHUNKS, "-a", source, target)
    assert finished.code == 1
    assert "plain': Input/output error" in finished.said
    assert "own': No space left on device" in finished.said
    # Nothing incomplete is left.
    assert set(os.listdir(target)) == {b"empty", b"over", b"pooled", b"progressive", b"sub"}


def test_internal_attributes_of_lustre_are_not_copied(
    sides: tuple[Mounted, Mounted], place: bytes
) -> None:
    source, target = sides[0].path + b"/source", place + b"/target"
    write_file(source, b"data")
    for name in ("trusted.lov", "trusted.lma", "trusted.link", "trusted.hsm", "trusted.mine"):
        os.setxattr(source, name, b"value")
    copy(ONE, "-a", source, target)
    assert os.listxattr(target) == ["trusted.mine"]


def test_a_resumed_copy_keeps_its_layouts(sides: tuple[Mounted, Mounted]) -> None:
    source, target = sides[0].path + b"/source", sides[1].path + b"/target"
    os.mkdir(source)
    write_laid_out(source + b"/large", Md(6, 24 * MIB).pack(), 64 * MIB)
    os.setxattr(source, NAME, Md(5, 2 * MIB, b"flash").pack())

    def is_recorded() -> bool:
        """Return whether a commit exists, which requires a stripe on each of its targets."""
        return committed(sides[1].path).parts > 0

    interrupt(TWO, sides[1].path, CHUNKS, "-a", source, target, when=is_recorded)
    (begun,) = temporary_in(target)
    inode = os.stat(os.path.join(target, begun)).st_ino
    refused = run_fcp(ONE, CHUNKS, "-a", "--stripe=5", "--resume", source, target)
    assert refused.code == 2
    assert "different options (--stripe)" in refused.said
    copy(TWO, CHUNKS, "-a", "--resume", source, target)
    assert os.stat(target + b"/large").st_ino == inode
    assert read_file(target + b"/large") == read_file(source + b"/large")
    assert layout_of(target + b"/large") == Md(6, 24 * MIB)
    assert layout_of(target) == Md(5, 2 * MIB, b"flash")
    assert sides[1].state().counts["layouts ignored"] == 0


class _Here:
    """The context of an item, which stores the items that it spawns."""

    stopping = False

    def __init__(self) -> None:
        self.items: list[Item] = []

    @property
    def spawned(self) -> int:
        return len(self.items)

    def spawn(self, items: list[Item]) -> None:
        self.items += items

    def note(self, notices: list[Any]) -> None:
        raise AssertionError(notices)

    def is_stopping(self) -> bool:
        return False


@pytest.mark.parametrize("by", ["target", "source"])
def test_chunks_begin_where_stripes_do(
    by: str, sides: tuple[Mounted, Mounted], place: bytes
) -> None:
    layout = pack_composite([Entry(0, 48 * MIB, Md(2, 24 * MIB)), Entry(48 * MIB, EOF, Md(3, MIB))])
    write_laid_out(sides[0].path + b"/large", layout, 0)
    os.truncate(sides[0].path + b"/large", 200 * MIB + 1)
    holder = sides[1].path if by == "target" else place
    names = sides[0].path, b"large", holder, b"copy"
    plan = CopyPlan(
        tool="fcp",
        roots=(CopyRoot(*names, FILE, b"shown", b"shown"),),
        keep=PreservedAttributes(stripe=True),
        large_bytes=32 * MIB,
        chunk_bytes=None,
        token=b"token",
        umask=0,
        directory=b"/",
        sparse="never",
        striping=Striping(source=True, target=by == "target", keep=by == "target"),
    )
    of_rank = Worker(plan, 0, 3)
    ends, layouts = of_rank.sides, of_rank.copier.layouts
    try:
        context = _Here()
        large = LargeFileCopier(of_rank)
        with ends.sources.lease(0, HOLDER) as source, ends.targets.lease(0, HOLDER) as target:
            item = LargeFileItem(
                0,
                HOLDER,
                b"large",
                b"copy",
                1.0,
                DirectoryIdentity(source.identity, target.identity, (0, 0)),
            )
        large.begin(item, context)  # type: ignore[arg-type]
        chunks = [chunk for chunk in context.items if isinstance(chunk, CopyChunk)]
        assert [chunk.offset for chunk in chunks] == [n * 24 * MIB for n in range(9)]
        assert sum(chunk.length for chunk in chunks) == 200 * MIB + 1
        for size, unit in ((65536, 4 * MIB), (6 * MIB, 12 * MIB), (256 * MIB, 4 * MIB)):
            path = sides[0].path + b"/%d" % size
            write_laid_out(path, Md(2, size).pack(), 0)
            with open(path, "rb") as file:
                assert layouts.unit_bytes(file.fileno(), file.fileno()) == unit
        # A slow one is divided there as well.
        whole = CopyChunk(b"", b"", (0, 0), (0, 0), 0, 96 * MIB, 1.0, False, 0, HOLDER, 24 * MIB)
        context.items.clear()
        large._share_rest(whole, 20 * MIB, 96 * MIB, context)  # type: ignore[arg-type]
        parts = [(c.offset, c.length) for c in context.items if isinstance(c, CopyChunk)]
        assert parts == [(20 * MIB, 52 * MIB), (72 * MIB, 24 * MIB)]
    finally:
        ends.close()


@pytest.mark.parametrize("options", [[], ["-a"]], ids=["plain", "a"])
def test_without_lustre_layouts_are_not_read_for_each_file(
    options: list[str], place: bytes
) -> None:
    source, log = place + b"/source", place + b"/log"
    os.mkdir(source)
    os.mkdir(source + b"/sub")
    for number in range(200):
        write_file(source + b"/%d" % number, b"data")
    write_file(source + b"/sub/large", content(1, LARGE_BYTES))
    calls = "trace=getxattr,fgetxattr,setxattr,fsetxattr,lgetxattr,lsetxattr"
    fcp = command(ONE, ["-q", CHUNKS, *options, source, place + b"/copy"])
    traced = strace.trace(fcp, log, ["-e", calls], env=clean_environment())
    asked = [call for call in traced if '"lustre.lov"' in call.text]
    assert len(asked) < 20  # for two hundred files
