"""fdiff: compare two trees in parallel. Programs call `compare`.

The walk reads both sides at once. If the names of A's directory fit in one block, sets separate the
two listings before any entry is looked up. In larger directories the names of A are looked up in B,
and the names of B in A, block by block, so neither listing is ever in memory as a whole. Subtrees
that one side lacks are walked in the same job, with roots of their own.

Names of hard-linked files, and files that may have moved, are records that rank 0 sorts on disk.
Two groups of names are equal if each name, sorted by A's file and then by B's, has the same file in
B as the first name of its group.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.tree_program import TreeReport


def compare(a: str | bytes, b: str | bytes, **options: object) -> TreeReport | None:
    """Compare trees without printing; return the report that `--json` would write.

    `options` are the options of the command line, by name: ``compare("/data", "/backup",
    contents=True, ignore="owner,group", jobs=4)``. A repeatable option takes a list. The result's
    `code` is 3 if the trees differ. `counts` has the kinds of difference, and `json_lines` is a
    file that lists each difference. Under MPI all ranks must call this function, and only the first
    rank receives a result.

    Raise UsageError if the arguments are invalid.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fdiff.cli import parser
    from pcircle.tools.fdiff.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in (a, b)]
    args = parser().parse([*words_of(options), "--", *operands], {})
    args.verbose, args.quiet = 0, True  # nothing is printed
    return program_of(args).call()
