"""The contract of the C module and its Python equivalent: each test runs with both."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from pcircle.fs import native
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS
from pcircle.fs.native import interface, libc, pure
from tests import system_calls
from tests.contract.native.tracing import traced

FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
ALL = interface.KEEP_MODE | interface.KEEP_OWNER | interface.KEEP_TIMES
FOREVER = 1 << 62
MAX_BYTES = 128 << 10


@pytest.fixture(params=["C", "Python", "Python without statx"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the C module, then its equivalent, and that with a C library that has no statx."""
    if request.param == "Python without statx":
        monkeypatch.setattr(libc, "status_rows", lambda: None)
    if request.param != "C":
        return pure
    if not native.is_native:
        pytest.skip(f"the C module is not used: {native.reason}")
    return native.module


class Sides(NamedTuple):
    """Two directories, by path and open."""

    source: Path
    target: Path
    source_fd: int
    target_fd: int

    def file(self, name: str | bytes, data: bytes, mode: int = 0o640) -> Path:
        """Create a file in the source."""
        path = self.source / os.fsdecode(name)
        path.write_bytes(data)
        path.chmod(mode)
        os.utime(path, ns=(10**18 + 1, 10**18 + 2))
        return path


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    paths = tmp_path / "source", tmp_path / "target"
    fds = []
    for path in paths:
        path.mkdir()
        fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    yield Sides(*paths, *fds)
    for fd in fds:
        os.close(fd)


def copied(module: ModuleType, sides: Sides, *names: bytes, **given: Any) -> list[int]:
    """Copy, and return the outcome of each name."""
    result, _ = copied_with_contents(module, sides, *names, **given)
    return native.numbers(result)


def copied_with_contents(
    module: ModuleType, sides: Sides, *names: bytes, **given: Any
) -> tuple[bytes, bytes]:
    arguments = {
        "flags": FLAGS,
        "creation_bits": 0o777,
        "keep": 0,
        "inode_flags": 0,
        "ignored": IGNORED,
        "max_links": 1,
        "max_bytes": MAX_BYTES,
        "max_range_bytes": 0,
        "source_device": os.fstat(sides.source_fd).st_dev,
        "owner": -1,
        "group": -1,
        "until_ns": FOREVER,
        "contents_bytes": 0,
    }
    arguments |= given
    result: tuple[bytes, bytes] = module.copy_files(
        sides.source_fd, sides.target_fd, list(names), *arguments.values()
    )
    return result


def test_copies_have_content_and_preserved_attributes(module: ModuleType, sides: Sides) -> None:
    for name, size in ((b"empty", 0), (b"small", 1), (b"middle", 40_000), (b"most", MAX_BYTES)):
        sides.file(name, os.urandom(size), 0o4711)
    names = [b"empty", b"small", b"middle", b"most"]
    sizes = copied(module, sides, *names, keep=ALL, creation_bits=0)
    assert sizes == [0, 1, 40_000, MAX_BYTES]
    for text in map(os.fsdecode, names):
        old, new = (sides.source / text).stat(), (sides.target / text).stat()
        assert (sides.source / text).read_bytes() == (sides.target / text).read_bytes()
        assert (new.st_mode, new.st_uid, new.st_gid) == (old.st_mode, old.st_uid, old.st_gid)
        assert (new.st_atime_ns, new.st_mtime_ns) == (10**18 + 1, 10**18 + 2)


def test_without_preserved_modes_the_umask_applies(module: ModuleType, sides: Sides) -> None:
    sides.file(b"file", b"content", 0o666)
    before = os.umask(0o027)
    try:
        assert copied(module, sides, b"file") == [7]
    finally:
        os.umask(before)
    assert stat.S_IMODE((sides.target / "file").stat().st_mode) == 0o640
    assert (sides.target / "file").stat().st_mtime_ns != 10**18 + 2


