"""Small directories that are copied in batches have the same copies and counts as by the walk.

A separate code path handles them, and ends at entries that are not plain. So each tree here is
copied both ways, and the ways are counted: a test of the short one must not pass because nothing
took it.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from pcircle.fs import native
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.scan import DirectoryBatch
from pcircle.ops.checkpoint.plan import CheckpointOptions
from pcircle.ops.copy.tree import small_directories
from pcircle.ops.copy.tree.items import PartialResult
from pcircle.ops.copy.tree.small_directories import PartialDirectory, SmallDirectoryCopier
from pcircle.walk import walker
from pcircle.walk.walker import Walker

from ...fusefs.rules import Rule
from . import verdict
from .access import ACCESS, MASK, NOBODY, OTHER, OWNER, OWNING_GROUP, USER, give, pack
from .faulty import faults
from .judge import CONTENT, METADATA, differences
from .running import copy_here, document
from .trees import MIB, content, make_directory, set_times, write_file

MANY = 12
FOREIGN = 5  # the directory with another user's file
_NAMED = ((OWNER, 6, NOBODY), (USER, 4, 1001), (OWNING_GROUP, 4, NOBODY), (MASK, 4, NOBODY))
_LIST = pack((*_NAMED, (OTHER, 0, NOBODY)))
MIDDLE = b"f2"
P = PreservedAttributes(mode=True, ownership=True, timestamps=True, acl=True, links=True)
ALL = PreservedAttributes(
    mode=True, ownership=True, timestamps=True, xattr=True, acl=True, links=True, flags=True,
    special=True,
)  # fmt: skip
KEEPS = {"none": PreservedAttributes(), "-p": P, "-a": ALL}


def _hard_link(directory: bytes) -> None:
    os.link(directory + b"/f1", directory + b"/" + MIDDLE)


def _chunks(directory: bytes) -> None:
    write_file(directory + b"/" + MIDDLE, content("large", 5 * MIB + 1))


def _two_reads(directory: bytes) -> None:
    write_file(directory + b"/" + MIDDLE, content("larger", 200_000))


def _holes(directory: bytes) -> None:
    with open(directory + b"/" + MIDDLE, "xb") as stream:
        stream.truncate(100_000)


def _link(directory: bytes) -> None:
    os.symlink(b"f1", directory + b"/" + MIDDLE)


def _fifo(directory: bytes) -> None:
    os.mkfifo(directory + b"/" + MIDDLE)


def _directory(directory: bytes) -> None:
    write_file(make_directory(directory, MIDDLE) + b"/below", b"below")


def _seventy(directory: bytes) -> None:
    for number in range(70):
        write_file(directory + b"/n%d" % number, b"%d" % number)


def _nothing(directory: bytes) -> None:
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))


def _closed(directory: bytes) -> None:
    write_file(directory + b"/" + MIDDLE, b"for nobody", 0o000)
    os.chmod(directory, 0o500)


def _open_to_all(directory: bytes) -> None:
    os.chmod(directory, 0o1777)


def _attribute(directory: bytes) -> None:
    try:
        os.setxattr(directory, "user.name", b"value")
    except OSError as error:
        pytest.skip(f"no attributes here: {error}")


MET: dict[str, Callable[[bytes], None]] = {
    each.__name__[1:]: each
    for each in (
        _hard_link, _chunks, _two_reads, _holes, _link, _fifo, _directory, _seventy, _nothing,
        _closed, _open_to_all, _attribute,
    )
}  # fmt: skip


def _build(root: bytes, met: Callable[[bytes], None] | None) -> bytes:
    """Build directories of five files, in some of which a special case is `met`."""
    for number in range(MANY):
        directory = make_directory(root, b"top", b"d%d" % number)
        for file in range(5):
            if file != 2 or met is None or number % 3:
                write_file(directory + b"/f%d" % file, content(file, 1000 * file), 0o640)
        if met is not None and not number % 3:
            met(directory)
    if not os.geteuid():  # the owner is not the copying user
        os.chown(root + b"/top/d%d/f2" % FOREIGN, 1001, 1002)
    set_times(root)
    return root


def _run(
    source: bytes, target: bytes, keep: PreservedAttributes, *, walked: bool, resume: bool = False
) -> dict[str, Any]:
    log = target + b".log"
    copy_here(
        [source], target, exact=True, keep=keep, chunk_bytes=4 * MIB, jobs=1, transport="local",
        json=os.fsdecode(target + b".json"), error_log=os.fsdecode(log), quiet=True,
        checkpoint=CheckpointOptions(resume=resume),
        filters=(("exclude", b"/no such name"),) if walked else (),
    )  # fmt: skip
    return document(target + b".json")


def _counts(result: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of entries and bytes, without time and processes."""
    return {
        name: value
        for name, value in result.items()
        if isinstance(value, int | list) and name not in ("ranks",) and "_s" not in name[-3:]
    }


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the path of a directory independent of the time that another one took."""
    monkeypatch.setattr(walker, "_ITEM_S", 3600.0)
    monkeypatch.setattr(walker, "_SMALL_BATCH_S", 1e9)
    monkeypatch.setattr(small_directories, "_MAX_NS", 3600 * 10**9)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the directories that were completed, begun, and left to the walk."""
    seen: Counter[str] = Counter()
    process, copy = Walker._process_batches, SmallDirectoryCopier.copy

    def watched(
        self: Walker[PartialResult], above: Any, names: list[bytes], *more: Any
    ) -> tuple[list[bytes], list[bytes]]:
        later, left = process(self, above, names, *more)
        seen["left"] += len(left)
        seen["done"] += len(names) - len(left) - len(later)
        return later, left

    def copies(self: SmallDirectoryCopier, above: Any, batch: DirectoryBatch, go_on: Any) -> Any:
        def goes_on(name: bytes, what: PartialDirectory | OSError) -> None:
            seen["begun"] += 1
            seen["done"] -= 1
            go_on(name, what)

        return copy(self, above, batch, goes_on)

    monkeypatch.setattr(Walker, "_process_batches", watched)
    monkeypatch.setattr(SmallDirectoryCopier, "copy", copies)
    return seen


