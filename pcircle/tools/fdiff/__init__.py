"""fdiff: compare two trees in parallel. Programs can call `compare`.

The walk reads both sides together. If the names in a directory of A fit in one block, the two
listings are compared as sets before any entry is looked up. In larger directories the names of A
are looked up in B, and the names of B in A, block by block, so that neither listing must fit in
memory. Subtrees that exist on one side only are walked in the same job as separate roots.

The names of hard-linked files, and files that may have moved, are sent as records to rank 0, which
sorts them on disk. All names of a file of A form a group, and so do all names of a file of B. A
group is equal on both sides if all its names belong to a single file on the other side.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.tree_program import TreeReport


def compare(a: str | bytes, b: str | bytes, **options: object) -> TreeReport | None:
    """Compare trees without printing anything, and return the report that `--json` would write.

    `options` are command-line options by name: ``compare("/data", "/backup", contents=True,
    ignore="owner,group", jobs=4)``. A repeatable option accepts a list. The `code` of the result is
    3 if the trees differ, and its `counts` contain the kinds of differences. The option
    `json_lines` names a file that will list each difference. Under MPI, all ranks must call this
    function, and only the first rank receives a result.

    Raise UsageError if the arguments are invalid.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fdiff.cli import parser
    from pcircle.tools.fdiff.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in (a, b)]
    args = parser().parse([*words_of(options), "--", *operands], {})
    args.verbose, args.stats, args.quiet = 0, 0, True  # nothing is printed
    return program_of(args).call()
