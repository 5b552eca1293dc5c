"""The options of fls: their declarations, values and checks.

This module is imported before the command line is parsed. The parsers import what they need.
"""

from __future__ import annotations

import os
from typing import Any

from pcircle.cli.declarations import Option, Section, option, override
from pcircle.cli.options import CommonOptions
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.core.writing import CALLER

TIMES = ("mtime", "atime", "ctime")
KEYS = ("name", "size", *TIMES, "owner", "group", "kind")
NONE = "none"

_TIME_WORDS = {"modification": "mtime", "access": "atime", "use": "atime", "status": "ctime"}
_WHEN = ("always", "auto", "never")
_ROWS = ("json", "csv", "parquet")


def _time(name: str, text: str) -> str:
    word = _TIME_WORDS.get(text, text)
    if word not in TIMES:
        raise UsageError(f"{name}: unknown '{_shown(word)}'; choose from {', '.join(TIMES)}")
    return word


def _style(_: str, text: str) -> str:
    from pcircle.cli.listing import Times

    Times(text, 0)  # raises UsageError for an invalid style
    return text


def _keys(name: str, text: str) -> tuple[tuple[str, bool], ...]:
    """Return the sort fields, each with a flag for descending order."""
    if text == NONE:
        return ()
    found = tuple((word.removeprefix("-"), word.startswith("-")) for word in text.split(","))
    for key, _ in found:
        if key not in (*KEYS, "time"):
            known = ", ".join((*KEYS, NONE))
            raise UsageError(f"{name}: unknown '{_shown(key)}'; choose from {known}")
    return found


def _shown(text: str) -> str:
    return show(os.fsencode(text))


def _sorted_by(name: str, keys: str, text: str) -> Option:
    return Option(name, dest="by", action="store_const", const=keys, help=text)


def _when(name: str, text: str) -> Any:
    return option(
        name, bare="always", metavar="WHEN", choices=_WHEN, help=f"{text}: always, auto, never"
    )


