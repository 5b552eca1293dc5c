"""The options of ffind: their declarations, values and checks.

The expression selects entries, in place of most filters of other tools. This module is imported
before the command line is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions, most_of
from pcircle.core.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

OF_NAMES = ("path", "name", "ext", "depth")
"""The sort keys that require no status of entries."""
KEYS = (
    *OF_NAMES[:3], "size", "blocks", "mtime", "ctime", "atime", "inode", "links", "uid", "gid",
    "user", "group", *OF_NAMES[3:],
)  # fmt: skip
_MAX_TOP = 1_000_000


def _keys(name: str, text: str) -> tuple[str, ...]:
    fields = tuple(text.split(","))
    for field in fields:
        if field.removeprefix("-") not in KEYS:
            raise UsageError(f"{name}: unknown key '{field}'; choose from {', '.join(KEYS)}")
    return fields


class FindOptions(CommonOptions, done="found"):
    """The options of ffind. `sort` and `by` are keys, with a dash for descending order."""

    _search = Section("Search")
    sort: tuple[str, ...] | None = option(
        "--sort",
        bare="path",
        metavar="KEYS",
        parse=_keys,
        word_list=KEYS,
        help="sort by KEYS, such as size,-mtime (default: path)",
    )
    top: int | None = option(
        "--top",
        metavar="N",
        parse=most_of(_MAX_TOP),
        help="print only the N largest, or the first N by --by",
    )
    by: tuple[str, ...] = option(
        "--by",
        metavar="KEYS",
        parse=_keys,
        otherwise=("size",),
        word_list=KEYS,
        requires=("top",),
        help="sort keys of --top (default: size)",
    )
    stat: Literal["auto", "never"] = option(
        "--stat",
        choices=("auto", "never"),
        default="auto",
        help="never: refuse tests that need a lookup (default: auto)",
    )
    within: str | None = option(
        "--in",
        dest="within",
        metavar="INDEX",
        takes="file",
        excludes=("polite", "strict_operands", "skip_offline"),
        help="search a saved index, not the file system",
    )
    _dry_run = CommonOptions.DRY_RUN
    dry: bool = override(help="show what would be removed or executed")
    _plans = CommonOptions.PLANS
    apply: str | None = override(excludes=("sort", "top", "by", "within", "stat=never"))

    _filters = Section("Filters", "Patterns work as in rsync.")
    _selected = taken("filters", "skip_offline", "null")
    skip_offline: bool = override(excludes=("stat=never",))
    _safety = CommonOptions.SAFETY

    _performance = CommonOptions.PERFORMANCE
    _op_timeout = CommonOptions.OP_TIMEOUT
    _ops_limit = CommonOptions.OPS_LIMIT
    operations_per_s: float | None = override(help="total limit on removals per second")
    _polite = CommonOptions.POLITE
    _stop = CommonOptions.STOP

    _output = CommonOptions.OUTPUT
    _records = CommonOptions.RECORDS
    list_out: str | None = override(
        help="write a list of the entries found, for use with other tools"
    )
    json_lines: str | None = override(help="write a line of JSON for each removal")

    def reporting(self, *, removes: bool) -> Self:
        """Return the options with `quiet` set unless a summary is expected.

        By default, only a dry run of a search that `removes` entries prints a summary.
        """
        dry = removes and (self.dry or self.plan is not None)
        is_asked = self.verbose or self.progress == "always" or dry
        return self.replace(quiet=self.quiet or not is_asked)

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.top is not None and self.sort is not None:
            raise UsageError("--top cannot be combined with --sort; it takes --by")
        if self.within is not None and self.filters:
            raise UsageError("--in cannot be combined with filters; see -exclude")
