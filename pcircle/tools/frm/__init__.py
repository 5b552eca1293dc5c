"""frm: remove files and trees in parallel. `remove` is the command, for programs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.tree_program import TreeReport


def remove(*paths: str | bytes, **options: object) -> TreeReport | None:
    """Remove as the command does, and print nothing; what `--json` would write.

    `options` are the options of the command line, by name: ``remove("/scratch/old", recursive=True,
    older_than="30d", jobs=4)``. An option that may be repeated takes a list. Entries that could
    not be removed are in the result. Under MPI all ranks call it, and only the first has a result.

    UsageError if it is refused, StoppedEarly if a plan that is applied has more than `max_delete`.
    Otherwise that is found out by a walk, and is a result of exit code 4.
    """
    from pcircle.cli.arguments import POLITE
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.frm.cli import parser
    from pcircle.tools.frm.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], POLITE)
    args.verbose = 0  # nothing is printed
    return program_of(args).call()
