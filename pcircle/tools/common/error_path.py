"""The path that refused: an entry's own, or that of its copy.

Work reports a failure by the source path and the operation. The operation shows whether it
concerned the copy, and only here, where a person is told, the path of the copy is composed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import msgspec

from pcircle.fs.entry_errors import COLLISION
from pcircle.jobs.failures import Failure
from pcircle.ops.copy.tree.plan import Root

_OF_COPY = " the copy of"
# What reads differently of a path than of a copy.
_WORDS = {
    "reach": "open",
    "finish": "close",
    "rename": "rename the copy to",
}
_OF_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EOPNOTSUPP)


def with_path(failure: Failure, roots: Sequence[Root]) -> Failure:
    """Return the failure with the path that refused, which may be that of the copy."""
    if failure.kind == COLLISION:  # of two sources: which is to give way the user must decide
        return msgspec.structs.replace(failure, doing="copy")
    trying, of_copy, rest = f"{failure.doing} ".partition(f"{_OF_COPY} ")
    if failure.doing == "read the existing copy of":
        trying, of_copy, rest = "read existing", _OF_COPY, ""
    elif trying == "copy " and failure.errno in _OF_WRITES:
        trying, of_copy = "write", _OF_COPY
    if not of_copy:
        return failure
    target = roots[failure.root].target_shown
    path = os.path.join(target, failure.entry) if failure.entry else target
    doing = f"{_WORDS.get(trying, trying)} {rest}".rstrip()
    return msgspec.structs.replace(failure, path=path, doing=doing)
