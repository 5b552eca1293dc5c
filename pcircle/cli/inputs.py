"""Lists of paths and filters that options name, and checks of operands. Errors name the option.

`--strict-operands` permits only operands that rules of sudo(8) can specify. A path is checked
before any action, and each rank then opens it without following links. So a link that is created in
the meantime is not followed either.
"""

from __future__ import annotations

import io
import os
import select
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, BinaryIO

import msgspec

from pcircle.core.encoding import COMMENT, show
from pcircle.core.errors import UsageError
from pcircle.fs.safe_open import directory, reading
from pcircle.transport.launch import launched
from pcircle.walk.globs import Rule, read_rule, read_rules

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from pcircle.cli.options import CommonOptions
    from pcircle.fs.lists import Lists
    from pcircle.walk.roots import Root


_STRICT = "--strict-operands"
_NOT_NORMAL = (b"", b".", b"..")
_LISTEN_MS = 200


def open_input(name: str | bytes, *, option: str = "") -> BinaryIO:
    """Open a file for reading; if an `option` names it, `-` is standard input. Raises OSError.

    The file is treated as untrusted (`pcircle.fs.safe_open`), and signals can interrupt reads.
    Raises UsageError for standard input under a launcher.
    """
    path = os.fsencode(name)
    if option and path == b"-":
        if launcher := launched().launcher:
            raise UsageError(
                f"{option}: cannot read standard input under {launcher}: launchers lose data or "
                "hang beyond 64 KiB; write the list to a file and specify that file"
            )
        return _interruptible(open(0, "rb", buffering=0, closefd=False))
    return _interruptible(open(reading(path, waits=True), "rb", buffering=0))


def _interruptible(raw: io.FileIO) -> BinaryIO:
    if stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return io.BufferedReader(raw)
    return io.BufferedReader(_Waited(raw))


class _Waited(io.RawIOBase):
    """A pipe or terminal that waits for input in Python.

    `io.FileIO` runs signal handlers only if a signal interrupts its system call. A signal just
    before the call, or between the reads that fill a buffer, would be handled only when more input
    arrives, which may be never.
    """

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLIN)
        while not waiting.poll(_LISTEN_MS):
            pass  # signal handlers run between two calls
        return os.readv(self.fileno(), [buffer])

    def close(self) -> None:
        self._raw.close()
        super().close()


def read_paths(
    name: str,
    *,
    null: bool,
    whole: bool | None,
    strict: bool = False,
    note: Callable[[str], None] | None = None,
    option: str = "--files-from",
    complete: bool = False,
) -> Iterator[bytes]:
    """Yield a record for each path in a file; paths are lines or NUL-terminated.

    `-` is standard input. Lines that begin with `#` or `;` are comments, as in rsync; `note`
    reports their number at the end. `option` is the option that named the file. Raises UsageError
    if the file cannot be read or a path is not below the root. If `complete` is set, a list that
    may be truncated (`must_end`) is an error too.
    """
    from pcircle.fs.lists import record_of  # few runs have a list
    from pcircle.fs.sorting import pieces

    end = b"\0" if null else b"\n"
    file_shown = show(os.fsencode(name))
    comments = 0
    try:
        with open_input(name, option=option) as stream:
            must = complete and must_end(stream, null=null)
            for number, path in enumerate(pieces(stream, end, complete=must), 1):
                try:
                    if not null and path.startswith(COMMENT):
                        comments += 1
                    elif b"\0" in path:
                        raise ValueError(
                            "it contains NUL characters; for a NUL-terminated list, add --null"
                        )
                    elif path:
                        yield record_of(path, whole=whole, strict=strict)
                except ValueError as error:
                    where = f"'{show(path)}' (number {number} in '{file_shown}')"
                    raise UsageError(f"{option}: {where}: {error}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{option}: cannot read '{file_shown}': {reason}") from None
    if comments and note is not None:
        lines = "1 line" if comments == 1 else f"{comments:,} lines"
        note(
            f"{option}: skipped {lines} of comments (starting with '#' or ';') in '{file_shown}'; "
            "write './#name' to list such a file"
        )