@pytest.mark.parametrize("keep", KEEPS.values(), ids=list(KEEPS))
@pytest.mark.parametrize("met", MET.values(), ids=list(MET))
def test_both_ways_have_the_same_copies_and_counts(
    met: Callable[[bytes], None], keep: PreservedAttributes, place: bytes, ways: Counter[str]
) -> None:
    source = _build(place + b"/source", met)
    done = _run(source, place + b"/short", keep, walked=False)
    assert ways["done"] >= MANY - MANY // 3 - 1  # the walk measures how long the first takes
    taken = sum(ways.values())
    full = _run(source, place + b"/full", keep, walked=True)
    assert sum(ways.values()) == taken
    assert _counts(done) == _counts(full)
    compared = METADATA if keep.timestamps else CONTENT
    special = met is _fifo and not keep.special
    if not special:
        assert differences(source, place + b"/short", compared) == []
    assert differences(place + b"/full", place + b"/short", compared - {"times"}) == []


# Calls that fail for a directory or its middle file, and whether an error is reported.
HIT = {
    "open the source": (Rule(("open",), "s/top/d4/f2"), True),
    "look at the source": (Rule(("fstat",), "s/top/d4/f2"), True),
    "read the source": (Rule(("read", "readv"), "s/top/d4/f2"), True),
    "ask for its list": (Rule(("getxattr", "listxattr"), "s/top/d4/f2"), True),
    "create the copy": (Rule(("open",), "t/top/d4/f2"), True),
    "write the copy": (Rule(("write",), "t/top/d4/f2"), True),
    "give the copy its owner": (Rule(("chown",), f"t/top/d{FOREIGN}/f2"), True),
    "give the copy its times": (Rule(("utime",), "t/top/d4/f2"), True),
    "close the copy": (Rule(("close",), "t/top/d4/f2"), True),
    "write the copy, once": (Rule(("write",), "t/top/d4/f2", times=1), False),
    "scan the source": (Rule(("lseek", "scandir"), "s/top/d4"), True),
    "scan the source, once": (Rule(("lseek", "scandir"), "s/top/d4", times=1), False),
    "list what the directory has": (Rule(("listxattr",), "s/top/d4"), True),
    "make the directory": (Rule(("mkdir",), "t/top/d4"), True),
    "make the directory, once": (Rule(("mkdir",), "t/top/d4", times=1), False),
    "open the directory": (Rule(("open",), "t/top/d4"), True),
    "give the directory its mode": (Rule(("chmod",), "t/top/d4"), True),
    "give the directory its times": (Rule(("utime",), "t/top/d4"), True),
    # Afterwards it is only looked up for its record, which is optional.
    "look at the directory when it is done": (Rule(("fstat",), "t/top/d4", skip=1), False),
}


