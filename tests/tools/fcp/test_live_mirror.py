"""A mirror that a user reads during an update which reduces the user's access."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .access import ACCESS, GROUP, MASK, NOBODY, OTHER, OWNER, OWNING_GROUP, USER, give, pack
from .running import TWO, Run
from .trees import make_directory, write_file

READER, FIRST, SECOND = 65534, 4001, 4002
TOOLS = {
    "fcp": ("pcircle.tools.fcp", "-a", "-T"),
    "in place": ("pcircle.tools.fcp", "-p", "--inplace", "-T"),
    "chunks in place": ("pcircle.tools.fcp", "-p", "--inplace", "-T", "--chunksize", "4M"),
    "fmirror": ("pcircle.tools.fmirror", "-q"),
}
Side = tuple[int, int, int, bytes | None]  # owner, group, mode, access control list


def named(user: int, group: int, other: int) -> bytes:
    """Return a list that names the reader and a group."""
    rights = [(OWNER, 7, NOBODY), (USER, user, READER), (OWNING_GROUP, group, NOBODY)]
    return pack([*rights, (GROUP, group, SECOND), (MASK, 7, NOBODY), (OTHER, other, NOBODY)])


# The directories of mirror and source, and whether both grant access to the reader.
CASES: dict[str, tuple[Side, Side, bool]] = {
    "closed": ((0, 0, 0o755, None), (0, 0, 0o700, None), False),
    "open": ((0, 0, 0o755, None), (0, 0, 0o775, None), True),
    "sticky": ((0, 0, 0o2755, None), (0, 0, 0o1777, None), True),
    "given away": ((READER, 0, 0o755, None), (0, 0, 0o750, None), False),
    "owner changes": ((READER, 0, 0o700, None), (0, FIRST, 0o755, None), True),
    "becomes owner": ((0, FIRST, 0o755, None), (READER, SECOND, 0o700, None), True),
    "group goes": ((0, READER, 0o750, None), (0, FIRST, 0o750, None), False),
    "member denied": ((0, READER, 0o750, None), (0, READER, 0o755, named(0, 5, 5)), False),
    "user denied": ((0, 0, 0o755, None), (0, 0, 0o755, named(0, 7, 7)), False),
    "user named": ((0, 0, 0o700, named(5, 0, 0)), (0, 0, 0o755, None), True),
    "user kept": ((0, 0, 0o700, named(7, 0, 0)), (0, FIRST, 0o700, named(5, 7, 0)), True),
    "user no longer": ((0, 0, 0o700, named(7, 7, 0)), (0, 0, 0o750, None), False),
}


def set_rights(path: bytes, side: Side) -> None:
    """Give an entry an owner, a group and a mode, or a list."""
    owner, group, mode, access = side
    os.chown(path, owner, group)
    os.chmod(path, mode)
    if access is not None:
        give(path, ACCESS, access)


def build(source: bytes, target: bytes, size: int) -> tuple[list[bytes], list[bytes]]:
    """Build both trees; return always readable paths, and paths that deny the new content."""
    readable: list[bytes] = []
    denied: list[bytes] = []
    for name, (old, new, both) in CASES.items():
        for root, side, content in ((target, old, b"old"), (source, new, b"new")):
            directory = make_directory(root, name.encode())
            write_file(directory + b"/entry", content * size, 0o644)
            set_rights(directory, side)
        for number, (root, side, content) in enumerate(
            ((target, old, b"old"), (source, new, b"new"))
        ):
            path = write_file(root + b"/file " + name.encode(), content * size)
            set_rights(path, (*side[:2], side[2] & 0o777 & ~0o111, side[3]))
            os.utime(path, (number, number))
        paths = [name.encode() + b"/entry", b"file " + name.encode()]
        (readable if both else denied).extend(paths)
    return readable, denied


@contextmanager
def reading(target: bytes, readable: list[bytes], denied: list[bytes]) -> Iterator[None]:
    """Read as another user until the block ends; it must always, or never, be possible."""
    receives, ends = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(ends)
            os.set_blocking(receives, False)
            root = os.open(target, os.O_RDONLY)
            os.setgroups([])
            os.setresgid(READER, READER, READER)
            os.setresuid(READER, READER, READER)
            status = int(not read_until(receives, root, readable, denied))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(receives)
    try:
        yield
    finally:
        os.close(ends)
        _, status = os.waitpid(child, 0)
    assert status == 0, "see standard error"


def _is_readable(path: bytes, root: int) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY, dir_fd=root))
    except PermissionError:
        return False
    return True


def read_until(receives: int, root: int, readable: list[bytes], denied: list[bytes]) -> bool:
    """Read all paths repeatedly until the pipe is closed; return whether all reads succeeded."""
    is_last = False
    while True:
        for path in (*readable, *denied):
            try:
                fd = os.open(path, os.O_RDONLY, dir_fd=root)
            except PermissionError:
                if path in readable:
                    print("was denied", path, flush=True)
                    return False
                continue
            content = os.read(fd, 3)
            os.close(fd)
            # It may have been opened just before access was revoked, and rewritten since.
            if path in denied and content == b"new" and _is_readable(path, root):
                print("was granted", path, flush=True)
                return False
        if is_last:
            return True
        try:
            is_last = os.read(receives, 1) == b""
        except BlockingIOError:
            continue


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away and reads as another user")
@pytest.mark.parametrize("tool", TOOLS)
def test_a_mirror_that_is_being_read(tool: str, place: bytes) -> None:
    """Access granted by both sides is never withdrawn, and denied access is never granted."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    os.chmod(source, 0o755)
    os.chmod(target, 0o755)
    readable, denied = build(source, target, 2_000_000 if tool == "chunks in place" else 1000)
    module, *options = TOOLS[tool]
    with (
        reading(target, readable, denied),
        Run(TWO, *options, "--bwlimit", "40M", source, target, program=(module,)) as run,
    ):
        finished = run.finish()
    assert finished.code == 0, finished.said


def test_modes_are_unchanged_without_preserve(place: bytes) -> None:
    """As in cp, existing directories and files keep their modes without --preserve."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for root, mode in ((source, 0o700), (target, 0o757)):
        os.chmod(write_file(root + b"/file", b"x"), mode & ~0o111)
        os.chmod(make_directory(root, b"directory"), mode)
        write_file(root + b"/directory/file", b"x")
    for options in ((), ("--inplace",)):
        with Run(TWO, *options, "-T", source, target) as run:
            assert run.finish().code == 0
        assert os.stat(target + b"/directory").st_mode & 0o777 == 0o757
        assert os.stat(target + b"/file").st_mode & 0o777 == 0o646