class ListOptions(CommonOptions, done="listed"):
    """The options of fls.

    `hidden` is 1 if names that begin with a dot are listed, and 2 if ``.`` and ``..`` are listed
    too.
    """

    _entries = Section("Entries")
    _recursive = CommonOptions.RECURSIVE
    recursive: bool = override(names=("-R", "--recursive"), help="list subdirectories recursively")
    directory: bool = option(
        "-d",
        "--directory",
        excludes=("total", "files_from"),
        help="list directories themselves, not their contents",
    )
    hidden: int = option(
        "-a",
        "--all",
        dest="hidden",
        action="store_const",
        const=2,
        default=0,
        help="include names that begin with a dot",
        also=(
            Option(
                "-A",
                "--almost-all",
                dest="hidden",
                action="store_const",
                const=1,
                help="like -a, but omit . and .. themselves",
            ),
        ),
    )

    _format = Section("Format")
    long: bool = option("-l", dest="long", help="use the long format: mode, owner, size, time")
    one: bool = option("-1", dest="one", help="list one name per line")
    numeric: bool = option(
        "-n", "--numeric-uid-gid", help="like -l, with numeric owners and groups"
    )
    no_owner: bool = option("-g", dest="no_owner", help="like -l, without the owner")
    no_group: bool = option("-o", dest="no_group", help="like -l, without the group")
    human: bool = option("-h", "--human-readable", help="show sizes such as 1.5K, 234M and 2.0G")
    inode: bool = option("-i", "--inode", help="show inode numbers")
    space: bool = option("-s", "--size", help="show allocated blocks, in KiB")
    time: str | None = option(
        "--time",
        metavar="WORD",
        parse=_time,
        words=TIMES,
        help="time to show and sort by: mtime, atime, ctime",
    )
    style: str | None = option(
        "--time-style",
        metavar="STYLE",
        parse=_style,
        words=("full-iso", "long-iso", "iso", "locale"),
        help="format of times: locale, full-iso, long-iso, iso, +FORMAT",
    )
    full_time: bool = option("--full-time", help="like -l, with nanoseconds and time zone")
    classify: bool = option("-F", "--classify", help="append one of */=@| to names")
    color: str | None = _when("--color", "colour names")
    hyperlink: str | None = _when("--hyperlink", "print names as hyperlinks")
    context: bool = option("-Z", "--context", help="show security contexts")
    acl: bool = option("--acl", help="show access control lists")
    xattr: bool = option("--xattr", help="show names of extended attributes")
    total: bool = option(
        "--total",
        excludes=("by", "list_out", "json_lines"),
        help="show totals of directories instead of entries",
    )

    _order = Section("Order")
    by: tuple[tuple[str, bool], ...] | None = option(
        "--sort",
        dest="by",
        metavar="KEYS",
        parse=_keys,
        word_list=(*KEYS, NONE),
        called="a sort order",
        help="sort keys: name, size, mtime ... (minus: descending)",
        also=(
            _sorted_by("-S", "-size", "largest first"),
            _sorted_by("-t", "-time", "newest first"),
            _sorted_by("-U", NONE, "do not sort"),
        ),
    )
    reverse: bool = option("-r", "--reverse", help="reverse the order")
    directories_first: bool = option(
        "--group-directories-first", help="list directories before files"
    )

    _rows = Section("Rows instead of text")
    csv: str | None = option(
        "--csv",
        metavar="FILE",
        excludes=("parquet", "total"),
        help="write one CSV row per entry (-: standard output)",
    )
    parquet: str | None = option(
        "--parquet",
        metavar="FILE",
        excludes=("total",),
        help="write one Parquet row per entry (requires pyarrow)",
    )
    digest: bool = option(
        "--sum", excludes=("total",), help="add the signature of each file, as printed by fsum"
    )

    _filters = CommonOptions.FILTERS
    null: bool = override(help="end list entries and printed lines with NUL, not newline")
    _one_file_system = CommonOptions.ONE_FILE_SYSTEM
    _safety = CommonOptions.SAFETY

    _performance = CommonOptions.PERFORMANCE
    _op_timeout = CommonOptions.OP_TIMEOUT
    _ops_limit = CommonOptions.OPS_LIMIT
    operations_per_s: float | None = override(help="total limit on entries per second")
    _polite = CommonOptions.POLITE
    _stop = CommonOptions.STOP

    _output = CommonOptions.OUTPUT
    json: str | None = override(
        excludes=("csv", "parquet", "total"),
        help="write one JSON row per entry (-: standard output)",
    )
    _records = CommonOptions.RECORDS

    @property
    def prints_null(self) -> bool:
        return True

    @property
    def is_long(self) -> bool:
        """Return whether the long format is requested, by any option."""
        given = self.long, self.numeric, self.no_owner, self.no_group, self.full_time
        return any(given)

    @property
    def sees_hidden(self) -> bool:
        """Return whether names that begin with a dot are listed."""
        return bool(self.hidden or self.total or self.files_from is not None)

    @property
    def rows(self) -> tuple[str, str] | None:
        """The format and the file of the rows that replace the listing."""
        files = ((name, getattr(self, name)) for name in _ROWS)
        return next((found for found in files if found[1] is not None), None)

    @property
    def keys(self) -> tuple[tuple[str, bool], ...]:
        """The sort fields, each with a flag for descending order; empty if nothing is sorted."""
        by = self.by
        if by is None:
            # As in ls, --time selects the sort order if the time is not displayed.
            by = (("name", False),) if self.time is None or self.is_long else (("time", True),)
        keys = [
            (self.time or TIMES[0] if key == "time" else key, descends != self.reverse)
            for key, descends in by
        ]
        if keys and all(key != "name" for key, _ in keys):
            keys.append(("name", self.reverse))
        return tuple(keys)

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.digest and self.rows is None and not CALLER.get():
            raise UsageError("--sum requires --json, --csv or --parquet")
        if self.list_out == "-":
            raise UsageError("--list-out: standard output is used for the listing; specify a file")
        written = (self.list_out, self.json_lines, self.error_log, self.files_from)
        named = [*written, *(getattr(self, name) for name in _ROWS)]
        for name in written:
            if name is not None and named.count(name) > 1:
                raise UsageError(f"'{_shown(name)}' is used by two options")
