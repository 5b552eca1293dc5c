"""fls: list files and trees in parallel. `listing` is the command, for programs.

A directory of up to 4,096 names is listed by the item that reads it. Its text, already sorted, goes
to rank 0 as one record. The names of larger directories are looked up in batches by any rank, and
each name is a record of columns; rank 0 pads the columns to the widths of all batches.

A record begins with a key (`keys.py`) of all directories above the entry. Keys are made so that
sorting their bytes sorts the listing: descending keys are complemented, times and sizes have a
fixed width. Rank 0 sorts records in bounded memory, in files if there are many. So a listing needs
no directory that all ranks see, and its memory does not depend on the width of directories. Totals
of directories (`--total`) follow from the order alone, because everything below a directory stands
behind it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.tools.fls.export import ListReport


def listing(*paths: str | bytes, **options: object) -> ListReport | None:
    """List as the command does, and print nothing; what `--json` would write, with `entries`.

    `options` are the options of the command line, by name: ``listing("/scratch", recursive=True,
    sort="-size", jobs=4)``. All entries are in memory then, but with `json`, `csv` or `parquet`,
    whose file has them in place of the result. Entries that could not be listed are in the result.
    Under MPI all ranks call it, and only the first has a result.

    UsageError if it is refused.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fls.cli import BARE, parser
    from pcircle.tools.fls.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], BARE)
    args.verbose = 0  # nothing is printed
    return program_of(args, collects=True).collected()
