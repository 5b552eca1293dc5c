"""Creating and completing directories: the contract of the C module and its equivalent."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from pcircle.fs import native
from pcircle.fs.attributes.acls import DEFAULT
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS, give_flags
from pcircle.fs.native import interface
from pcircle.fs.native.interface import (
    KEEP_ATTRIBUTES,
    KEEP_LISTS,
    KEEP_MODE,
    KEEP_OWNER,
    KEEP_TIMES,
)
from tests.contract.native.test_native import FOREVER, module
from tests.contract.native.tracing import traced
from tests.tools.fcp.access import MASK, NOBODY, OTHER, OWNER, OWNING_GROUP, USER, pack

__all__ = ["module"]  # a fixture

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STATUS = KEEP_MODE | KEEP_OWNER | KEEP_TIMES
ATTRIBUTES = KEEP_LISTS | KEEP_ATTRIBUTES


class Sides(NamedTuple):
    """Open source directories by number, and an open target."""

    paths: list[Path]
    fds: list[int]
    target: Path
    target_fd: int


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    """Create three source directories and an empty target."""
    paths = [tmp_path / f"source-{number}" for number in range(3)]
    target = tmp_path / "target"
    for path in (*paths, target):
        path.mkdir()
    *fds, target_fd = (os.open(path, FLAGS) for path in (*paths, target))
    yield Sides(paths, fds, target, target_fd)
    for fd in (*fds, target_fd):
        os.close(fd)


NAMES = [b"a", b"b\xff", b"c"]


def _make(
    module: ModuleType,
    sides: Sides,
    names: list[bytes] = NAMES,
    keep: int = 0,
    inode_flags: int = 0,
    flags: int = FLAGS,
    until_ns: int = FOREVER,
) -> tuple[list[int], list[int]]:
    """Create a directory for each source; return the outcomes and the descriptors."""
    modes = [0o700, 0o750, 0o1777][: len(names)]
    result, opened = module.make_directories(
        *(sides.fds[: len(names)], sides.target_fd, names, modes),
        *(flags, keep, inode_flags, IGNORED, until_ns),
    )
    return native.numbers(result), native.numbers(opened)


def test_directories_are_created_with_their_modes_and_opened(
    module: ModuleType, sides: Sides
) -> None:
    umask = os.umask(0)
    try:
        outcomes, fds = _make(module, sides, keep=ATTRIBUTES, inode_flags=USER_FLAGS)
    finally:
        os.umask(umask)
    assert outcomes == [0, 0, 0]
    for name, fd, mode in zip(NAMES, fds, (0o700, 0o750, 0o1777), strict=True):
        made = sides.target / os.fsdecode(name)
        assert os.path.samestat(os.fstat(fd), made.stat())
        assert stat.S_IMODE(made.stat().st_mode) == mode
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_an_existing_name_is_unchanged(module: ModuleType, sides: Sides) -> None:
    os.symlink(sides.paths[0], sides.target / "a")
    outcomes, fds = _make(module, sides)
    assert outcomes == [-1 - errno.EEXIST, 0, 0]
    assert fds[0] == interface.UNTRIED
    assert (sides.target / "a").is_symlink()
    for fd in fds[1:]:
        os.close(fd)


def test_an_unopenable_directory_is_reported(module: ModuleType, sides: Sides) -> None:
    before = os.listdir("/proc/self/fd")
    outcomes, fds = _make(module, sides, flags=os.O_WRONLY | os.O_DIRECTORY)
    assert outcomes == [0, 0, 0]
    assert fds == [-1 - errno.EISDIR] * 3
    assert os.listdir("/proc/self/fd") == before
    assert len(os.listdir(sides.target)) == 3


def test_invalid_names_are_refused_before_anything_is_created(
    module: ModuleType, sides: Sides
) -> None:
    for name in (b"", b".", b"..", b"a/b", b"a\0b"):
        with pytest.raises(ValueError, match="name"):
            _make(module, sides, [b"a", name])
    with pytest.raises(TypeError):
        module.make_directories(
            sides.fds[:1], sides.target_fd, [b"a", b"b"], [0o700] * 2, FLAGS, 0, 0, b"", FOREVER
        )
    assert os.listdir(sides.target) == []


def test_names_after_the_time_limit_are_untried(module: ModuleType, sides: Sides) -> None:
    outcomes, fds = _make(module, sides, until_ns=0)
    assert outcomes == [0, interface.UNTRIED, interface.UNTRIED]
    assert fds[1:] == [interface.UNTRIED] * 2
    os.close(fds[0])


def _attribute(path: Path) -> None:
    os.setxattr(path, "user.name", b"value")


def _default_list(path: Path) -> None:
    named = ((OWNER, 6, NOBODY), (USER, 4, 1001), (OWNING_GROUP, 4, NOBODY), (MASK, 4, NOBODY))
    os.setxattr(path, DEFAULT, pack((*named, (OTHER, 0, NOBODY))))


@pytest.mark.parametrize(("give", "keep"), [(_attribute, KEEP_ATTRIBUTES), (_default_list, 0)])
def test_attributes_are_left_to_the_caller(
    module: ModuleType, sides: Sides, give: object, keep: int
) -> None:
    assert callable(give)
    try:
        give(sides.paths[1])
    except OSError as error:
        pytest.skip(f"no such attribute here: {error}")
    for asked in (interface.KEEP_LISTS, interface.ASK_LISTS) if not keep else (keep,):
        outcomes, fds = _make(module, sides, keep=asked)
        assert outcomes == [0, interface.NOT_PLAIN, 0]
        assert sorted(os.listdir(os.fsencode(sides.target))) == [b"a", b"c"]
        for place in (0, 2):
            os.close(fds[place])
            os.rmdir(os.path.join(os.fsencode(sides.target), NAMES[place]))


def test_inode_flags_are_left_to_the_caller(module: ModuleType, sides: Sides) -> None:
    no_dump = 0x40
    if not give_flags(sides.fds[1], no_dump):
        pytest.skip("the file system has no inode flags")
    outcomes, fds = _make(module, sides, inode_flags=USER_FLAGS)
    assert outcomes == [0, interface.NOT_PLAIN, 0]
    os.close(fds[0])
    os.close(fds[2])


def _sources(sides: Sides) -> bytes:
    """Return the table of the sources' status."""
    return native.stat_open(sides.fds)[1]


