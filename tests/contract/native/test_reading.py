"""The contract of the functions that list, look up, read and change, in C and in Python."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from pcircle.fs import native
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS
from pcircle.fs.native import interface, pure
from pcircle.fs.stats import StatusRow, Table
from tests import system_calls
from tests.contract.native.test_native import FLAGS, FOREVER, module
from tests.programs import required
from tests.strace import read_calls

__all__ = ["module"]

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ONLY_FILES = 1 << 8
ANY = 0xFFFF


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    """Create ten directories of four files each, of 0 to 3 bytes."""
    for number in range(10):
        folder = tmp_path / f"d{number}"
        folder.mkdir()
        for size in range(4):
            (folder / f"f{size}").write_bytes(b"x" * size)
    fd = os.open(tmp_path, DIRECTORY)
    yield fd
    os.close(fd)


def names(count: int) -> list[bytes]:
    return [b"d%d" % number for number in range(count)]


def scanned(
    module: ModuleType,
    top: int | list[int],
    wanted: list[bytes],
    *,
    kinds: int = ONLY_FILES,
    most: int = 4,
    room: int = 4096,
    looks: int = True,
    keeps: bool = False,
    parents: int = 0,
    sorts: bool = False,
    device: int = -1,
    until_ns: int = FOREVER,
) -> tuple[list[int], list[int], Table, list[bytes], bytes, Table]:
    """Scan directories: outcomes, descriptors, their table, names, kinds, and the names' table."""
    holder = top if isinstance(top, int) else top[0]
    device = os.fstat(holder).st_dev if device < 0 else device
    outcomes, fds, own, text, ends, types, table = module.scan_directories(
        top,
        wanted,
        DIRECTORY,
        device,
        kinds,
        most,
        room,
        looks,
        keeps,
        parents,
        False,
        sorts,
        until_ns,
    )
    inside = text.split(b"\0")[:-1]
    assert native.numbers(ends)[-1:] == ([len(text)] if own else [])
    return native.numbers(outcomes), fds, Table(own), inside, types, Table(table)


def test_every_column_matches_stat(module: ModuleType, tmp_path: Path, top: int) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    os.mknod(tmp_path / "fifo", stat.S_IFIFO | 0o600)
    os.utime(tmp_path / "fifo", ns=(-1_500_000_000, 2**33 * 10**9 + 7))
    wanted = [*names(3), b"link", b"fifo", b".", b".."]
    outcomes, data = module.stat_names(top, wanted, FOREVER)
    assert native.numbers(outcomes) == [0] * len(wanted)
    found = list(Table(data).rows(len(wanted)))
    for row, name in zip(found, wanted, strict=True):
        status = os.stat(name, dir_fd=top, follow_symlinks=False)
        assert row == StatusRow(*(getattr(status, field) for field in row.__struct_fields__))


def test_numbers_of_inodes_may_have_64_bits() -> None:
    more = dict.fromkeys(("st_blocks", "st_blksize", "st_rdev"), 0)
    more |= dict.fromkeys(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), 0)
    status = os.stat_result([stat.S_IFREG, (1 << 64) - 2, *[7] * 8], more)
    small = os.stat_result([stat.S_IFREG, 5, *[7] * 8], more)
    table = Table(pure.table([small, status, None]))
    assert table.column("inode", 0, 3) == [5, (1 << 64) - 2, 0]
    assert table.column("mode", 0, 3) == [stat.S_IFREG, stat.S_IFREG, 0]


