"""A directory to which entries are moved at once, to be removed at leisure.

Each run that moves something makes a directory there that only its user may enter, and in that one
for each PATH: so nothing is ever replaced. What does not look like such a directory is left alone
when the trash is emptied.
"""

from __future__ import annotations

import os
import re
import stat
import time

from pcircle.errors import UsageError
from pcircle.fs.beneath import is_same_mount
from pcircle.trusted import directory
from pcircle.ui.names import show
from pcircle.walk.roots import Root

_NAME = re.compile(rb"frm-\d{8}T\d{6}-\d+")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def begin(option: str, path: bytes) -> bytes:
    """Make the directory of a run in a trash; its path. UsageError."""
    name = time.strftime("frm-%Y%m%dT%H%M%S-").encode() + b"%d" % os.getpid()
    fd = _opened(option, path)
    try:
        os.mkdir(name, 0o700, dir_fd=fd)
    except OSError as error:
        text = f"{option}: cannot write to '{show(path)}': {error.strerror}"
        raise UsageError(text) from None
    finally:
        os.close(fd)
    return os.path.join(os.getcwdb(), path, name)  # '..' is left to the kernel


def move(name: bytes, directory_fd: int, run: bytes, number: int) -> None:
    """Move an entry into the directory of a run, for PATH of this number. OSError."""
    above, own = os.path.split(run)
    trash = directory(above)
    try:
        fd = os.open(own, _FLAGS, dir_fd=trash)
    finally:
        os.close(trash)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(1, os.strerror(1))
        os.mkdir(b"%d" % number, 0o700, dir_fd=fd)
        target = os.open(b"%d" % number, _FLAGS, dir_fd=fd)
        try:
            os.rename(name, name, src_dir_fd=directory_fd, dst_dir_fd=target)
        except OSError:
            os.rmdir(b"%d" % number, dir_fd=fd)
            raise
        finally:
            os.close(target)
    finally:
        os.close(fd)


def end(run: bytes) -> None:
    """Remove the directory of a run if nothing was moved to it."""
    above, own = os.path.split(run)
    try:
        fd = directory(above)
        try:
            os.rmdir(own, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError:  # it holds something, or is out of reach: then nothing is to be done
        pass


def runs(option: str, path: bytes) -> tuple[Root, ...]:
    """What is in a trash, by runs, of this user. UsageError."""
    fd = _opened(option, path)
    try:
        found = sorted(os.fsencode(name) for name in os.listdir(fd))
        return tuple(
            Root(path, b"", os.path.join(path, name), name)
            for name in found
            if _NAME.fullmatch(name) and _is_own(name, fd)
        )
    finally:
        os.close(fd)


def _opened(option: str, path: bytes) -> int:
    try:
        fd = directory(path)
        try:
            return os.open(b".", _FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError as error:
        text = f"{option}: cannot open '{show(path)}': {error.strerror or error}"
        raise UsageError(text) from None


def _is_own(name: bytes, directory_fd: int) -> bool:
    """Whether it is a directory of this user, and nothing is mounted there."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        status = os.fstat(fd)
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        return is_own and is_same_mount(fd, directory_fd)
    finally:
        os.close(fd)
