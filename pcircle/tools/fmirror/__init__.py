"""fmirror: make one tree what another is. `mirror` and `apply` are the command, for programs.

A mirror is a copy (`pcircle.ops.copy.tree`) with two additions. An overwrite policy decides about
each name that exists, in place of fcp's options. A visitor looks up the files of both sides in
blocks, so files that are up to date never become entries. Before the walk opens a directory, the
whole subtree is compared in batches for some milliseconds; where nothing differs the walk skips it.
Attributes and lists are read only if change times, and the state of the last complete run
(`state/`), do not show that they are unchanged.

Extraneous entries are found while the source is listed, and go to a file on rank 0. A second job
removes them with frm's remover, so removals are counted, limited and reported as usual, and nothing
is removed before the last directory of the source was read. Each name is first looked up in the
source a second time. This protects files from a wrong listing. A directory that changes while it is
listed is listed again; a job between the copy and the removals proves by change times that a
vanished entry was not moved to a place that had already been read.

With `--delete=during` the rank that has compared a directory removes its extraneous entries at
once, with the same look-ups: for a target that is almost full.

Lists restrict a mirror to what may have changed: `--changed-from`, two snapshots of btrfs, or a
manifest of the target (`--since-manifest`). Trust in such a list decides which entries are
compared, never what is done to them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.tools.fmirror.report import MirrorReport


def mirror(source: str | bytes, target: str | bytes, **options: object) -> MirrorReport | None:
    """Mirror as the command does, and print nothing; what `--json` would write.

    `options` are the options of the command line, by name: ``mirror("data", "/backup/data",
    delete="after", max_delete="10%")``. Entries that have failed are in the result. Under MPI all
    ranks call it, and only the first has a result. UsageError if it is refused, StoppedEarly if it
    could not begin.
    """
    return _called((source, target), options)


def apply(plan: str, **options: object) -> MirrorReport | None:
    """Carry out what ``mirror(source, target, plan=plan)`` has written; the rest as of `mirror`."""
    return _called((), {**options, "apply": plan})


def _called(paths: tuple[str | bytes, ...], options: dict[str, object]) -> MirrorReport | None:
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fmirror.cli import bare, parser
    from pcircle.tools.fmirror.command import called

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], bare)
    return called(args)
