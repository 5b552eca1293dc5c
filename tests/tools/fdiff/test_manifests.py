"""A manifest represents the tree from which it was made, on either side or both."""

from __future__ import annotations

import os
import random
import stat

import pytest

from pcircle.core.errors import StoppedEarly
from pcircle.ops.compare.fields import SIZE
from pcircle.ops.compare.manifests import open_verified
from pcircle.tools.fdiff.plan import DiffCounters, DiffPlan
from pcircle.tools.fdiff.reporter import DiffReporter
from pcircle.tools.fdiff.work.manifests import compare_manifests
from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, TWO, Launcher, Run

from .running import differing, document, every_launcher, run_fdiff, twin

__all__ = ["place"]

# Seconds away from all times in the tree, some of which are 0: times that differ only in their last
# digits count as equal where the file's other times suggest a coarser clock.
_OTHER_NS = 1_005_000_000_005
_KNOWN = "--fields=kind,size,mtime,target,rdev"


def _signed(tree: bytes, manifest: bytes, *options: str) -> bytes:
    with Run(
        TWO, "-q", *options, "--force", "-o", manifest, tree, program=("pcircle.tools.fsum",)
    ) as run:
        assert run.finish().code == 0
    return manifest


class Direct:
    """A replacement of an item's context."""

    def note(self, notices: object) -> None:
        """Ignore notices."""


def test_two_manifests_are_compared_until_the_time_limit(place: bytes) -> None:
    """Rank 0 compares them alone after the job, so it checks the time itself."""
    a = trees.make_directory(place, b"a")
    for number in range(3000):
        os.mknod(a + b"/%d" % number)
    b = twin(a, place + b"/b")
    for number in range(3000):
        os.truncate(b + b"/%d" % number, 1)
    old, new = (open_verified(_signed(side, side + b".manifest")) for side in (a, b))
    plan = DiffPlan(roots=(), directory=b"", fields=SIZE)
    asked: list[int] = []

    def check() -> None:
        asked.append(counters.found)
        if len(asked) == 3:
            raise StoppedEarly("it is over")

    counters = DiffCounters()
    notifier = DiffReporter(plan, counters, 0)
    with pytest.raises(StoppedEarly):
        compare_manifests(old, new, plan, notifier, counters, Direct(), check)
    assert len(asked) == 3
    assert asked[0] < asked[1] < asked[2] < 3000


@pytest.fixture(name="sides")
def _sides(place: bytes) -> dict[str, bytes]:
    """Create trees with many differences, and their manifests."""
    a, b = place + b"/a", place + b"/b"
    trees.build_odd_tree(a)
    os.mkfifo(a + b"/fifo")
    os.symlink(b"x", a + b"/to link")
    trees.write_file(trees.make_directory(a, b"gone", b"deeper") + b"/file", b"gone")
    twin(a, b)
    draw = random.Random(3)
    for directory, _, files, fd in os.fwalk(b, topdown=False):
        if len(directory) > 2000:
            continue
        for name in sorted(files):
            chance = draw.random()
            regular = stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
            if chance < 0.1:
                os.unlink(name, dir_fd=fd)
            elif chance < 0.2:
                os.utime(name, ns=(_OTHER_NS, _OTHER_NS), dir_fd=fd, follow_symlinks=False)
            elif chance < 0.4 and regular:
                before = os.stat(name, dir_fd=fd)
                with open(b"/proc/self/fd/%d/%b" % (fd, name), "r+b") as stream:
                    byte = stream.read(1)
                    stream.seek(0)
                    stream.write(bytes([byte[0] ^ 1]) if byte else b"")
                os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns), dir_fd=fd)
    os.unlink(b + b"/to link")
    os.symlink(b"y", b + b"/to link")
    os.unlink(b + b"/gone/deeper/file")
    os.rmdir(b + b"/gone/deeper")
    os.rmdir(b + b"/gone")
    trees.write_file(b + b"/gone", b"now a file")
    trees.write_file(trees.make_directory(b, b"more", b"deeper") + b"/file", b"more")
    made = {"a": a, "b": b}
    return made | {side.upper(): _signed(made[side], made[side] + b".manifest") for side in made}


@every_launcher
def test_a_manifest_replaces_its_tree(sides: dict[str, bytes], launcher: Launcher) -> None:
    for options in ([], ["-c"], ["-c", "-i"], ["-i", "--one-sided"]):
        expected = differing(ONE, _KNOWN, *options, sides["a"], sides["b"])
        assert len(expected) > 10
        for a, b in ("aB", "Ab", "AB"):
            found = differing(launcher, *options, sides[a], sides[b])
            assert found == expected, (a, b, options, set(found) ^ set(expected))
    assert document(launcher, "-c", "-i", sides["A"], sides["b"])["counts"]["different_content"]


def test_equal_manifests_give_no_output(sides: dict[str, bytes]) -> None:
    for pair in ("aA", "Aa", "AA", "bB", "Bb"):
        finished = run_fdiff(TWO, "-c", "-i", *(sides[side] for side in pair))
        assert (finished.code, finished.out, finished.err) == (0, b"", b""), pair


def test_patterns_apply_to_both_sides(sides: dict[str, bytes]) -> None:
    options = (_KNOWN, "-i", "--exclude=more", "--exclude=gone/", "--exclude=*a*")
    expected = differing(ONE, *options, sides["a"], sides["b"])
    assert differing(TWO, *options[1:], sides["a"], sides["B"]) == expected
    assert differing(TWO, *options[1:], sides["A"], sides["b"]) == expected


def test_refusals(sides: dict[str, bytes], place: bytes) -> None:
    with open(sides["A"], "r+b") as stream:
        stream.seek(200)
        stream.write(b"?")
    other = _signed(sides["a"], place + b"/other", "-a", "sha256")
    for arguments, said in (
        ((sides["A"], sides["b"]), b"line"),
        (("--fields=mode", sides["a"], sides["B"]), b"manifests do not record mode"),
        (("--moved", sides["a"], sides["B"]), b"--moved cannot be combined with a manifest"),
        (("--min-size=5", sides["a"], sides["B"]), b"cannot be combined with a manifest"),
        (("-c", other, sides["B"]), b"digests of sha256 and xxh128 cannot be compared"),
    ):
        finished = run_fdiff(ONE, *arguments)
        assert finished.code == 2, finished.said
        assert said in finished.err
    assert differing(ONE, "--fields=size", other, sides["B"])
