"""The commands `fbench make` and `fbench corrupt`, which use a single process."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from functools import partial

import msgspec

from pcircle.cli.output import MessageStream
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError
from pcircle.core.units import plural
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.jobs.failures import LogFile, open_log
from pcircle.tools.fbench.options import BenchOptions
from pcircle.tools.fbench.tree_maker import Shape, corrupt, make, prepare, read_record
from pcircle.transport.launch import launched

_TAKEN = {
    "make": ("seed", "shape", "record", "quiet"),
    "corrupt": ("seed", "made", "changes", "record", "quiet"),
}


def carry_out(word: str, args: argparse.Namespace) -> int:
    """Create or corrupt a tree, and return the exit code; raise UsageError for invalid options.

    If a launcher has started several ranks, only the first rank does the work.
    """
    for field, option in BenchOptions.offered():
        if option.is_given(args) and field not in _TAKEN[word]:
            raise UsageError(f"fbench {word} does not take {option.name}")
    options = BenchOptions.of(args, folder=os.fsencode(args.operands[1]))
    if launched().rank:
        return 0
    folder, changes = options.folder, options.changes
    if word == "make":
        root_fd = prepare(folder)
        what, work = "made", partial(make, root_fd, options.seed, options.shape or Shape())
    elif options.made is None:
        raise UsageError("fbench corrupt requires --made, the record that fbench make wrote")
    else:
        made = read_record(options.made)
        root_fd = _opened(folder)
        what, work = "corrupted", partial(corrupt, root_fd, options.seed, changes, made)
    out = MessageStream(sys.stderr)
    record = _Record(options.record, folder, out)
    try:
        count = work(record.add)
    except OSError as error:
        name = f" '{show(os.fsencode(error.filename))}'" if error.filename else ""
        out.line(f"fbench: cannot {word}{name}: {error.strerror}")
        return EntriesFailed.exit_code
    finally:
        os.close(root_fd)
        record.close()
    if not options.quiet:
        noun = (
            plural(count, "entry", "entries") if word == "make" else plural(count, "file", "files")
        )
        out.line(f"fbench: {noun} {what} in '{show(folder)}'")
    too_few = word == "corrupt" and count < changes
    if too_few:
        out.line(f"fbench: fewer than the {changes:,} requested files could be corrupted")
    return EntriesFailed.exit_code if too_few or record.failed else 0


def _opened(folder: bytes) -> int:
    try:
        return os.open(folder, OPEN_DIRECTORY_FOLLOW)
    except OSError as error:
        raise UsageError(f"cannot open '{show(folder)}': {error.strerror}") from None


class _Record:
    """The output for the record: FILE or standard output."""

    def __init__(self, name: str | None, folder: bytes, out: MessageStream) -> None:
        self._results = Results("fbench", None, out.line)
        self._log: LogFile | None = None
        self._encode = msgspec.json.Encoder().encode
        if name is not None:
            holder = os.path.realpath(os.path.dirname(os.fsencode(name)) or b".")
            if (holder + b"/").startswith(os.path.realpath(folder) + b"/"):
                raise UsageError("--record: the record would be inside the tree")
            self._log = LogFile(open_log(name, "--record"))

    @property
    def failed(self) -> bool:
        return self._results.failed

    def add(self, line: msgspec.Struct) -> None:
        text = self._encode(line) + b"\n"
        if self._log is None:
            self._results.text([text])
            if self._results.failed:
                raise OSError(errno.EIO, "the record cannot be written")
        else:
            self._log.append(text)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
