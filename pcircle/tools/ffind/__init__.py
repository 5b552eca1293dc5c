"""ffind: find entries in trees in parallel. Other programs call `find`.

`language` parses the expression on every rank without access to files. Rank 0 resolves files, users
and dates in the expression. `eval` compiles the expression once for each kind of entry, so that
`-type f` costs nothing for a regular file. Tests of names select from all names of a directory at
once, then tests of status select rows of the status table. Only the remaining rows become entries.

Output is sent to rank 0 together with the events of `-limit` and `-quit`, in the order in which
they happened, so a limit is exact on any number of ranks. `--sort` is an external sort on rank 0. A
parallel sort would pay off only if sorting took longer than searching.

`--in` evaluates the same expression over the sections of an index (`index_search.py`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pcircle.tools.ffind.plan import FindResult


def find(
    *words: str | bytes, output: Callable[[bytes], object] | None = None, **options: object
) -> FindResult | None:
    """Search without printing, and return the output and the report.

    `words` are paths and the words of an expression. `options` are the options of the command line,
    by name: ``find("/data", "-name", "*.h5", "-print0", jobs=4).paths``. The result contains the
    bytes that the command would write to standard output, unless `output` receives them in pieces.
    The report in the result lists failed entries. Under MPI all ranks must call this function, and
    only the first rank receives a result.

    Raise UsageError if the arguments are invalid. For `max_delete`, see `pcircle.tools.frm.remove`.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.ffind.cli import parser
    from pcircle.tools.ffind.command import program_of
    from pcircle.tools.ffind.plan import FindResult

    given = [word if isinstance(word, str) else text_of(word) for word in words]
    args = parser().parse([*words_of(options), *given], {})
    args.verbose = args.stats = 0  # nothing is printed
    program = program_of(args)
    pieces: list[bytes] = []
    program.sink = pieces.append if output is None else output
    report = program.call()
    return None if report is None else FindResult(report, b"".join(pieces))