def must_end(stream: IO[bytes], *, null: bool) -> bool:
    """Return whether the last name of a list must be terminated.

    A program that is killed while it is writing a list may leave a truncated name, which could name
    another entry. Only in a regular file may the last line lack a newline, because some editors
    omit it.
    """
    return null or not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


def lists_of(
    options: CommonOptions,
    roots: Sequence[Root],
    complain: Callable[[str], None],
    *,
    whole: bool | None = False,
    strict: bool = False,
    complete: bool = False,
) -> Lists:
    """Return the paths that `--files-from` names below the only root, a directory.

    If `whole` is True, listed directories include their contents; if it is None, not even a
    trailing slash includes them. If `strict` is set, a path with a trailing slash must be a
    directory. `complete` is passed to `read_paths`. Raises UsageError.
    """
    from pcircle.fs.lists import sort  # few runs have a list

    if len(roots) != 1 or roots[0].name:
        raise UsageError("--files-from requires one PATH, a directory")
    note = None if options.quiet else complain
    name = options.files_from or ""
    found = read_paths(
        name, null=options.null, whole=whole, strict=strict, note=note, complete=complete
    )
    return sort([(0, found)])


def rules_of(
    filters: Sequence[tuple[str, bytes]], *, null: bool, complete: bool = False
) -> tuple[Rule, ...]:
    """Return the rules of the filter options and of the files that they name, in order.

    `filters` contains pairs of "exclude" or "include" and a pattern, or of "exclude-from" or
    "include-from" and a file, whose lines are NUL-terminated if `null`. `complete` is passed to
    `must_end`. Raises UsageError.
    """
    rules: list[Rule] = []
    for option, text in filters:
        kind, _, from_file = option.partition("-")
        include = kind == "include"
        try:
            if from_file:
                with open_input(text) as stream:
                    data = stream.read()
                    if complete and data and must_end(stream, null=null):
                        from pcircle.fs.sorting import refuse_cut  # few runs have a list

                        refuse_cut(data, b"\0" if null else b"\n")
                    found = list(read_rules(data, include=include, null=null))
            else:
                found = [read_rule(text, include=include)]
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"--{option} '{show(text)}': {reason}") from None
        for rule in found:
            if rule is None:
                rules.clear()
            else:
                rules.append(rule)
    return tuple(rules)


def refuse_nonstrict(paths: Iterable[bytes]) -> None:
    """Raise UsageError for a path that is not absolute and normal, or that contains a link."""
    for path in paths:
        why = _strictness_problem(path)
        if why:
            raise UsageError(f"{_STRICT}: '{show(path)}' {why}")


def refuse_elsewhere(path: bytes, shown: bytes) -> None:
    """Raise UsageError if the path that will be opened differs from the operand."""
    if path.rstrip(b"/") != shown.rstrip(b"/"):
        raise UsageError(f"{_STRICT}: '{show(shown)}' resolves to a different path")


def strictly(roots: Sequence[Root]) -> tuple[Root, ...]:
    """Return the roots, marked to be opened without following links.

    Raises UsageError if one leads elsewhere than its operand.
    """
    for root in roots:
        refuse_elsewhere(os.path.join(root.holder, root.name or root.within), root.shown)
    return tuple(msgspec.structs.replace(root, strict=True) for root in roots)


def _strictness_problem(path: bytes) -> str:
    if not path.startswith(b"/"):
        return "is not absolute"
    parts = path[1:].split(b"/")
    if path != b"/" and not all(part not in _NOT_NORMAL for part in parts):
        return "is not normalized: it contains '.', '..', '//' or a trailing slash"
    holder, name = os.path.split(path)
    try:
        fd = directory(holder, linkless=True)
        try:
            is_link = name and os.readlink(name, dir_fd=fd) is not None
        finally:
            os.close(fd)
    except OSError as error:
        # A missing path is reported by the tool; an error without errno refers to a link.
        return f"was refused: {error.strerror}" if error.errno is None else ""
    return "is a symbolic link" if is_link else ""