def test_names_may_each_have_a_directory_of_their_own(module: ModuleType, top: int) -> None:
    fds = [os.open(name, DIRECTORY, dir_fd=top) for name in names(4)]
    outcomes, data = module.stat_names(fds, [b"f0", b"f1", b"gone", b"f3"], FOREVER)
    assert native.numbers(outcomes) == [0, 0, -1 - errno.ENOENT, 0]
    assert Table(data).column("size", 0, 4) == [0, 1, 0, 3]
    outcomes, contents = module.read_files(fds, [b"f3", b"f0", b"f1", b"f2"], FLAGS, 9, 99, FOREVER)
    assert native.numbers(outcomes) == [3, 0, 1, 2]
    assert contents[:6] == b"xxxxxx"
    outcomes, data = module.stat_open([*fds, -1])
    assert native.numbers(outcomes) == [0, 0, 0, 0, -1 - errno.EBADF]
    assert Table(data).column("inode", 0, 4) == [os.fstat(fd).st_ino for fd in fds]
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("name", [b"", b"a/b", b"a\0b", "text"])
def test_invalid_names_are_refused(module: ModuleType, top: int, name: bytes) -> None:
    calls: list[Callable[[], object]] = [
        lambda: module.stat_names(top, [name], FOREVER),
        lambda: scanned(module, top, [name]),
        lambda: module.read_files(top, [name], FLAGS, 9, 99, FOREVER),
        lambda: module.change_names(top, [name], 0o600, -1, -1, FOREVER),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)):
            call()


def test_the_directory_itself_is_only_looked_up(module: ModuleType, top: int) -> None:
    for name in (b".", b".."):
        with pytest.raises(ValueError, match="not the name"):
            scanned(module, top, [name])
        with pytest.raises(ValueError, match="not the name"):
            module.change_names(top, [name], 0o600, -1, -1, FOREVER)


def test_as_many_directories_as_names(module: ModuleType, top: int) -> None:
    for fds in ([top], "x", None):
        with pytest.raises(TypeError):
            module.stat_names(fds, names(2), FOREVER)
    with pytest.raises(TypeError):
        module.stat_open(top)


def test_small_directories_are_listed_and_looked_up(module: ModuleType, top: int) -> None:
    outcomes, fds, own, inside, kinds, table = scanned(module, top, [*names(3), b"gone"])
    assert outcomes == [4, 4, 4, -1 - errno.ENOENT]
    assert fds == []
    assert own.column("inode", 0, 3) == [os.stat(name, dir_fd=top).st_ino for name in names(3)]
    assert [sorted(inside[at : at + 4]) for at in (0, 4, 8)] == [[b"f0", b"f1", b"f2", b"f3"]] * 3
    assert kinds == bytes([8]) * 12
    assert table.column("size", 0, 12) == [int(name[1:]) for name in inside]