def test_copies_get_the_attributes_of_their_sources(module: ModuleType, sides: Sides) -> None:
    for number, path in enumerate(sides.paths):
        if os.geteuid() == 0:
            os.chown(path, 1000 + number, 2000 + number)
        path.chmod(0o2750 + number)
        os.utime(path, ns=(-(10**9) - 1, 10**18 + number))
    _, fds = _make(module, sides)
    table = _sources(sides)
    assert native.numbers(module.settle_open(fds, table, STATUS, -1, -1)) == [0, 0, 0]
    for fd, path in zip(fds, sides.paths, strict=True):
        made, source = os.fstat(fd), path.stat()
        assert (made.st_mode, made.st_uid, made.st_gid) == (
            source.st_mode,
            source.st_uid,
            source.st_gid,
        )
        assert (made.st_mtime_ns, made.st_atime_ns) == (source.st_mtime_ns, -(10**9) - 1)
        os.close(fd)


def test_only_preserved_attributes_are_set(module: ModuleType, sides: Sides) -> None:
    sides.paths[0].chmod(0o711)
    os.utime(sides.paths[0], ns=(5, 5))
    _, fds = _make(module, sides, NAMES[:1])
    table = native.stat_open(sides.fds[:1])[1]
    before = os.fstat(fds[0])
    assert native.numbers(module.settle_open(fds, table, 0, -1, -1)) == [0]
    assert os.fstat(fds[0]) == before
    assert native.numbers(module.settle_open(fds, table, KEEP_MODE, -1, -1)) == [0]
    assert stat.S_IMODE(os.fstat(fds[0]).st_mode) == 0o711
    assert os.fstat(fds[0]).st_mtime_ns == before.st_mtime_ns
    os.close(fds[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_an_ordinary_user_changes_no_owner(module: ModuleType, sides: Sides) -> None:
    os.chown(sides.paths[0], 1001, 1001)
    table = native.stat_open(sides.fds[:1])[1]
    _, fds = _make(module, sides, NAMES[:1])
    try:
        os.seteuid(1002)
        found = module.settle_open(fds, table, STATUS, -1, -1)
        same = module.settle_open(fds, table, KEEP_TIMES, 1001, 1001)
    finally:
        os.seteuid(0)
    assert native.numbers(found) == [interface.NOT_PLAIN]
    assert native.numbers(same) == [-1 - errno.EPERM]
    os.close(fds[0])


def test_errors_are_reported_by_number(module: ModuleType, sides: Sides) -> None:
    table = _sources(sides)
    closed = os.open(sides.target, FLAGS)
    os.close(closed)
    path_only = os.open(sides.target, os.O_PATH)
    outcomes = native.numbers(
        module.settle_open([sides.target_fd, closed, path_only], table, KEEP_MODE, -1, -1)
    )
    os.close(path_only)
    assert outcomes == [0, -1 - errno.EBADF, -1 - errno.EBADF]


def test_as_many_descriptors_as_rows(module: ModuleType, sides: Sides) -> None:
    for fds in (sides.fds[:2], [*sides.fds, sides.target_fd]):
        with pytest.raises(TypeError):
            module.settle_open(fds, _sources(sides), STATUS, -1, -1)


def test_files_of_several_directories_are_copied_by_one_call(
    module: ModuleType, sides: Sides
) -> None:
    """A call ends at the first file that is not plain; directories before it are complete."""
    names, fds = [b"1", b"2"] * 3, [fd for fd in sides.fds for _ in range(2)]
    for number, path in enumerate(sides.paths):
        for name in ("1", "2"):
            (path / name).write_bytes(b"%d" % number * 10)
            (path / name).chmod(0o640 + number)
    _, targets = _make(module, sides)
    owner, group = os.fstat(targets[0])[stat.ST_UID], os.fstat(targets[0])[stat.ST_GID]
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    how = flags, 0o777, STATUS, 0, IGNORED, 1, 1000, 0, os.fstat(fds[0]).st_dev
    made_in = [fd for fd in targets for _ in range(2)]
    os.mkfifo(sides.paths[2] / "odd")
    result, _ = module.copy_files(
        [*fds, sides.fds[2]], [*made_in, targets[2]], [*names, b"odd"], *how, owner, group,
        FOREVER, 0,
    )  # fmt: skip
    assert native.numbers(result) == [10] * 6 + [interface.NOT_PLAIN]
    for number, made_name in enumerate(NAMES):
        made = sides.target / os.fsdecode(made_name)
        for file in ("1", "2"):
            assert (made / file).read_bytes() == b"%d" % number * 10
            assert stat.S_IMODE((made / file).stat().st_mode) == 0o640 + number
    with pytest.raises(TypeError):
        module.copy_files(fds, made_in[:1], names, *how, -1, -1, FOREVER, 0)
    for fd in targets:
        os.close(fd)


def test_neither_descriptors_nor_memory_are_lost(module: ModuleType, sides: Sides) -> None:
    before = os.listdir("/proc/self/fd")
    table = _sources(sides)

    def once() -> None:
        _, fds = _make(module, sides, keep=ATTRIBUTES, inode_flags=USER_FLAGS)
        module.settle_open(fds, table, STATUS, 0, 0)
        for fd in fds:
            os.close(fd)
        _make(module, sides)  # already exists
        module.unlink_names(sides.target_fd, NAMES, True, FOREVER)

    for _ in range(20):
        once()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000 if module is native.module else 50):
        once()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1024
    assert os.listdir("/proc/self/fd") == before


CALLS = "mkdirat,openat,fchown,fchmod,utimensat,close"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.skipif(not native.is_native, reason="there is one module only")
def test_both_make_the_same_calls_in_the_same_order(sides: Sides) -> None:
    program = f"""
import os, sys
from pcircle.fs import native
fds = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
target = fds.pop()
how = {FLAGS}, {ATTRIBUTES}, 0, b"", 1 << 62
native.make_directories([], target, [], [], *how)  # which imports what it needs
table = native.stat_open(fds)[1]
os.write(2, b"begin")
opened = native.make_directories(fds, target, [b"a", b"b", b"c"], [0o700] * 3, *how)[1]
native.settle_open(native.numbers(opened), table, {STATUS}, -1, -1)
os.write(2, b"end")
"""
    logs = []
    for used in "10":
        logs.append(traced(program, (*sides.paths, sides.target), CALLS, used))
        for path in sides.target.iterdir():
            path.rmdir()
    assert len(logs[0]) == 3 * 5
    assert logs[0] == logs[1]
