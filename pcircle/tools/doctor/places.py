"""The properties of the file system at a path, determined with the calls that the tools use.

Trials take place in a new directory, which is removed afterwards. If it cannot be created, only
facts that require no trial are reported.

One trial measures how many concurrent file operations are worthwhile. Small files are created,
looked up and removed, first one call at a time and then through the asynchronous layer. This layer
adapts the number of its threads as the tools do.

A child process examines a path, so that a hanging file system does not block the report. The child
removes its scratch directory before it exits. If a signal kills the child, the parent removes the
directory. If the parent ends first, the child is terminated.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import NoReturn

import msgspec

from pcircle.aio import Files, when_all
from pcircle.aio import operations as ops
from pcircle.core.writing import write_all, write_at
from pcircle.fs.attributes.acls import ACCESS, packed, read_list
from pcircle.fs.attributes.btrfs import subvolume_of
from pcircle.fs.attributes.lustre import is_lustre
from pcircle.fs.attributes.mounts import type_of_device, type_of_mount
from pcircle.fs.attributes.xattrs import give_attribute
from pcircle.fs.data import (
    DataCopier,
    OfflineDetector,
    Way,
    copy_range,
    data_ranges,
    may_have_holes,
    send_range,
)
from pcircle.fs.naming import exchange, rename_to_free, sync_directory
from pcircle.fs.open_flags import OPEN_DIRECTORY, OPEN_DIRECTORY_FOLLOW
from pcircle.fs.scan import StableListing
from pcircle.fs.status import birth_ns
from pcircle.ops.copy.entry.collisions import folds_name
from pcircle.ops.copy.entry.overwrite import measure_unit_ns
from pcircle.tools.doctor.machine import Fact, Facts, Value, asked, reason, tried
from pcircle.transport._exit import signal_on_parent_exit

_ROUND_S = 1.0
_BLOCKING_S = 0.3
_AT_ONCE = 256
_DATA = bytes(4096)
_LOOK_S = 0.05


def _thread_facts(place: bytes) -> Facts:
    """Return the best number of threads, and the operations per second with and without threads."""
    try:
        alone = _alone(place)
        threads, together = _together(place)
    except OSError as error:
        return {"best_threads": Fact(None, error.strerror or str(error))}
    return {
        "best_threads": Fact(threads),
        "operations_per_s": Fact(round(together)),
        "operations_per_s_blocking": Fact(round(alone)),
    }


def _alone(place: bytes) -> float:
    """Return the rate of creating, looking up and removing files one call at a time."""
    begun_s = time.perf_counter()
    count = 0
    while (elapsed_s := time.perf_counter() - begun_s) < _BLOCKING_S or not count:
        path = os.path.join(place, b"alone-%d" % count)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.stat(path)
        os.unlink(path)
        count += 1
    return 3 * count / elapsed_s


def _together(place: bytes) -> tuple[int, float]:
    """Return the final number of threads of the asynchronous layer, and its last rate."""
    begun_s = time.perf_counter()
    rate, number = 0.0, 0
    with Files() as io:
        while time.perf_counter() - begun_s < _ROUND_S:
            paths = [os.path.join(place, b"many-%d" % at) for at in range(_AT_ONCE)]
            round_s = time.perf_counter()
            made = [io.submit(ops.mknod(path, 0o600)) for path in paths]
            when_all(made).result()
            seen = [io.submit(ops.stat(path)) for path in paths]
            when_all(seen).result()
            gone = [io.submit(ops.unlink(path)) for path in paths]
            when_all(gone).result()
            rate = 3 * _AT_ONCE / (time.perf_counter() - round_s)
            number += 1
        threads = max(io.threads().values())
    return threads, rate


PREFIX = b".pcircle-doctor-"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MEMORY = frozenset({b"tmpfs", b"devtmpfs"})  # the types of in-memory file systems
_FILE_BYTES = 64 << 10
_HOLE_BYTES = 1 << 20
_STEPS = 5  # the number of steps to measure between distinct change times
_MOST_CHANGES = 20_000


def known(path: bytes) -> Facts:
    """Return the facts that require no trial; raise OSError if the path cannot be examined."""
    status = os.stat(path)
    fd = os.open(path, OPEN_DIRECTORY_FOLLOW)
    try:
        space = os.fstatvfs(fd)
        subvolume = asked(lambda: subvolume_of(fd) is not None)
        type_ = type_of_mount(fd)
    finally:
        os.close(fd)
    device = status.st_dev
    unlisted = "it is not in the list of mounts"
    return {
        "type": Fact(type_.decode(errors="replace")) if type_ else Fact(None, unlisted),
        "size_bytes": Fact(space.f_blocks * space.f_frsize),
        "free_bytes": Fact(space.f_bavail * space.f_frsize),
        "free_inodes": Fact(space.f_favail)
        if space.f_files
        else Fact(None, "the file system does not count them"),
        "read_only": Fact(bool(space.f_flag & os.ST_RDONLY)),
        "lookups_may_block": Fact(type_of_device(device) not in _MEMORY),
        "stable_listings": Fact(StableListing().of(device)),
        "archive_possible": Fact(OfflineDetector().may_have(device)),
        "birth_times": asked(lambda: birth_ns(path, None, follow=True) is not None),
        "lustre": asked(lambda: is_lustre(path)),
        "btrfs_subvolume": subvolume,
        "change_detection": Fact(
            "snapshots of btrfs, change times" if subvolume.value else "change times"
        ),
    }


def possible(path: bytes, send: Callable[[bytes], None]) -> Facts:
    """Return the facts that are determined by trials.

    Pass the path of the scratch directory to `send`. Raise OSError if it cannot be created.
    """
    with _own_directory(path, send) as (place, fd):
        return {
            **_moving(fd),
            **_attributes(fd),
            **_names(place, fd),
            "change_time_step_us": asked(lambda: _step_us(fd)),
            **_thread_facts(place),
        }


@contextmanager
def _own_directory(path: bytes, send: Callable[[bytes], None]) -> Iterator[tuple[bytes, int]]:
    """Create a directory; yield its descriptor, and a path that refers to it even if it is moved.

    The name alone is not safe, because the owner of PATH may replace the directory at any moment.
    """
    place = tempfile.mkdtemp(prefix=PREFIX, dir=os.path.realpath(path))
    try:
        send(place)
        fd = os.open(place, OPEN_DIRECTORY)
        try:
            if os.listdir(fd):
                raise OSError(errno.ENOTEMPTY, "the new directory was replaced by another one")
            try:
                yield b"/proc/self/fd/%d" % fd, fd
            finally:
                _empty(fd)
        finally:
            os.close(fd)
    finally:
        os.rmdir(place)


def remove(place: bytes) -> None:
    """Remove a scratch directory, which contains only files; raise OSError if that fails."""
    fd = os.open(place, OPEN_DIRECTORY)
    try:
        _empty(fd)
    finally:
        os.close(fd)
    os.rmdir(place)


def _empty(fd: int) -> None:
    # Open the directory again, because btrfs lists only entries that existed when it was opened.
    fresh_fd = os.open(b".", OPEN_DIRECTORY, dir_fd=fd)
    try:
        for name in os.listdir(fresh_fd):
            os.unlink(name, dir_fd=fresh_fd)
    finally:
        os.close(fresh_fd)


@contextmanager
def _files(fd: int, *names: bytes) -> Iterator[list[int]]:
    """Create files with these names, fill the first one, and yield their descriptors."""
    fds: list[int] = []
    try:
        for name in names:
            fds.append(os.open(name, _NEW, 0o600, dir_fd=fd))
        write_at(fds[0], memoryview(bytes(range(256)) * (_FILE_BYTES // 256)), 0)
        os.fsync(fds[0])
        yield fds
    finally:
        for opened in fds:
            os.close(opened)
        for name in names:
            if os.access(name, os.F_OK, dir_fd=fd, follow_symlinks=False):
                os.unlink(name, dir_fd=fd)


def _moving(fd: int) -> Facts:
    found: Facts = {}
    with _files(fd, b"source", b"target") as (source, target):
        found["reflink"] = tried(lambda: DataCopier("always").clone(source, target))
    for name, way in (("copy_file_range", copy_range), ("sendfile", send_range)):
        with _files(fd, b"source", b"target") as (source, target):
            found[name] = tried(partial(_moved, way, source, target))
    with _files(fd, b"holes") as (file,):
        os.ftruncate(file, 0)
        write_at(file, memoryview(b"end"), _HOLE_BYTES)
        ranges = list(data_ranges(file, 0, _HOLE_BYTES + 3))
        found["holes"] = Fact(may_have_holes(os.fstat(file)))
        found["reports_holes"] = Fact(ranges[0][0] > 0)
    return found


def _moved(way: Way, source: int, target: int) -> None:
    if way(source, target, 0, _FILE_BYTES) != _FILE_BYTES:
        raise OSError(0, "it copies only part of the data")


def _attributes(fd: int) -> Facts:
    found: Facts = {}
    with _files(fd, b"attributes") as (file,):
        found["xattr"] = tried(lambda: give_attribute(file, "user.pcircle", b"1"))
        # An access control list with an additional user, as (tag, permissions, id).
        entries = (
            (1, 6, 0xFFFFFFFF),
            (2, 4, 0),
            (4, 0, 0xFFFFFFFF),
            (16, 4, 0xFFFFFFFF),
            (32, 0, 0xFFFFFFFF),
        )
        found["acl"] = tried(lambda: _given(file, packed(entries)))
        found["locks"] = tried(lambda: _locked(file))
    found["time_unit_ns"] = asked(lambda: _unit_ns(fd))
    return found


def _given(file: int, access: bytes) -> None:
    give_attribute(file, ACCESS, access)
    if read_list(file) is None:
        raise OSError(0, "it is accepted, but not stored")


def _locked(file: int) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unit_ns(fd: int) -> Value:
    unit_ns = measure_unit_ns(b"times", os.fstat(fd).st_dev, fd)
    if not unit_ns:
        raise OSError(0, "no time could be set")
    return unit_ns


def _names(place: bytes, fd: int) -> Facts:
    found: Facts = {}
    with _files(fd, b"Name", b"m\xc3\xa4rz") as _:
        found["case_folding"] = asked(lambda: bool(folds_name(fd, b"Name", form=False)))
        found["unicode_folding"] = asked(lambda: bool(folds_name(fd, b"m\xc3\xa4rz", form=True)))
    with _files(fd, b"linked"):
        found["hard_links"] = tried(lambda: _linked(fd))
    with _files(fd, b"here", b"there"):
        found["rename_exchange"] = tried(lambda: exchange(b"here", b"there", fd))
    with _files(fd, b"there"):
        os.close(os.open(b"free", _NEW, 0o600, dir_fd=fd))
        found["rename_noreplace"] = tried(lambda: rename_to_free(b"free", b"taken", fd))
    found["symbolic_links"] = tried(lambda: os.symlink(b"x", b"link", dir_fd=fd))
    found["fifos"] = tried(lambda: os.mkfifo(b"fifo", dir_fd=fd))
    found["o_tmpfile"] = tried(lambda: _nameless(place))
    found["directory_fsync"] = tried(lambda: sync_directory(fd, searched=False))
    found["bytes_in_names"] = tried(lambda: os.close(os.open(b"\xff", _NEW, 0o600, dir_fd=fd)))
    return found


def _linked(fd: int) -> None:
    os.link(b"linked", b"other", src_dir_fd=fd, dst_dir_fd=fd)
    os.unlink(b"other", dir_fd=fd)


def _nameless(place: bytes) -> None:
    os.close(os.open(place, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _step_us(fd: int) -> Value:
    """Return the median step between distinct change times; changes within a step look alike."""
    times: list[int] = []
    with _files(fd, b"changed") as (file,):
        for count in range(_MOST_CHANGES):
            os.fchmod(file, 0o600 if count % 2 else 0o640)
            changed_ns = os.fstat(file).st_ctime_ns
            if not times or changed_ns != times[-1]:
                times.append(changed_ns)
            if len(times) > _STEPS:
                break
    if len(times) < 3:
        raise LookupError(f"{_MOST_CHANGES:,} changes had the same time")
    # Ignore the first step, because it began before the first change.
    steps = sorted(after - before for before, after in pairwise(times[1:]))
    return round(steps[len(steps) // 2] / 1000, 1)


# ---- examination in a child process --------------------------------------------------------------

_STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class _Message(msgspec.Struct, omit_defaults=True):
    """A message from the child, sent as a line of JSON, with its directory, facts or a problem."""

    place: bytes = b""
    found: Facts = {}
    trouble: str = ""


def examined(path: bytes, *, trials: bool, deadline_s: float) -> Facts:
    """Return the facts about a path.

    If the child does not finish within `deadline_s`, return the facts that it has sent so far, and
    the problem.
    """
    read_fd, write_fd = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        os.close(read_fd)
        _send_facts(parent, path, write_fd, trials=trials)
    os.close(write_fd)
    with io.FileIO(read_fd) as reader:
        data, in_time = _read(reader, time.monotonic() + deadline_s)
    # The last line may be incomplete, so it is not decoded.
    messages = [msgspec.json.decode(line, type=_Message) for line in data.split(b"\n")[:-1]]
    if not in_time:
        os.kill(child, signal.SIGTERM)
        messages.append(
            _Message(trouble=f"no response within {deadline_s:g} s: the file system may hang")
        )
    else:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            for message in messages:
                if message.place:
                    with suppress(OSError):
                        remove(message.place)
            name = signal.Signals(os.WTERMSIG(status)).name
            messages.append(_Message(trouble=f"the process that examined it was killed by {name}"))
    return _combined(messages, trials=trials)


def _combined(messages: list[_Message], *, trials: bool) -> Facts:
    found: Facts = {}
    for message in messages:
        found |= message.found
    trouble = next((message.trouble for message in messages if message.trouble), "")
    if trouble or not trials:
        found["trials"] = Fact(None, trouble or "--no-trials")
    return found


def _send_facts(parent: int, path: bytes, writer: int, *, trials: bool) -> NoReturn:
    """Examine the path in the child, send the facts to the parent, and exit."""

    def send(message: _Message) -> None:
        write_all(writer, msgspec.json.encode(message) + b"\n")

    for number in _STOP_SIGNALS:
        signal.signal(number, _stop)
    try:
        if not signal_on_parent_exit(parent, signal.SIGTERM):
            raise SystemExit
        send(_Message(found=known(path)))
        if trials:
            send(_Message(found=possible(path, lambda place: send(_Message(place=place)))))
    except OSError as error:
        send(_Message(trouble=reason(error)))
    except Exception as error:
        send(_Message(trouble=f"{type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Exit after a signal; ignore further signals, so that the cleanup is not interrupted."""
    for ignored in _STOP_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise SystemExit


def _read(reader: io.FileIO, ends_s: float) -> tuple[bytes, bool]:
    """Read until the end of file or `ends_s`; return the data, and whether the end was reached."""
    data = b""
    while (left_s := ends_s - time.monotonic()) > 0:
        if select.select([reader], [], [], left_s)[0]:
            block = reader.read(1 << 16)
            if not block:
                return data, True
            data += block
    return data, False
