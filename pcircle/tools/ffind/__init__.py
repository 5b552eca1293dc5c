"""ffind: find entries of trees in parallel. `find` is the command, for programs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pcircle.tools.ffind.result import Found


def find(
    *words: str | bytes, output: Callable[[bytes], object] | None = None, **options: object
) -> Found | None:
    """Search as the command does, and print nothing.

    `words` are paths and the words of an expression; `options` those of the command line, by name:
    ``find("/data", "-name", "*.h5", "-print0", jobs=4).paths``. What the command would write to
    standard output is in the result, or given to `output` in pieces as it comes. Entries with
    which something failed are in the result's report. Under MPI all ranks call it, and only the
    first has a result.

    UsageError if it is refused. With `max_delete` see `pcircle.tools.frm.remove`.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.ffind.cli import parser
    from pcircle.tools.ffind.command import program_of
    from pcircle.tools.ffind.result import Found

    given = [word if isinstance(word, str) else text_of(word) for word in words]
    typed = parser().parse([*words_of(options), *given], {})
    typed.verbose = 0  # nothing is printed
    program = program_of(typed)
    pieces: list[bytes] = []
    program.sink = pieces.append if output is None else output
    report = program.call()
    return None if report is None else Found(report, b"".join(pieces))
