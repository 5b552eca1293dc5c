"""Many plain files of a directory at once: the innermost loop of a copy.

Most files are small, dense, regular, stay the same while they are read and have a name that is not
taken. `pcircle.fs.native` copies these. `pcircle.copying.files` copies all other files,
and reports errors.
"""

from __future__ import annotations

import errno
import sys
from itertools import takewhile

from pcircle.copying import target
from pcircle.copying.attributes import AttributeCopier
from pcircle.copying.observers import ObserverSet
from pcircle.copying.settings import CopySettings
from pcircle.fs import native
from pcircle.fs.data import copy_range, ways_of
from pcircle.fs.native.pure import NOT_PLAIN, UNTRIED
from pcircle.fs.xattrs import IGNORED, USER_FLAGS

ONE_READ_BYTES = 128 << 10
MAX_NAMES = 256
"""How many files are copied by one call."""
_CONTENTS_BYTES = 2 * ONE_READ_BYTES
_MAX_RANGE_BYTES = 4 << 20
# The kernel does not copy from the one file system to the other, or a container does not let it.
_NO_RANGES = frozenset(
    -1 - code for code in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
)


class PlainCopier:
    """Copies plain files for one thread. `is_active`: the options allow it.

    `offer` is how many files to give to one call: few where many are not plain, which ends it.
    """

    def __init__(
        self,
        settings: CopySettings,
        extras: AttributeCopier,
        watch: ObserverSet,
        *,
        is_active: bool,
    ) -> None:
        self.is_active = is_active
        self.offer = 1
        self._extras = extras
        self._watch = watch
        self._flags = settings.source_flags
        self._bits = target.creation_bits(settings)
        self._inode_flags = USER_FLAGS if settings.keep.flags else 0
        # A file that is reached through a link may have any number of names.
        self._max_links = sys.maxsize if not settings.keep.links else 0 if settings.follow else 1
        # What the kernel copies is not seen, and may become a clone.
        ways = ways_of(settings.reflink, settings.sparse)
        is_range = copy_range in ways and not watch.reads
        self._range_bytes = min(settings.large_bytes, _MAX_RANGE_BYTES) if is_range else 0
        # Memory for the content of one file, or of some of them.
        self._contents_bytes = 0
        if watch.reads:
            self._contents_bytes = ONE_READ_BYTES + 1 if watch.is_limited else _CONTENTS_BYTES

    def copy(
        self,
        names: list[bytes],
        source_fd: int | list[int],
        target_fd: int | list[int],
        device: int,
        until_ns: int,
    ) -> list[int]:
        """Copy what is plain of at most `MAX_NAMES` files of source directories on `device`.

        All are in one directory, or each name has a descriptor of its own for both sides.

        Return the sizes of the files that were tried until `until_ns` of `time.monotonic_ns`. The
        first file that is not plain, or fails, is the last: its size is negative, and nothing is
        left of it. The list may be empty after a signal.
        """
        watch = self._watch
        if watch.is_limited:
            watch.attempt(0)
            names = names[:1]
        is_known = device >= 0  # it is not if the directory can no longer be read
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
        if watch.any:
            self._tell(names, sizes, contents)
        return sizes

    def _tell(self, names: list[bytes], sizes: list[int], contents: bytes) -> None:
        """Tell the observers of files that were copied."""
        watch, view, begin = self._watch, memoryview(contents), 0
        for name, size in zip(names, sizes, strict=False):
            if size >= 0:
                watch.due(size)
                if watch.reads:
                    watch.small(view[begin : begin + size])
                    begin += size
                watch.copied(name, size)
                watch.settled(name)
