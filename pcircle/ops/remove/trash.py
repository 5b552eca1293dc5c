"""A trash directory: entries are moved into it by a fast rename, and removed later.

Each run creates a directory in the trash that only its user can enter, and in it a directory for
each PATH. Thus no move replaces an entry. Emptying the trash removes the directories of this user's
runs and ignores all other entries.
"""

from __future__ import annotations

import os
import re
import stat
import time

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.attributes.mounts import is_same_mount
from pcircle.fs.open_flags import OPEN_DIRECTORY, OPEN_ENTRY_PATH
from pcircle.fs.safe_open import directory
from pcircle.walk.roots import Root

_NAME = re.compile(rb"frm-\d{8}T\d{6}-\d+")


def create_run(option: str, path: bytes) -> bytes:
    """Create the directory of a run in a trash, and return its path. Raises UsageError."""
    name = time.strftime("frm-%Y%m%dT%H%M%S-").encode() + b"%d" % os.getpid()
    fd = _open(option, path)
    try:
        os.mkdir(name, 0o700, dir_fd=fd)
    except OSError as error:
        text = f"{option}: cannot write to '{show(path)}': {error.strerror}"
        raise UsageError(text) from None
    finally:
        os.close(fd)
    return os.path.join(os.getcwdb(), path, name)  # the kernel resolves '..' in it


def move_to_run(name: bytes, directory_fd: int, run: bytes, number: int) -> None:
    """Move the entry of PATH `number` to the directory of a run. Raises OSError."""
    above, own = os.path.split(run)
    trash = directory(above)
    try:
        fd = os.open(own, OPEN_DIRECTORY, dir_fd=trash)
    finally:
        os.close(trash)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(1, os.strerror(1))
        os.mkdir(b"%d" % number, 0o700, dir_fd=fd)
        target = os.open(b"%d" % number, OPEN_DIRECTORY, dir_fd=fd)
        try:
            os.rename(name, name, src_dir_fd=directory_fd, dst_dir_fd=target)
        except OSError:
            os.rmdir(b"%d" % number, dir_fd=fd)
            raise
        finally:
            os.close(target)
    finally:
        os.close(fd)


def remove_empty_run(run: bytes) -> None:
    """Remove the directory of a run if it is empty."""
    above, own = os.path.split(run)
    try:
        fd = directory(above)
        try:
            os.rmdir(own, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError:  # not empty or not accessible
        pass


def list_runs(option: str, path: bytes) -> tuple[Root, ...]:
    """Return the directories of this user's runs in a trash. Raises UsageError."""
    fd = _open(option, path)
    try:
        found = sorted(os.fsencode(name) for name in os.listdir(fd))
        return tuple(
            Root(path, b"", os.path.join(path, name), name)
            for name in found
            if _NAME.fullmatch(name) and _is_own(name, fd)
        )
    finally:
        os.close(fd)


def _open(option: str, path: bytes) -> int:
    try:
        fd = directory(path)
        try:
            return os.open(b".", OPEN_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError as error:
        text = f"{option}: cannot open '{show(path)}': {error.strerror or error}"
        raise UsageError(text) from None


def _is_own(name: bytes, directory_fd: int) -> bool:
    """Return whether a name is a directory of this user and not a mount point."""
    fd = os.open(name, OPEN_ENTRY_PATH, dir_fd=directory_fd)
    try:
        status = os.fstat(fd)
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        return is_own and is_same_mount(fd, directory_fd)
    finally:
        os.close(fd)
