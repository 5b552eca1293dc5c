"""Hundreds of random fault maps over a mixed tree: nothing is lost or falsely claimed.

Each map makes some system calls fail, return short, or succeed at the second attempt, at entries of
the source, of the copy, or everywhere. Whatever the map: every entry of the source is copied or
reported as failed; exit code 0 only if nothing has failed; 4 only if the destination seemed full;
never 70; only affected entries are reported. A failing map is printed with its seed, which replays
it.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from tests.tools.fcp.running import copy_here

from ...fusefs.rules import Rule
from . import verdict
from .faulty import Faults, faults
from .trees import MIB, content, make_directory, set_times, write_file

MAPS = 320
PARTS = 8
FULL = ("ENOSPC", "EDQUOT", "EROFS")
ERRORS = ("EIO", "EACCES", "ESTALE", "EPERM", "ENOENT", "ENOMEM", "EINVAL", "EOPNOTSUPP", *FULL)
AT_SOURCE: tuple[str, ...] = (
    "open",
    "fstat",
    "stat",
    "read",
    "readv",
    "readlink",
    "scandir",
    "listxattr",
    "getxattr",
)
AT_SOURCE += ("close", "copy_file_range", "sendfile", "preadv", "lseek")
SHORTENED = ("read", "readv", "write", "pwrite", "sendfile", "copy_file_range", "preadv")
AT_TARGET: tuple[str, ...] = (
    "open",
    "fstat",
    "stat",
    "write",
    "pwrite",
    "mkdir",
    "mknod",
    "symlink",
    "link",
)
AT_TARGET += ("rename", "unlink", "chmod", "chown", "utime", "setxattr", "fsync", "ftruncate")
AT_TARGET += ("close", "copy_file_range", "sendfile", "fchmod", "listxattr", "getxattr")
# Places where a failure affects another entry, or none that could be reported.
ELSEWHERE = ("close", "unlink", "lseek", "scandir")
EVERYTHING = PreservedAttributes(
    mode=True, ownership=True, timestamps=True, xattr=True, acl=True, links=True, flags=True,
    special=True,
)  # fmt: skip


class Choice(NamedTuple):
    """The options of a run."""

    keep: PreservedAttributes
    existing: OverwriteOptions
    replaces: bool


def _build(root: bytes) -> bytes:
    make_directory(root)
    for size in (0, 1, 5000, 140_000):
        write_file(root + b"/%d" % size, content(size, size))
    for path in (b"a", b"a/b", b"empty", b"a/many"):
        make_directory(root, path)
    for number in range(6):
        write_file(root + b"/a/many/%d" % number, content(number, 100 * number), 0o640)
    write_file(root + b"/a/large", content("large", 4 * MIB + 4097))
    write_file(root + b"/a/b/first", b"of three names")
    os.link(root + b"/a/b/first", root + b"/a/second")
    os.link(root + b"/a/b/first", root + b"/third")
    with open(root + b"/a/sparse", "xb") as stream:
        stream.truncate(300_000)
        stream.seek(150_000)
        stream.write(b"island")
    os.symlink(b"a/large", root + b"/link")
    os.symlink(b"nowhere", root + b"/a/b/dangling")
    os.mkfifo(root + b"/a/fifo")
    write_file(root + b"/a/b/attributes", b"text")
    try:
        os.setxattr(root + b"/a/b/attributes", b"user.name", b"value")
    except OSError:  # not here: it is a plain file then
        assert not os.listxattr(root + b"/a/b/attributes")
    set_times(root)
    return root


@pytest.fixture(scope="session")
def tree(shared_place: bytes) -> bytes:
    return _build(shared_place + b"/mixed")


def _rules(draw: random.Random, source: bytes, target: bytes) -> list[Rule]:
    below = verdict.entries(source)
    rules = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        side, operations = draw.choice(((source, AT_SOURCE), (target, AT_TARGET)))
        path = draw.choice((*(os.path.join(side, entry) for entry in below if entry), side + b"/*"))
        if draw.random() < 0.1:
            path = target + b"*/.fcp-*"
        rule = Rule(
            (draw.choice(operations),),
            os.fsdecode(path),
            skip=draw.choice((0, 0, 0, 1, 2, 5)),
            times=draw.choice((1, 2, 1 << 62, 1 << 62)),
        )
        if draw.random() < 0.2:
            op = draw.choice(SHORTENED)
            rule = rule._replace(ops=(op,), at_most_bytes=draw.choice((0, 1000, 4096)))
        else:
            rule = rule._replace(errno=draw.choice(ERRORS))
        rules.append(rule)
    return rules


def _choice(draw: random.Random) -> Choice:
    keep = draw.choice(
        (
            PreservedAttributes(),
            PreservedAttributes(mode=True, ownership=True, timestamps=True),
            EVERYTHING,
        )
    )
    existing = draw.choice(
        (
            OverwriteOptions(),
            OverwriteOptions(),
            OverwriteOptions(sync=True),
            OverwriteOptions(in_place=True),
            OverwriteOptions(newer=True),
        )
    )
    return Choice(keep, existing, draw.random() < 0.3)


def _prepare(target: bytes) -> None:
    """Create older entries that are in the way of the source."""
    make_directory(target, b"a", b"many")
    for name in (b"5000", b"a/many/3", b"link", b"third"):
        write_file(os.path.join(target, name), b"old")
        os.utime(os.path.join(target, name), ns=(0, -(2**31) * 10**9))


def _judge(
    source: bytes, target: bytes, log: bytes, code: int, choice: Choice, rules: Sequence[Rule]
) -> str:
    """Return errors after a run; empty if there are none."""
    failed = verdict.named(log) if os.path.exists(log) else set()
    preserved = choice.keep.timestamps
    differing = verdict.differing(source, target, preserved=preserved)
    skipped = set() if choice.keep.special else {b"a/fifo"}
    unexplained = verdict.unexplained(differing, failed | skipped)
    if code == 2:
        return "" if not failed else "refused, but something was named"
    if code == 4:
        # A write that returns 0 counts as a full disk as well.
        if not any(rule.errno in FULL or rule.at_most_bytes == 0 for rule in rules):
            return "stopped, but nothing was full"
        bad = [] if choice.existing.in_place or choice.replaces else _torn(source, target, failed)
        return f"torn after a stop: {bad}" if bad else ""
    if code not in (0, 1):
        return f"exit code {code}"
    if unexplained:
        return f"different, but not named: {unexplained}"
    if (code == 1) != bool(failed):
        return f"exit code {code}, {len(failed)} named"
    return ""


def _torn(source: bytes, target: bytes, failed: set[bytes]) -> list[bytes]:
    """Return incomplete files under their final names."""
    differing = verdict.differing(source, target, preserved=False)
    return [
        entry
        for entry in verdict.unexplained(differing, failed)
        if os.path.lexists(os.path.join(target, entry))
    ]


def _innocent(source: bytes, target: bytes, log: bytes, made: Faults) -> set[bytes]:
    """Return reported entries for which no call, at them or at their directories, was affected."""
    hit = set()
    for path in made.hit:
        for side in (source, target):
            if path == side or path.startswith(side + b"/"):
                hit.add(path[len(side) + 1 :])
    suspects = verdict.named(log)
    return {entry for entry in suspects if not {entry, os.path.dirname(entry)} & hit}


def _run(seed: int, tree: bytes, place: bytes) -> str:
    draw = random.Random(seed)
    target, log = place + b"/%d" % seed, place + b"/%d.log" % seed
    choice, rules = _choice(draw), _rules(draw, tree, target)
    if choice.replaces:
        _prepare(target)
    try:
        with faults(rules) as made:
            code = copy_here(
                [tree], target, exact=True, keep=choice.keep, existing=choice.existing,
                chunk_bytes=4 * MIB, jobs=1, transport="local", error_log=os.fsdecode(log),
                quiet=True,
            )  # fmt: skip
        wrong = _judge(tree, target, log, code, choice, rules)
        exact = all("*" not in rule.path and rule.ops[0] not in ELSEWHERE for rule in rules)
        if not wrong and code == 1 and exact and all(rule.errno for rule in rules):
            innocent = _innocent(tree, target, log, made)
            wrong = f"named, but never hit: {innocent}" if innocent else ""
        if not wrong and code in (0, 1) and not {"unlink", "stat", "fstat"} & _ops(rules):
            left = verdict.leftovers(target)
            wrong = f"left behind: {left}" if left else ""
        return f"seed {seed}: {wrong}\n{choice}\n{rules}" if wrong else ""
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _ops(rules: Sequence[Rule]) -> set[str]:
    return {rule.ops[0] for rule in rules}


@pytest.mark.faults
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_or_falsely_claimed(
    part: int, tree: bytes, place: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for seed in range(part, MAPS, PARTS):
        verdict_text = _run(seed, tree, place)
        said = capfd.readouterr().err
        if verdict_text or "Traceback" in said:
            wrong.append(f"{verdict_text}\n{said}")
    assert not wrong, "\n\n".join(wrong[:5])


def test_the_tree_is_mixed(tree: bytes) -> None:
    """The maps can affect every type of entry."""
    kinds = {stat.S_IFMT(os.lstat(os.path.join(tree, e)).st_mode) for e in verdict.entries(tree)}
    assert kinds == {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO}


FOUND = {
    "a link's copy can't be asked for": (EVERYTHING, OverwriteOptions(), Rule(("stat",), "third")),
    "a large copy can't be closed": (
        PreservedAttributes(), OverwriteOptions(), Rule(("close",), "*.fcp-*", times=2),
    ),
    "writes write nothing": (
        PreservedAttributes(), OverwriteOptions(), Rule(("write",), "5000", at_most_bytes=0),
    ),
    "a new copy can't be asked for": (
        PreservedAttributes(mode=True), OverwriteOptions(), Rule(("chmod", "fstat"), "5000"),
    ),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("found", FOUND.values(), ids=list(FOUND))
def test_past_findings_of_maps(
    found: tuple[PreservedAttributes, OverwriteOptions, Rule], tree: bytes, place: bytes
) -> None:
    """These maps once caused a wrong end, an endless run, or leftover files."""
    keep, existing, rule = found
    target, log = place + b"/target", place + b"/log"
    pattern = os.path.join(os.fsdecode(target), rule.path)
    rule = rule._replace(path=pattern, errno="" if rule.at_most_bytes == 0 else "EIO")
    before = len(os.listdir("/proc/self/fd"))
    with faults([rule]):
        code = copy_here(
            [tree], target, exact=True, keep=keep, existing=existing, chunk_bytes=4 * MIB,
            jobs=1, transport="local", error_log=os.fsdecode(log), quiet=True,
        )  # fmt: skip
    assert code in (0, 1)
    assert _judge(tree, target, log, code, Choice(keep, existing, False), [rule]) == ""
    assert verdict.leftovers(target) == []
    assert len(os.listdir("/proc/self/fd")) == before
