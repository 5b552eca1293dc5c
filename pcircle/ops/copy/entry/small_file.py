"""The innermost loop of a copy: many plain files of a directory at once.

Most files are small, dense and regular, do not change while they are read, and have a free name.
`pcircle.fs.native` copies these. `pcircle.ops.copy.entry.files` copies all other files and reports
errors.
"""

from __future__ import annotations

import errno
import sys
from itertools import takewhile

from pcircle.fs import native
from pcircle.fs.attributes.xattrs import IGNORED, USER_FLAGS
from pcircle.fs.data import copy_range, ways_of
from pcircle.fs.native.pure import NOT_PLAIN, UNTRIED
from pcircle.ops.copy.entry import target
from pcircle.ops.copy.entry.attributes import AttributeCopier
from pcircle.ops.copy.entry.observers import ObserverSet
from pcircle.ops.copy.entry.settings import CopySettings

ONE_READ_BYTES = 128 << 10
MAX_NAMES = 256
"""The maximum number of files per call."""
_CONTENTS_BYTES = 2 * ONE_READ_BYTES
_MAX_RANGE_BYTES = 4 << 20
# Errors of copy_file_range between file systems that do not support it, or in a container that
# does not permit it.
_NO_RANGES = frozenset(
    -1 - code for code in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
)


class PlainCopier:
    """Copies plain files for one thread; `is_active` means that the options permit it.

    `offer` is the number of files to pass to the next call. It is small where many files are not
    plain, because each of these ends a call.
    """

    def __init__(
        self,
        settings: CopySettings,
        extras: AttributeCopier,
        observers: ObserverSet,
        *,
        is_active: bool,
    ) -> None:
        self.is_active = is_active
        self.offer = 1
        self._extras = extras
        self._observers = observers
        self._flags = settings.source_flags
        self._bits = target.creation_bits(settings)
        self._inode_flags = USER_FLAGS if settings.keep.flags else 0
        # A file reached through a symbolic link may have any number of names.
        self._max_links = sys.maxsize if not settings.keep.links else 0 if settings.follow else 1
        # Data that the kernel copies is invisible to observers, and may become a clone.
        ways = ways_of(settings.reflink, settings.sparse)
        is_range = copy_range in ways and not observers.reads
        self._range_bytes = min(settings.large_bytes, _MAX_RANGE_BYTES) if is_range else 0
        # Memory for the contents of one or several files.
        self._contents_bytes = 0
        if observers.reads:
            self._contents_bytes = ONE_READ_BYTES + 1 if observers.is_limited else _CONTENTS_BYTES

    def copy(
        self,
        names: list[bytes],
        source_fd: int | list[int],
        target_fd: int | list[int],
        device: int,
        until_ns: int,
    ) -> list[int]:
        """Copy the plain ones of at most `MAX_NAMES` files of source directories on `device`.

        All names are in one directory, or each name has its own descriptors on both sides.

        Return the sizes of the files that were tried until `until_ns` of `time.monotonic_ns`. The
        first file that is not plain, or fails, ends the call: its size is negative, and no copy of
        it remains. The list may be empty after a signal.
        """
        observers = self._observers
        if observers.is_limited:
            observers.attempt(0)
            names = names[:1]
        is_known = device >= 0  # false if the directory is no longer readable
        keep = self._extras.plain_bits(device) if self.is_active and is_known else None
        if keep is None:
            return [NOT_PLAIN]
        owner, group = self._extras.owner_of_made()
        result, contents = native.copy_files(
            source_fd,
            target_fd,
            names,
            self._flags,
            self._bits,
            keep,
            self._inode_flags,
            IGNORED,
            self._max_links,
            ONE_READ_BYTES,
            self._range_bytes,
            device,
            owner,
            group,
            until_ns,
            self._contents_bytes,
        )
        sizes = list(takewhile(UNTRIED.__ne__, native.numbers(result)))
        if sizes and sizes[-1] in _NO_RANGES:
            self._range_bytes = 0
        if sizes and sizes[-1] < 0:
            self.offer = 1
        else:
            self.offer = min(2 * self.offer, MAX_NAMES)
        if observers.any:
            self._notify_observers(names, sizes, contents)
        return sizes

    def _notify_observers(self, names: list[bytes], sizes: list[int], contents: bytes) -> None:
        """Notify the observers of copied files."""
        observers, view, begin = self._observers, memoryview(contents), 0
        for name, size in zip(names, sizes, strict=False):
            if size >= 0:
                observers.due(size)
                if observers.reads:
                    observers.small(view[begin : begin + size])
                    begin += size
                observers.copied(name, size)
                observers.settled(name)