@pytest.mark.faults
@pytest.mark.parametrize("hit", HIT.values(), ids=list(HIT))
def test_a_failure_is_that_of_its_entry_alone(
    hit: tuple[Rule, bool], place: bytes, ways: Counter[str]
) -> None:
    rule, tells = hit
    source, target = _build(place + b"/s", None), place + b"/t"
    rules = [rule._replace(path=os.path.join(os.fsdecode(place), rule.path), errno="EIO")]
    before = len(os.listdir("/proc/self/fd"))
    with faults(rules):
        short = _run(source, target, P, walked=False)
    assert ways["done"] >= MANY - 2
    named = verdict.named(target + b".log") if tells else set()
    assert named == ({os.fsencode(rule.path[2:])} if tells else set())
    assert verdict.unexplained(verdict.differing(source, target, preserved=True), named) == []
    assert verdict.leftovers(target) == []
    assert len(os.listdir("/proc/self/fd")) == before
    shutil.rmtree(target)
    with faults(rules if tells else []):
        full = _run(source, target, P, walked=True)
    assert _counts(short) == _counts(full)


def test_unsupported_attributes_are_reported_after_a_resume(
    place: bytes, ways: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of the first names of interrupted directories, none of which is plain, have them."""
    source, target = _build(place + b"/s", None), place + b"/t"
    tree = os.fsdecode(source)
    shutil.copytree(tree + "/top", tree + "/another")
    for number in range(MANY):
        for top, file in product((b"top", b"another"), range(5)):
            give(source + b"/%b/d%d/f%d" % (top, number, file), ACCESS, _LIST)
    holds_none = Rule(("setxattr",), os.fsdecode(target) + "/*", errno="EOPNOTSUPP")
    # Two items; the first, whichever it is, completes.
    monkeypatch.setattr(walker, "_FIRST_ITEM_S", 0.0)
    full = Rule(("open",), os.fsdecode(target) + "/*/d4/*", skip=5 + 2, errno="ENOSPC")
    before = len(os.listdir("/proc/self/fd"))
    with faults([holds_none, full]):
        stopped = _run(source, target, P, walked=False)
    assert stopped["exit_code"] == 4
    assert ways["begun"] > 1
    assert len(os.listdir("/proc/self/fd")) == before
    with faults([holds_none]):
        ended = _run(source, target, P, walked=False, resume=True)
    assert ended["exit_code"] == 0
    assert ended["resumed"] > 0
    assert ended["not_kept"] == {"access control lists": 2 * MANY * 5}


def test_a_small_directory_is_not_walked(place: bytes) -> None:
    """A directory of four files needs few function calls, each a tenth of a microsecond.

    On a busy machine the walk ends items sooner, by the clock, so the minimum of several runs
    counts.
    """
    sources = place + b"/100", place + b"/300"
    for source in sources:
        for directory in range(int(os.path.basename(source))):
            made = make_directory(source, b"top", b"%d" % directory)
            for file in range(4):
                write_file(made + b"/%d" % file, b"")
    few, many = (
        min(_functions_called(source, b"%b copy %d" % (source, run)) for run in range(5))
        for source in sources
    )
    # Where files are copied in Python there are twenty functions more. The walk needs 40 more in
    # either case.
    assert (many - few) / 200 <= (75 if native.is_native else 115)


def _functions_called(source: bytes, target: bytes) -> int:
    """Return the number of Python function calls of a copy."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    threading.setprofile(count)
    try:
        _run(source, target, P, walked=False)
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return calls
