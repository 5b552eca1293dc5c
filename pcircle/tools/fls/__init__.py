"""fls: list files and trees in parallel. Programs call `listing`.

A directory of up to 4,096 names is listed by the item that reads it. Its text, already sorted, goes
to rank 0 as one record. The names of larger directories are looked up in batches by any rank, and
each name is a record of columns. Rank 0 pads the columns to the widths of all batches.

A record begins with a key (`Keys` in `plan.py`) of all directories above the entry. Sorting the
bytes of keys sorts the listing: descending keys are complemented, and times and sizes have a fixed
width. Rank 0 sorts records in bounded memory, and in files if there are many. So a listing needs no
directory that all ranks can access, and its memory does not depend on the width of directories.
Totals of directories (`--total`) follow from the order alone, because the contents of a directory
follow it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.tools.fls.rows import ListReport


def listing(*paths: str | bytes, **options: object) -> ListReport | None:
    """List entries without printing; return the report of `--json`, with `entries`.

    `options` are the options of the command line, by name: ``listing("/scratch", recursive=True,
    sort="-size", jobs=4)``. All entries are in memory, except with `json`, `csv` or `parquet`,
    which write them to a file instead. The result contains the entries that could not be listed.
    Under MPI all ranks must call this function, and only the first rank receives a result.

    Raise UsageError if the arguments are invalid.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fls.cli import BARE, parser
    from pcircle.tools.fls.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], BARE)
    args.verbose = 0  # nothing is printed
    return program_of(args, collects=True).collected()
