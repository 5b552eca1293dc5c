"""The minimum cost of a copy in Python: ``python plain_loop.py SRC DST``, one process.

Makes the calls that ``fcp -p`` makes for each plain file, link and directory, without checks,
failures, progress, checkpoint or a second process.
"""

import os
import stat
import sys

SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
TARGET = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SMALL_BYTES = 128 << 10


def copy_file(name: str, source_fd: int, target_fd: int) -> None:
    """Copy a file, its mode and its times."""
    fd = os.open(name, SOURCE, dir_fd=source_fd)
    status = os.fstat(fd)
    os.listxattr(fd)
    out = os.open(name, TARGET, stat.S_IMODE(status.st_mode), dir_fd=target_fd)
    if status.st_size <= SMALL_BYTES:
        if data := os.read(fd, status.st_size + 1):
            os.write(out, data)
    else:
        while os.copy_file_range(fd, out, 1 << 30):
            pass
    os.utime(out, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.close(out)
    os.close(fd)


def copy_link(name: str, source_fd: int, target_fd: int) -> None:
    """Copy a symbolic link and its times."""
    status = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
    os.symlink(os.readlink(name, dir_fd=source_fd), name, dir_fd=target_fd)
    times = status.st_atime_ns, status.st_mtime_ns
    os.utime(name, ns=times, dir_fd=target_fd, follow_symlinks=False)


def copy_tree(source: str, source_dir: int | None, target: str, target_dir: int | None) -> None:
    """Copy a directory and everything below it."""
    source_fd = os.open(source, DIRECTORY, dir_fd=source_dir)
    status = os.fstat(source_fd)
    os.listxattr(source_fd)
    os.mkdir(target, 0o700, dir_fd=target_dir)
    target_fd = os.open(target, DIRECTORY, dir_fd=target_dir)
    below = []
    for entry in os.scandir(source_fd):
        if entry.is_dir(follow_symlinks=False):
            below.append(entry.name)
        elif entry.is_symlink():
            copy_link(entry.name, source_fd, target_fd)
        else:
            copy_file(entry.name, source_fd, target_fd)
    for name in below:
        copy_tree(name, source_fd, name, target_fd)
    os.chmod(target_fd, stat.S_IMODE(status.st_mode))
    os.utime(target_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.close(target_fd)
    os.close(source_fd)


if __name__ == "__main__":
    copy_tree(sys.argv[1], None, sys.argv[2], None)
