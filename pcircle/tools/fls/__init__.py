"""fls: list files and trees in parallel. Programs call `listing`.

A directory of up to 4,096 names is listed by the item that reads it, and its sorted text is sent to
rank 0 as one record. The names of a larger directory are looked up in batches by any rank, and the
columns of each name are one record. Rank 0 pads these columns to the widths of all batches.

A record begins with the keys (`Keys` in `plan.py`) of all directories above the entry. Sorting
records as bytes sorts the listing, because descending keys are complemented and times and sizes
have a fixed width. Rank 0 sorts records in bounded memory, and in temporary files if there are
many. A listing therefore needs no directory that all ranks share, and the size of a directory does
not affect its memory. In sorted records the contents of a directory follow it, so `--total` adds
them up in one pass.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.tools.fls.rows import ListReport


def listing(*paths: str | bytes, **options: object) -> ListReport | None:
    """List entries without printing; return the report of `--json`, with `entries`.

    `options` are the options of the command line, by name: ``listing("/scratch", recursive=True,
    sort="-size", jobs=4)``. All entries are held in memory, unless `json`, `csv` or
    `parquet` writes them to a file instead. The result names the entries that could not be listed.
    Under MPI all ranks must call this function, but only the first rank receives a result.

    Raise UsageError if the arguments are invalid.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fls.cli import BARE, parser
    from pcircle.tools.fls.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], BARE)
    args.verbose = args.stats = 0  # nothing is printed
    return program_of(args, collects=True).collected()
