"""frm: remove files and trees in parallel. Programs call `remove`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.tree_program import TreeReport


def remove(*paths: str | bytes, **options: object) -> TreeReport | None:
    """Remove entries without printing; return the report that `--json` would write.

    `options` are the options of the command line, by name: ``remove("/scratch/old", recursive=True,
    older_than="30d", jobs=4)``. A repeatable option takes a list. The result names the entries that
    could not be removed. Under MPI all ranks must call this function, but only the first rank
    receives a result.

    Raise UsageError if the arguments are invalid, and StoppedEarly if an applied plan contains more
    than `max_delete` entries. If no plan is applied, a walk counts the entries first, and if there
    are more than `max_delete`, the exit code in the result is 4.
    """
    from pcircle.cli.arguments import POLITE
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.frm.cli import parser
    from pcircle.tools.frm.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], POLITE)
    args.verbose = args.stats = 0  # nothing is printed
    return program_of(args).call()
