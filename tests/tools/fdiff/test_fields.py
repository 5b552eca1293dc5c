"""Each single difference is found, and only with its field."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Callable

import pytest

from tests.programs import required
from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, TWO

from .running import as_root, differing, document, run_fdiff, twin

__all__ = ["place"]

pytestmark = as_root

_TIME_NS = 1_600_000_000 * 10**9 + 123_456_789
_SPARSE_BYTES = 4 << 20


def _make(top: bytes) -> bytes:
    """Create an entry of each type in a directory, all with the same times."""
    inner = trees.make_directory(top, b"inner")
    trees.write_file(inner + b"/file", b"content")
    trees.write_file(inner + b"/other", b"content")
    os.symlink(b"file", inner + b"/link")
    os.mkfifo(inner + b"/fifo")
    os.mknod(inner + b"/device", 0o020600, os.makedev(1, 3))
    trees.write_file(inner + b"/one", b"linked")
    os.link(inner + b"/one", inner + b"/two")
    trees.write_file(inner + b"/three", b"linked")
    with open(inner + b"/sparse", "wb") as stream:
        stream.seek(_SPARSE_BYTES - 1)
        stream.write(b"x")
    still(top)
    return top


def still(top: bytes) -> None:
    """Set all times in a tree to the same value."""
    for directory, names, files in os.walk(top, topdown=False):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            os.utime(path, ns=(_TIME_NS, _TIME_NS), follow_symlinks=False)
    os.utime(top, ns=(_TIME_NS, _TIME_NS))


@pytest.fixture(name="pair")
def _pair(place: bytes) -> tuple[bytes, bytes]:
    a = _make(trees.make_directory(place, b"a"))
    return a, twin(a, place + b"/b")


def _touch(path: bytes) -> None:
    os.utime(path, ns=(_TIME_NS, _TIME_NS + 1), follow_symlinks=False)


def _rewrite(path: bytes, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)


def _flag(path: bytes) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, 0x40086602, struct.pack("i", 0x40))  # without a dump
    except OSError as error:
        pytest.skip(f"no inode flags here: {error.strerror}")
    finally:
        os.close(fd)


def _list(path: bytes, *options: str) -> None:
    done = subprocess.run([required("setfacl"), *options, "-m", "u:1234:r", path], check=False)
    if done.returncode:
        pytest.skip("no access control lists here")


def _attribute(path: bytes) -> None:
    try:
        os.setxattr(path, "user.colour", b"blue", follow_symlinks=False)
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error.strerror}")


def _relink(inner: bytes, name: bytes, other: bytes) -> None:
    os.unlink(inner + b"/" + name)
    os.link(inner + b"/" + other, inner + b"/" + name)


def _replaced(path: bytes, make: Callable[[bytes], object]) -> None:
    os.unlink(path)
    make(path)


def _fill(path: bytes) -> None:
    with open(path, "r+b") as stream:
        stream.seek(1 << 20)
        stream.write(bytes(1 << 20))


def _regroup(inner: bytes) -> None:
    _relink(inner, b"three", b"one")
    _replaced(inner + b"/two", lambda path: trees.write_file(path, b"linked"))


# The change in B's inner directory; the lines; the field.
INJECTED: dict[str, tuple[Callable[[bytes], object], list[str], str]] = {
    "kind": (lambda d: _replaced(d + b"/file", os.mkfifo), [">f+++++++++,kind inner/file"], "kind"),
    "kind of a link": (
        lambda d: _replaced(d + b"/link", os.mkdir), ["cL+++++++++,kind inner/link"], "kind"),
    "size": (lambda d: _rewrite(d + b"/file", b"contents"), [">fcs....... inner/file"], "size"),
    "mtime": (lambda d: _touch(d + b"/file"), [">f..t...... inner/file"], "mtime"),
    "mtime of a link": (lambda d: _touch(d + b"/link"), [".L..t...... inner/link"], "mtime"),
    "mode": (lambda d: os.chmod(d + b"/file", 0o4644), [".f...p..... inner/file"], "mode"),
    "mode of a fifo": (lambda d: os.chmod(d + b"/fifo", 0o611), [".S...p..... inner/fifo"], "mode"),
    "owner": (lambda d: os.chown(d + b"/file", 9, -1), [".f....o.... inner/file"], "owner"),
    "owner of a link": (
        lambda d: os.lchown(d + b"/link", 9, -1), [".L....o.... inner/link"], "owner"),
    "group": (lambda d: os.chown(d + b"/file", -1, 9), [".f.....g... inner/file"], "group"),
    "owner of a directory": (lambda d: os.chown(d, 9, -1), [".d....o.... inner/"], "owner"),
    "target": (
        lambda d: _replaced(d + b"/link", lambda path: os.symlink(b"gone", path)),
        ["cLc........ inner/link"], "target"),
    "content": (
        lambda d: _rewrite(d + b"/file", b"konzept"), [">fc........ inner/file"], "content"),
    "links, more": (
        lambda d: _relink(d, b"three", b"one"), ["hf.........,links inner/two"], "links"),
    "links, fewer": (
        lambda d: _replaced(d + b"/two", lambda path: trees.write_file(path, b"linked")),
        ["hf.........,links inner/two"], "links"),
    "links, others": (
        _regroup,
        ["hf.........,links inner/three", "hf.........,links inner/two"], "links"),
    "xattr": (lambda d: _attribute(d + b"/file"), [".f........x inner/file"], "xattr"),
    "xattr of a directory": (_attribute, [".d........x inner/"], "xattr"),
    "acl": (lambda d: _list(d + b"/file"), [".f.......a. inner/file"], "acl"),
    "default acl": (lambda d: _list(d, "-d"), [".d.......a. inner/"], "acl"),
    "holes": (lambda d: _fill(d + b"/sparse"), [".f.........,holes inner/sparse"], "holes"),
    "flags": (lambda d: _flag(d + b"/file"), [".f.........,flags inner/file"], "flags"),
    "rdev": (
        lambda d: _replaced(d + b"/device", lambda path: os.mknod(
            path, 0o020600, os.makedev(1, 5))), ["cDc........ inner/device"], "rdev"),
}  # fmt: skip


@pytest.mark.parametrize("name", INJECTED)
def test_each_single_difference_is_found(pair: tuple[bytes, bytes], name: str) -> None:
    a, b = pair
    change, lines, field = INJECTED[name]
    assert differing(ONE, "--fields=all", a, b, code=0) == []
    change(b + b"/inner")
    if field != "mtime":
        still(b)
    extra = [line for line in lines if name == "links, more"]
    if extra:  # the other side determines which of three names is the odd one
        assert differing(TWO, "--fields=all", a, b) in (lines, ["hf.........,links inner/three"])
    else:
        assert differing(TWO, "--fields=all", a, b) == lines
    without = f"--ignore={field}" + ",content" * (field == "size")
    assert differing(TWO, "--fields=all", without, a, b, code=0) == []
    assert differing(TWO, f"--fields={field}", a, b) != []
    counts = document(ONE, f"--fields={field}", a, b)["counts"]
    assert counts["different"] == counts[f"different_{field}"] == len(lines)


@pytest.mark.parametrize("field", ["atime", "ctime"])
def test_times_compared_on_request(pair: tuple[bytes, bytes], field: str) -> None:
    a, b = pair
    os.utime(b + b"/inner/file", ns=(_TIME_NS + 5, _TIME_NS))
    shown = {"atime": ".f......u.. inner/file", "ctime": ".f.........,ctime inner/file"}
    assert shown[field] in differing(ONE, f"--fields={field}", a, b)
    assert differing(ONE, a, b, code=0) == []


@pytest.mark.parametrize("side", [0, 1])
def test_missing_entries(pair: tuple[bytes, bytes], side: int) -> None:
    """A directory is named once, or with -i with its contents."""
    letter, lacking = "AB"[side], pair[1 - side]
    subprocess.run(["rm", "-r", lacking + b"/inner"], check=True)
    still(lacking)
    line = f"+{letter}d++++++++ inner/"
    assert differing(TWO, *pair) == [line]
    every = differing(TWO, "-i", *pair)
    assert len(every) == 10
    assert line in every
    assert f"+{letter}D++++++++ inner/device" in every
    one_sided = ["--one-sided", "-i"]
    assert differing(TWO, *one_sided, *pair, code=3 * (side == 0)) == every * (side == 0)
    counts = document(TWO, "-i", *pair)["counts"]
    assert counts[("only_a", "only_b")[side]] == 10


def test_directories_of_differing_types_are_listed(place: bytes) -> None:
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    trees.write_file(trees.make_directory(a, b"x") + b"/in", b"1")
    trees.write_file(b + b"/x", b"2")
    os.symlink(b"nowhere", a + b"/y")
    trees.write_file(trees.make_directory(b, b"y", b"z") + b"/in", b"1")
    still(a)
    still(b)
    short = ["cL+++++++++,kind y", "cd+++++++++,kind x/"]
    assert differing(TWO, a, b) == short
    more = ["+Af++++++++ x/in", "+Bd++++++++ y/z/", "+Bf++++++++ y/z/in"]
    assert differing(TWO, "-i", a, b) == sorted([*short, *more])


def test_two_files(place: bytes) -> None:
    a = trees.write_file(place + b"/one", b"same")
    b = trees.write_file(place + b"/two", b"same")
    for path in (a, b):
        os.utime(path, ns=(1, 1))
    assert differing(ONE, "-c", a, b, code=0) == []
    _rewrite(b, b"else")
    assert differing(ONE, "-c", "--ignore=mtime", a, b) == [f">fc........ {os.fsdecode(a)}"]
    os.truncate(a, 40 << 20)
    os.truncate(b, 40 << 20)
    with open(b, "r+b") as stream:
        stream.write(b"same")
        stream.seek(35 << 20)
        stream.write(b"x")
    assert differing(TWO, "-c", "--ignore=mtime", a, b) == [f">fc........ {os.fsdecode(a)}"]
    refused = run_fdiff(ONE, a, place)
    assert refused.code == 2
    assert b"is a directory" in refused.err


@pytest.mark.parametrize("at", [0, 5 << 20, (96 << 20) - 1])
def test_large_files_are_compared_to_their_last_byte(place: bytes, at: int) -> None:
    """Both sides have holes; a hole equals zeros."""
    a, b = (trees.make_directory(place, name) for name in (b"a", b"b"))
    for top in (a, b):
        with open(top + b"/large", "wb") as stream:
            stream.truncate(96 << 20)
            stream.seek(50 << 20)
            stream.write(b"data" * 1000)
    with open(a + b"/large", "r+b") as stream:
        stream.seek(60 << 20)
        stream.write(bytes(8 << 20))
    for top in (a, b):
        still(top)
    assert differing(TWO, "-c", a, b, code=0) == []
    with open(b + b"/large", "r+b") as stream:
        stream.seek(at)
        stream.write(b"!")
    still(b)
    assert differing(TWO, a, b, code=0) == []
    assert differing(TWO, "-c", a, b) == [">fc........ large"]


def test_times_within_a_window(pair: tuple[bytes, bytes]) -> None:
    a, b = pair
    os.utime(b + b"/inner/file", ns=(_TIME_NS, _TIME_NS + 10**9))
    assert differing(ONE, a, b) == [">f..t...... inner/file"]
    assert differing(ONE, "--modify-window=0.5", a, b) == [">f..t...... inner/file"]
    assert differing(ONE, "--modify-window=1", a, b, code=0) == []


def test_owners_by_name(pair: tuple[bytes, bytes]) -> None:
    """Owners without a name are compared by number."""
    a, b = pair
    os.chown(b + b"/inner/file", 54321, -1)
    assert differing(ONE, "--ids=names", a, b) == [".f....o.... inner/file"]
    os.chown(a + b"/inner/file", 54321, -1)
    assert differing(ONE, "--ids=names", a, b, code=0) == []
