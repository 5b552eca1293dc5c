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
from pcircle.core.units import invalid, plural, positive
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW
from pcircle.jobs.failures import LogFile, open_log
from pcircle.tools.fbench.tree_maker import MAX_NUMBER, make, prepare, shape_of
from pcircle.transport.launch import launched

_OWN = ("record", "made", "seed", "changes", "shape", "quiet", "operands", "words", "unjoined")
_DIGITS = 18


def carry_out(word: str, args: argparse.Namespace) -> int:
    """Create or corrupt a tree, and return the exit code; raise UsageError for invalid options.

    If a launcher has started several ranks, only the first rank does the work.
    """
    _refuse_others(word, args)
    folder = os.fsencode(args.operands[1])
    seed = _seed(args.seed)
    if launched().rank:
        return 0
    shape = shape_of(args.shape)
    changes = 10 if args.changes is None else positive("--changes", args.changes, MAX_NUMBER)
    if word == "make":
        root_fd = prepare(folder)
        what, work = "made", partial(make, root_fd, seed, shape)
    else:
        from pcircle.tools.fbench.tree_maker import corrupt, read_record

        made = read_record(args.made)
        root_fd = _opened(folder)
        what, work = "corrupted", partial(corrupt, root_fd, seed, changes, made)
    out = MessageStream(sys.stderr)
    record = _Record(args.record, folder, out)
    try:
        count = work(record.add)
    except OSError as error:
        name = f" '{show(os.fsencode(error.filename))}'" if error.filename else ""
        out.line(f"fbench: cannot {word}{name}: {error.strerror}")
        return EntriesFailed.exit_code
    finally:
        os.close(root_fd)
        record.close()
    if not args.quiet:
        noun = (
            plural(count, "entry", "entries") if word == "make" else plural(count, "file", "files")
        )
        out.line(f"fbench: {noun} {what} in '{show(folder)}'")
    too_few = word == "corrupt" and count < changes
    if too_few:
        out.line(f"fbench: fewer than the {changes:,} requested files are unchanged")
    return EntriesFailed.exit_code if too_few or record.failed else 0


def _refuse_others(word: str, args: argparse.Namespace) -> None:
    """Raise UsageError if an option does not apply or a required option is missing."""
    given = {name for name, value in vars(args).items() if value not in (None, False, [])}
    given -= {*_OWN, *("transport",) * (args.transport == "auto")}
    given -= {*("block_size",) * (args.block_size == "1M")}
    unused = sorted(given)
    if word == "make":
        unused += [name for name in ("made", "changes") if getattr(args, name) is not None]
    elif args.shape is not None:
        unused.append("shape")
    if unused:
        raise UsageError(f"fbench {word} does not take --{unused[0].replace('_', '-')}")
    if word == "corrupt" and args.made is None:
        raise UsageError("fbench corrupt requires --made, the record of fbench make")


def _seed(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isdecimal() or len(text) > _DIGITS:
        raise invalid("--seed", text, "must be 0 or a positive integer")
    return int(text)


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
                raise UsageError("--record: the record would be in the tree")
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