def test_any_byte_may_be_in_a_name(module: ModuleType, sides: Sides) -> None:
    names = [b"-" + bytes([byte]) for byte in range(1, 256) if byte != ord("/")]
    names += [b"x" * 255, b"...", b".hidden", b"-rf", b"new\nline"]
    for name in names:
        sides.file(name, name)
    assert copied(module, sides, *names) == list(map(len, names))
    assert sorted(os.listdir(os.fsencode(sides.target))) == sorted(names)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/etc/passwd", b"a\0b"])
def test_invalid_names_are_refused_before_anything_is_done(
    module: ModuleType, sides: Sides, name: bytes
) -> None:
    sides.file(b"first", b"1")
    with pytest.raises(ValueError, match="name of an entry"):
        copied(module, sides, b"first", name)
    with pytest.raises(ValueError, match="name of an entry"):
        module.unlink_names(sides.source_fd, [b"first", name], False, FOREVER)
    assert os.listdir(sides.target) == []
    assert os.listdir(sides.source) == ["first"]


@pytest.mark.parametrize("names", [(b"first",), "first", [b"first", "text"], [b"first", None]])
def test_names_are_a_list_of_bytes(module: ModuleType, sides: Sides, names: Any) -> None:
    sides.file(b"first", b"1")
    with pytest.raises(TypeError):
        module.unlink_names(sides.source_fd, names, False, FOREVER)
    assert os.listdir(sides.source) == ["first"]


def _make(sides: Sides, kind: str) -> dict[str, Any]:
    """Create an entry that is not plain; return the arguments that a call needs for it."""
    path = sides.source / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "hole":
        sides.file(b"odd", b"")
        os.truncate(path, 100_000)
    elif kind == "large":
        sides.file(b"odd", bytes(MAX_BYTES + 1))
    elif kind == "names":
        os.link(sides.file(b"odd", b"1"), sides.source / "another")
    elif kind == "device":
        sides.file(b"odd", b"1")
        return {"source_device": os.fstat(sides.source_fd).st_dev + 1}
    elif kind == "attribute":
        sides.file(b"odd", b"1")
        try:
            os.setxattr(path, "user.some", b"value")
        except OSError:
            pytest.skip("this file system keeps no attributes")
        return {"keep": interface.KEEP_ATTRIBUTES}
    elif kind == "flag":
        sides.file(b"odd", b"1")
        if not shutil.which("chattr") or subprocess.run(["chattr", "+d", path]).returncode:
            pytest.skip("no inode flag can be set here")
        return {"inode_flags": USER_FLAGS}
    else:
        assert kind in ("list", "asked")
        sides.file(b"odd", b"1", 0o640)
        entries = [(1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 4, -1), (32, 0, -1)]
        value = b"\2\0\0\0" + b"".join(struct.pack("<HHi", *entry) for entry in entries)
        try:
            os.setxattr(path, "system.posix_acl_access", value)
        except OSError:
            pytest.skip("this file system keeps no access control lists")
        return {"keep": interface.KEEP_LISTS if kind == "list" else interface.ASK_LISTS}
    return {}


_KINDS = ["fifo", "directory", "hole", "large", "names", "device"]
_KINDS += ["attribute", "flag", "list", "asked"]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_special_entry_ends_the_call_and_leaves_nothing(
    module: ModuleType, sides: Sides, kind: str
) -> None:
    sides.file(b"first", b"1")
    sides.file(b"last", b"2")
    given = _make(sides, kind)
    first = [] if kind == "device" else [b"first"]
    found = copied(module, sides, *first, b"odd", b"last", **given)
    assert found == [*(1 for _ in first), interface.NOT_PLAIN, interface.UNTRIED]
    assert os.listdir(os.fsencode(sides.target)) == first