def test_without_look_ups_there_is_no_table(module: ModuleType, top: int) -> None:
    outcomes, fds, _, inside, _, table = scanned(module, top, names(2), looks=False, keeps=True)
    assert (outcomes, len(inside), table.count) == ([4, 4], 8, 0)
    for fd, name in zip(fds, names(2), strict=True):
        assert os.fstat(fd).st_ino == os.stat(name, dir_fd=top).st_ino
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_directories_that_are_not_plain_are_left_whole(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    """No entry of these directories is among the results."""
    (tmp_path / "d0" / "f4").touch()
    (tmp_path / "d1" / "f3").unlink()
    (tmp_path / "d1" / "below").mkdir()
    (tmp_path / "d2" / "f0").unlink()
    (tmp_path / "d2" / "link").symlink_to("f1")
    (tmp_path / "to-d3").symlink_to("d3")
    os.mkfifo(tmp_path / "pipe")
    before = set(os.listdir("/proc/self/fd"))
    outcomes, fds, _, inside, kinds, table = scanned(
        module, top, [*names(4), b"to-d3", b"pipe"], keeps=True
    )
    assert outcomes[:3] == [interface.NOT_PLAIN] * 3
    assert outcomes[3] == 4
    assert set(outcomes[4:]) <= {-1 - errno.ELOOP, -1 - errno.ENOTDIR}
    assert (len(inside), len(kinds), table.count, len(fds)) == (4, 4, 4, 1)
    os.close(fds[0])
    assert set(os.listdir("/proc/self/fd")) == before
    assert scanned(module, top, names(1), device=os.fstat(top).st_dev + 1)[0] == [
        interface.NOT_PLAIN
    ]
    assert scanned(module, top, names(3), kinds=ANY, most=5)[0] == [5, 4, 4]


def test_any_device_may_be_accepted_without_a_look_up(module: ModuleType, top: int) -> None:
    device = os.fstat(top).st_dev
    for wanted in (device, -1):
        outcomes, _, own, *_ = module.scan_directories(
            *(top, names(2), DIRECTORY, wanted, ONLY_FILES, 4, 9, 0, False, 0, False, False),
            FOREVER,
        )
        assert native.numbers(outcomes) == [4, 4]
        assert Table(own).column("device", 0, 2) == [max(0, wanted)] * 2


def test_directories_with_directories_stay_open(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    """An argument limits the descriptors; each name may have a directory of its own."""
    for number in (1, 2, 4):
        (tmp_path / f"d{number}" / "below" / f"deep{number}").mkdir(parents=True)
    before = set(os.listdir("/proc/self/fd"))
    outcomes, fds, *_ = scanned(module, top, names(6), kinds=ANY, most=9, parents=2)
    assert outcomes == [4, 5, 5, *[interface.UNTRIED] * 3]
    assert [fd >= 0 for fd in fds] == [False, True, True]
    wanted = [b"below", b"gone", b"below"]
    holders = [fds[1], fds[1], fds[2]]
    outcomes, inner, _, inside, *_ = scanned(module, holders, wanted, kinds=ANY, parents=9)
    assert outcomes == [1, -1 - errno.ENOENT, 1]
    assert inside == [b"deep1", b"deep2"]
    assert len(set(inner)) == 2
    for fd in [*fds[1:], *inner]:
        os.close(fd)
    assert scanned(module, top, names(1), kinds=ANY, most=9, parents=2)[:2] == ([4], [])
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(TypeError):
        scanned(module, [top], names(2))


def test_directories_may_be_listed_by_type_only(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    (tmp_path / "d0" / "below").mkdir()
    _, _, _, inside, kinds, table = scanned(
        module, top, names(1), kinds=ANY, most=9, looks=2, sorts=True
    )
    assert inside == [b"below", b"f0", b"f1", b"f2", b"f3"]
    assert list(kinds) == [4, 8, 8, 8, 8]
    rows = list(table.rows(5))
    unknown = StatusRow(*(0 for _ in StatusRow.__struct_fields__))
    assert rows[0] == msgspec.structs.replace(unknown, st_mode=stat.S_IFDIR, st_nlink=1)
    assert rows[4].st_ino == (tmp_path / "d0" / "f3").stat().st_ino


def test_a_large_directory_ends_when_time_is_up(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    """It is tried alone the next time; then it is left to callers that can stop in its middle."""
    (tmp_path / "large").mkdir()
    for number in range(300):
        (tmp_path / "large" / str(number)).touch()
    now_ns = time.monotonic_ns()
    assert scanned(module, top, [b"large"], most=300)[0] == [300]
    assert scanned(module, top, [b"large"], most=300, until_ns=now_ns)[0] == [interface.NOT_PLAIN]


def test_it_ends_before_the_buffer_may_overflow(module: ModuleType, top: int) -> None:
    outcomes, *_ = scanned(module, top, names(10), room=14)
    assert outcomes == [4, 4, 4] + [interface.UNTRIED] * 7
    for most, room in ((-1, 9), (5, 4), (1, (1 << 20) + 1)):
        with pytest.raises(ValueError, match="max_each"):
            scanned(module, top, names(1), most=most, room=room)


def test_each_function_processes_a_name_after_the_time_limit(module: ModuleType, top: int) -> None:
    now_ns = time.monotonic_ns()
    untried = [interface.UNTRIED] * 2
    assert scanned(module, top, names(3), until_ns=now_ns)[0] == [4, *untried]
    assert native.numbers(module.stat_names(top, names(3), now_ns)[0]) == [0, *untried]
    changed = module.change_names(top, names(3), -1, os.geteuid(), -1, now_ns)
    assert native.numbers(changed) == [0, *untried]
    answers = module.ask_attributes(top, names(3), ALL_OF_THEM, 0, b"", now_ns)
    assert native.numbers(answers) == [0, *untried]


def test_a_directory_is_listed_from_its_beginning(module: ModuleType, top: int) -> None:
    for _ in range(2):
        found = module.list_directory(top, 10, FOREVER)
        assert found is not None
        assert (sorted(found[0]), found[1]) == (names(10), bytes([4]) * 10)
    assert module.list_directory(top, 9, FOREVER) is None
    with os.scandir(top) as entries:  # scandir continues at the current position of the directory
        assert len(list(entries)) == 10
    with pytest.raises(OSError, match="descriptor"):
        module.list_directory(-1, 9, FOREVER)


def test_reads_are_complete(module: ModuleType, tmp_path: Path, top: int) -> None:
    folder = tmp_path / "read"
    folder.mkdir()
    (folder / "empty").touch()
    (folder / "most").write_bytes(b"m" * 9)
    (folder / "larger").write_bytes(b"l" * 10)
    with open(folder / "holes", "wb") as stream:
        stream.truncate(8)
    (folder / "link").symlink_to("most")
    os.mkfifo(folder / "pipe")
    fd = os.open(folder, DIRECTORY)
    wanted = [b"most", b"larger", b"holes", b"empty", b"link", b"pipe", b"gone", b"most"]
    outcomes, contents = module.read_files(fd, wanted, FLAGS, 9, 100, FOREVER)
    assert native.numbers(outcomes) == [
        *(9, interface.NOT_PLAIN, interface.NOT_PLAIN, 0, -1 - errno.ELOOP, interface.NOT_PLAIN),
        *(-1 - errno.ENOENT, 9),
    ]
    assert contents[:18] == b"m" * 18
    outcomes, _ = module.read_files(fd, [b"most"] * 3, FLAGS, 9, 20, FOREVER)
    assert native.numbers(outcomes) == [
        9,
        9,
        interface.UNTRIED,
    ]  # there may be no room for a third one
    for most, room in ((-1, 9), (9, 9), ((1 << 20) + 1, 1 << 21)):
        with pytest.raises(ValueError, match="max_bytes"):
            module.read_files(fd, [b"most"], FLAGS, most, room, FOREVER)
    os.close(fd)


def test_files_of_proc_have_content_and_no_size(module: ModuleType) -> None:
    fd = os.open(f"/proc/{os.getpid()}", DIRECTORY)
    outcomes, _ = module.read_files(fd, [b"stat"], FLAGS, 99, 1000, FOREVER)
    os.close(fd)
    assert native.numbers(outcomes) == [interface.NOT_PLAIN]


@pytest.mark.skipif(system_calls.is_missing("fchmodat2"), reason="there is no fchmodat2")
def test_modes_are_changed_and_links_are_not_followed(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    (tmp_path / "link").symlink_to("d0")
    os.chmod(tmp_path / "d0", 0o755)
    outcomes = native.numbers(module.change_names(top, [b"d1", b"link"], 0o2750, -1, -1, FOREVER))
    assert outcomes == [0, -1 - errno.EOPNOTSUPP]
    assert stat.S_IMODE((tmp_path / "d1").stat().st_mode) == 0o2750
    assert stat.S_IMODE((tmp_path / "d0").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(system_calls.is_missing("fchmodat2"), reason="there is no fchmodat2")
def test_owners_are_changed_before_modes(module: ModuleType, tmp_path: Path, top: int) -> None:
    """A change of owner clears set-id bits, which the change of mode then restores."""
    (tmp_path / "d0" / "f1").chmod(0o4755)
    fd = os.open(tmp_path / "d0", DIRECTORY)
    wanted = [b"f0", b"f1"]
    assert native.numbers(module.change_names(fd, wanted, -1, 12, -1, FOREVER)) == [0, 0]
    status = (tmp_path / "d0" / "f1").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12, 0, 0o755)
    changed = module.change_names(fd, wanted, 0o4755, 13, 14, FOREVER)
    os.close(fd)
    assert native.numbers(changed) == [0, 0]
    status = (tmp_path / "d0" / "f1").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (13, 14, 0o4755)


ALL_OF_THEM = interface.KEEP_ATTRIBUTES | interface.KEEP_LISTS


def asked(
    module: ModuleType, fds: int | list[int], wanted: list[bytes], keep: int, flags: int = 0
) -> list[int]:
    """Return which entries have relevant attributes, including flags of directories."""
    return native.numbers(module.ask_attributes(fds, wanted, keep, flags, IGNORED, FOREVER))


def test_names_without_attributes_are_reported(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    wanted = [b"d0", b"link", b"fifo", b"file", b"."]
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    for keep in (
        ALL_OF_THEM,
        interface.KEEP_LISTS,
        ALL_OF_THEM | interface.ASK_LISTS,
        interface.ASK_LISTS,
        0,
    ):
        assert asked(module, top, wanted, keep, USER_FLAGS) == [0] * len(wanted)
    try:
        os.setxattr(tmp_path / "file", "user.some", b"value")
    except OSError:
        pytest.skip("this file system keeps no attributes")
    # The attributes are those of the link, not of its target.
    assert asked(module, top, wanted, ALL_OF_THEM) == [0, 0, 0, 1, 0]
    assert asked(module, top, wanted, interface.KEEP_LISTS) == [0] * len(wanted)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets trusted attributes")
def test_attributes_of_links_and_those_that_are_never_copied(
    module: ModuleType, tmp_path: Path, top: int
) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    try:
        os.setxattr(tmp_path / "d0", "trusted.lov", b"1")
        os.setxattr(tmp_path / "link", "trusted.some", b"1", follow_symlinks=False)
    except OSError:
        pytest.skip("this file system keeps no trusted attributes")
    assert asked(module, top, [b"link", b"d0", b"d1"], ALL_OF_THEM) == [1, 0, 0]
    os.setxattr(tmp_path / "d0", "trusted.lovely", b"1")
    fds = [os.open(name, DIRECTORY, dir_fd=top) for name in names(2)]
    assert asked(module, [*fds, top], [b".", b".", b"link"], ALL_OF_THEM) == [1, 0, 1]
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("kind", ["list", "flag"])
@pytest.mark.parametrize("keep", [interface.KEEP_LISTS, interface.ASK_LISTS])
def test_inherited_lists_of_a_directory_count(
    module: ModuleType, tmp_path: Path, top: int, kind: str, keep: int
) -> None:
    if kind == "list":
        entries = [(1, 7, -1), (2, 5, 1), (4, 5, -1), (16, 5, -1), (32, 0, -1)]
        value = b"\2\0\0\0" + b"".join(struct.pack("<HHi", *entry) for entry in entries)
        try:
            os.setxattr(tmp_path, "system.posix_acl_default", value)
        except OSError:
            pytest.skip("this file system keeps no access control lists")
    elif not shutil.which("chattr") or subprocess.run(["chattr", "+d", tmp_path]).returncode:
        pytest.skip("no inode flag can be set here")
    assert asked(module, top, [b"d0", b"."], keep, USER_FLAGS) == [0, 1]


def test_unreadable_names_may_have_attributes(module: ModuleType, top: int) -> None:
    for keep in (ALL_OF_THEM, interface.ASK_LISTS):
        assert asked(module, top, [b"d0", b"gone", b"d1"], keep) == [0, 1, 0]
        assert asked(module, -1, [b"d0"], keep) == [1]


def test_a_million_calls_take_no_memory(module: ModuleType, top: int) -> None:
    """A thousand calls of each function would show any leak."""
    fd = os.open(b"d1", DIRECTORY, dir_fd=top)

    def call() -> None:
        for _ in range(1000):
            module.stat_names(fd, [b"f0", b"gone"], FOREVER)
            module.list_directory(fd, 9, FOREVER)
            module.list_directory(fd, 1, FOREVER)
            module.stat_open([fd, -1])
            scanned(module, top, [*names(2), b"gone"])
            module.read_files(fd, [b"f3", b"gone"], FLAGS, 9, 99, FOREVER)
            module.ask_attributes([fd, top], [b"f3", b"."], ALL_OF_THEM, USER_FLAGS, b"", FOREVER)
            with pytest.raises(ValueError, match="not the name"):
                module.stat_names([fd, fd], [b"f0", b"a/b"], FOREVER)

    call()
    before = _resident_bytes()
    for _ in range(3):
        call()
    assert _resident_bytes() - before < 512 << 10
    os.close(fd)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_signal_ends_a_call_or_its_handler_runs(module: ModuleType, top: int) -> None:
    """No name is lost: untried names are reported."""
    heard = []
    former = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(300):
            outcomes, *_ = scanned(module, top, names(10))
            assert set(outcomes) <= {4, interface.UNTRIED}
            assert module.list_directory(top, 10, FOREVER) is not None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert heard


@pytest.mark.parametrize("looks", [False, True])
def test_entries_in_the_order_of_their_names(
    module: ModuleType, tmp_path: Path, top: int, looks: bool
) -> None:
    """Entries have their kind and status, and each directory's entries are separate."""
    names_of_one = ["b", "a\xff", "a", "é", "B", "a b", "-", "aa"]
    expected = []
    for directory in ("one", "two"):
        (tmp_path / directory).mkdir()
        for size, name in enumerate(names_of_one):
            (tmp_path / directory / name).write_bytes(b"x" * size)
        (tmp_path / directory / "link").symlink_to("a")
        in_order = sorted([*names_of_one, "link"], key=os.fsencode)
        expected += [tmp_path / directory / name for name in in_order]
    (tmp_path / "without").mkdir()
    wanted = [b"one", b"two", b"without"]
    outcomes, _, _, inside_all, kinds, table = scanned(
        module, top, wanted, kinds=0xFFFF, most=20, looks=looks, sorts=True
    )
    assert outcomes == [9, 9, 0]
    assert inside_all == [os.fsencode(path.name) for path in expected]
    assert list(kinds) == [stat.S_IFMT(path.lstat().st_mode) >> 12 for path in expected]
    if looks:
        sizes = [path.lstat().st_size for path in expected]
        assert table.column("size", 0, len(expected)) == sizes


def test_the_same_opens_in_the_same_order(tmp_path: Path) -> None:
    """strace shows the same order for both."""
    program = """
import os
from pcircle.fs import native
top = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
os.stat("begin-here") if os.path.exists("begin-here") else None
flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
device = os.fstat(top).st_dev
native.scan_directories(
    top, [b"d0", b"d1", b"gone"], flags, device, 1 << 8, 9, 99, 1, False, 0, False, False, 1 << 62
)
native.read_files(top, [b"a", b"gone", b"b"], flags & ~os.O_DIRECTORY, 9, 99, 1 << 62)
native.change_names(top, [b"a", b"b"], -1, os.getuid(), -1, 1 << 62)
"""
    for name in ("d0", "d1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").touch()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x")
    seen = []
    for choice in ("", "0"):
        if not choice and not native.is_native:
            pytest.skip("the C module is not used")
        trace = tmp_path / "trace"
        command = [required("strace"), "-f", "-o", str(trace), "-e", "trace=openat,fchownat"]
        python = [sys.executable, "-c", program]
        env = {**os.environ, "PCIRCLE_NATIVE": choice}
        subprocess.run([*command, *python], cwd=tmp_path, env=env, check=True)
        lines = [call.text for call in read_calls(trace)]
        begin = max(at for at, line in enumerate(lines) if '"begin-here"' in line or '"."' in line)
        wanted = ('"d0"', '"d1"', '"a"', '"b"', '"gone"')
        seen.append(
            [line.split(" = ")[0] for line in lines[begin:] if any(w in line for w in wanted)]
        )
    assert seen[0] == seen[1]
    assert len(seen[0]) == 8