def test_files_without_attributes_are_plain(module: ModuleType, sides: Sides) -> None:
    sides.file(b"file", b"1")
    keep = ALL | interface.KEEP_LISTS | interface.KEEP_ATTRIBUTES | interface.ASK_LISTS
    assert copied(module, sides, b"file", keep=keep, inode_flags=USER_FLAGS) == [1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets trusted attributes")
def test_attributes_that_are_never_copied_are_ignored(module: ModuleType, sides: Sides) -> None:
    path = sides.file(b"file", b"1")
    try:
        os.setxattr(path, "trusted.lov", b"layout")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    assert copied(module, sides, b"file", keep=interface.KEEP_ATTRIBUTES, ignored=b"") == [
        interface.NOT_PLAIN
    ]
    assert copied(module, sides, b"file", keep=interface.KEEP_ATTRIBUTES) == [1]
    assert os.listxattr(sides.target / "file") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_an_ordinary_user_leaves_files_of_other_owners(module: ModuleType, sides: Sides) -> None:
    os.chown(sides.file(b"file", b"1", 0o644), 12, 12)
    os.chmod(sides.target, 0o777)
    pid = os.fork()
    if not pid:
        try:
            os.setegid(34)
            os.seteuid(34)
            found = copied(module, sides, b"file", keep=ALL, creation_bits=0)
            os._exit(0 if found == [interface.NOT_PLAIN] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.listdir(sides.target) == []


def test_content_of_a_seemingly_empty_file_is_found(module: ModuleType, sides: Sides) -> None:
    fd = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    try:
        proc = sides._replace(source_fd=fd)
        assert copied(module, proc, b"status") == [interface.NOT_PLAIN]
    finally:
        os.close(fd)
    assert os.listdir(sides.target) == []


@pytest.mark.parametrize("kind", ["link", "missing", "taken"])
def test_errors_are_reported_by_number(module: ModuleType, sides: Sides, kind: str) -> None:
    expected = {"link": errno.ELOOP, "missing": errno.ENOENT, "taken": errno.EEXIST}[kind]
    if kind == "link":
        sides.file(b"to", b"1")
        (sides.source / "odd").symlink_to("to")
    elif kind == "taken":
        sides.file(b"odd", b"new")
        (sides.target / "odd").write_bytes(b"old")
    assert copied(module, sides, b"odd", b"behind") == [-1 - expected, interface.UNTRIED]
    left = {path.name: path.read_bytes() for path in sides.target.iterdir()}
    assert left == ({"odd": b"old"} if kind == "taken" else {})


def test_a_link_in_the_target_is_never_followed(module: ModuleType, sides: Sides) -> None:
    sides.file(b"file", b"1")
    (sides.target / "file").symlink_to(sides.target / "elsewhere")
    assert copied(module, sides, b"file") == [-1 - errno.EEXIST]
    assert not (sides.target / "elsewhere").exists()


def test_an_unwritable_file_leaves_nothing(module: ModuleType, sides: Sides) -> None:
    """A partly written file is removed as well; the limit on file sizes stands for a full disk."""
    sides.file(b"small", bytes(1000))
    sides.file(b"odd", bytes(50_000))
    old, before = (
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        found = copied(module, sides, b"small", b"odd", keep=ALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert found[0] == 1000
    assert found[1] in (
        -1 - errno.EFBIG,
        interface.NOT_PLAIN,
    )  # remainder of a short write, or limit
    assert os.listdir(sides.target) == ["small"]


def test_remaining_names_are_left_after_the_time_limit(module: ModuleType, sides: Sides) -> None:
    for name in (b"1", b"2", b"3"):
        sides.file(name, b"content")
    assert copied(module, sides, b"1", b"2", b"3", until_ns=0) == [
        7,
        interface.UNTRIED,
        interface.UNTRIED,
    ]
    assert os.listdir(sides.target) == ["1"]
    result = module.unlink_names(sides.source_fd, [b"1", b"2", b"3"], False, time.monotonic_ns())
    assert native.numbers(result) == [0, interface.UNTRIED, interface.UNTRIED]


def test_contents_are_those_of_the_copies(module: ModuleType, sides: Sides) -> None:
    data = {b"%d" % number: os.urandom(1000 * number) for number in range(9)}
    for name, content in data.items():
        sides.file(name, content)
    result, contents = copied_with_contents(
        module, sides, *data, max_bytes=8000, contents_bytes=20_000
    )
    sizes = [size for size in native.numbers(result) if size != interface.UNTRIED]
    # Each file follows one for which there was room.
    assert sizes == [0, 1000, 2000, 3000, 4000, 5000]
    assert contents[: sum(sizes)] == b"".join(list(data.values())[: len(sizes)])


RANGE = {"max_bytes": 1000, "max_range_bytes": 200_000}


@pytest.mark.skipif(system_calls.is_missing("copy_file_range"), reason="no copy_file_range")
def test_the_kernel_copies_larger_files(module: ModuleType, sides: Sides) -> None:
    data = os.urandom(100_000)
    for name, size in ((b"small", 10), (b"large", 100_000), (b"larger", 200_001)):
        sides.file(name, (data * 3)[:size])
    assert copied(module, sides, b"small", b"large", b"larger", keep=ALL, **RANGE) == [
        *(10, 100_000, interface.NOT_PLAIN)
    ]
    made = sides.target / "large"
    assert made.read_bytes() == data
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    assert made.stat().st_mtime_ns == 10**18 + 2
    assert sorted(os.listdir(sides.target)) == ["large", "small"]


@pytest.mark.skipif(system_calls.is_missing("copy_file_range"), reason="no copy_file_range")
def test_a_file_that_the_kernel_does_not_copy_leaves_nothing(
    module: ModuleType, sides: Sides
) -> None:
    sides.file(b"large", bytes(100_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        found = copied(module, sides, b"large", **RANGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert found == [-1 - errno.EFBIG]
    assert os.listdir(sides.target) == []


def test_a_file_with_holes_is_left_to_the_caller(module: ModuleType, sides: Sides) -> None:
    os.truncate(sides.file(b"holes", b"1"), 100_000)
    assert copied(module, sides, b"holes", **RANGE) == [interface.NOT_PLAIN]


_WRONG = (
    *({"max_bytes": -1}, {"max_bytes": 2 << 20}, {"contents_bytes": 5}, {"max_range_bytes": -1}),
    {"max_range_bytes": 1, "contents_bytes": MAX_BYTES + 1},
)


@pytest.mark.parametrize("given", _WRONG, ids=str)
def test_impossible_sizes_are_refused(
    module: ModuleType, sides: Sides, given: dict[str, int]
) -> None:
    sides.file(b"file", b"1")
    with pytest.raises(ValueError, match="max"):
        copied(module, sides, b"file", **given)
    assert os.listdir(sides.target) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_owners_are_set_and_correct_attributes_stay(module: ModuleType, sides: Sides) -> None:
    for name, owner in ((b"ours", 0), (b"others", 12), (b"set", 0)):
        path = sides.file(name, b"1")
        os.chown(path, owner, owner)
        path.chmod(0o4755 if name == b"set" else 0o754)
    names = b"ours", b"others", b"set"
    assert copied(module, sides, *names, keep=ALL, creation_bits=0, owner=0, group=0) == [1, 1, 1]
    for text in map(os.fsdecode, names):
        old, new = (sides.source / text).stat(), (sides.target / text).stat()
        assert (new.st_mode, new.st_uid, new.st_gid) == (old.st_mode, old.st_uid, old.st_gid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_wrong_guess_of_the_owner_is_corrected(module: ModuleType, sides: Sides) -> None:
    os.chown(sides.file(b"file", b"1"), 12, 12)
    assert copied(module, sides, b"file", keep=ALL, creation_bits=0, owner=12, group=12) == [1]
    new = (sides.target / "file").stat()
    assert (new.st_uid, new.st_gid, stat.S_IMODE(new.st_mode)) == (12, 12, 0o640)


def test_names_are_removed_and_errors_reported(module: ModuleType, sides: Sides) -> None:
    sides.file(b"file", b"1")
    (sides.source / "link").symlink_to("/nowhere")
    (sides.source / "directory").mkdir()
    (sides.source / "full").mkdir()
    (sides.source / "full" / "inner").touch()
    names = [b"file", b"missing", b"link", b"directory"]
    found = native.numbers(module.unlink_names(sides.source_fd, names, False, FOREVER))
    assert found[:3] == [0, -1 - errno.ENOENT, 0]
    assert found[3] in (-1 - errno.EISDIR, -1 - errno.EPERM)
    result = module.unlink_names(sides.source_fd, [b"directory", b"full"], True, FOREVER)
    assert native.numbers(result) == [0, -1 - errno.ENOTEMPTY]
    assert os.listdir(sides.source) == ["full"]


@pytest.mark.skipif(system_calls.is_missing("openat2"), reason="there is no openat2")
def test_entries_of_other_mounts_are_not_beneath(module: ModuleType, sides: Sides) -> None:
    (sides.source / "inner" / "below").mkdir(parents=True)
    top = os.open("/", os.O_RDONLY | os.O_DIRECTORY)

    def counts(fd: int, name: bytes, device: int, *, beneath: bool) -> list[int]:
        how = FLAGS | os.O_DIRECTORY, device, 0xFFFF, 1000, 1000, 0, False, 0, beneath, False
        return native.numbers(module.scan_directories(fd, [name], *how, FOREVER)[0])

    device = os.stat("/proc/self").st_dev
    found = counts(top, b"proc", device, beneath=True)
    os.close(top)
    assert found == [-1 - errno.EXDEV]
    for beneath in (False, True):
        device = os.fstat(sides.source_fd).st_dev
        assert counts(sides.source_fd, b"inner", device, beneath=beneath) == [1]


def test_neither_descriptors_nor_memory_are_lost(module: ModuleType, sides: Sides) -> None:
    names = [b"%d" % number for number in range(20)]
    for name in names:
        sides.file(name, b"1")
    os.mkfifo(sides.source / "odd")
    before = os.listdir("/proc/self/fd")

    def once() -> None:
        copied(module, sides, *names, b"odd", max_bytes=1000, contents_bytes=3000, keep=ALL)
        copied(module, sides, *names, b"odd")  # already exists
        module.unlink_names(sides.target_fd, names, False, FOREVER)

    for _ in range(20):
        once()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500 if module is native.module else 50):
        once()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1024
    assert os.listdir("/proc/self/fd") == before


CALLS = "openat,fchown,fchmod,utimensat,unlinkat,write,close"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.skipif(not native.is_native, reason="there is one module only")
@pytest.mark.parametrize("keep", [0, ALL])
def test_both_make_the_same_calls_in_the_same_order(sides: Sides, keep: int) -> None:
    for number in range(5):
        sides.file(b"%d" % number, bytes(100 * number), 0o4750 if number == 3 else 0o640)
    sides.file(b"taken", b"1")
    (sides.target / "taken").touch()
    program = f"""
import os, sys
from pcircle.fs import native
source, target = (os.open(path, os.O_RDONLY) for path in sys.argv[1:])
device = os.fstat(source).st_dev
names = [b"0", b"1", b"2", b"3", b"4", b"taken"]
how = {FLAGS}, 0o777, {keep}, 0, b"", 1, 250, 9000, device, 0, 0, 1 << 62, 0
native.copy_files(source, target, [], *how)  # which imports what it needs
os.write(2, b"begin")
native.copy_files(source, target, names, *how)
native.unlink_names(target, names[:5], False, 1 << 62)
os.write(2, b"end")
"""
    logs = []
    for used in "10":
        for path in sides.source.iterdir():  # the previous run has read them
            os.utime(path, ns=(10**18 + 1, 10**18 + 2))
        logs.append(traced(program, (sides.source, sides.target), CALLS, used))
    assert len(logs[0]) > 20
    assert logs[0] == logs[1]
