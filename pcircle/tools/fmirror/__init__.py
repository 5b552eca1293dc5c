"""fmirror: make one tree identical to another. `mirror` and `apply` are its Python functions.

A mirror is a copy (`pcircle.ops.copy.tree`) with two additions. An overwrite policy decides about
each name that exists, in place of fcp's options. A visitor looks up the files of both sides in
blocks, so files that are up to date never become entries. Before the walk opens a directory, the
whole subtree is compared in batches for some milliseconds; where nothing differs the walk skips it.
Attributes and lists are read only if change times, and the state of the last complete run
(`state/`), do not show that they are unchanged. `phases` lists the jobs of a run in their order.

Extraneous entries are found while the source is listed, and go to a file on rank 0. A second job
removes them with frm's remover, so removals are counted, limited and reported as usual, and nothing
is removed before the last directory of the source was read. Each name is first looked up in the
source a second time. This protects files from a wrong listing. A directory that changes while it is
listed is listed again. A job between the copy and the removals proves by change times that no
vanished entry was moved to a directory that had already been read.

With `--delete=during` the rank that compares a directory removes its extraneous entries at once,
with the same look-ups. This is for a target that is almost full.

Lists restrict a mirror to what may have changed: `--changed-from`, two snapshots of btrfs, or a
manifest of the target (`--since-manifest`). A list only selects the entries to compare; it never
decides what is done to them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.tools.fmirror.report import MirrorReport


def mirror(source: str | bytes, target: str | bytes, **options: object) -> MirrorReport | None:
    """Mirror like the command, print nothing, and return the report of `--json`.

    `options` are the options of the command line, by name: ``mirror("data", "/backup/data",
    delete="after", max_delete="10%")``. The report lists the entries that failed. Under MPI all
    ranks call this function, and only the first gets a report. UsageError for wrong usage,
    StoppedEarly if the run could not begin.
    """
    return _called((source, target), options)


def apply(plan: str, **options: object) -> MirrorReport | None:
    """Carry out a plan that ``mirror(source, target, plan=plan)`` has written; see `mirror`."""
    return _called((), {**options, "apply": plan})


def _called(paths: tuple[str | bytes, ...], options: dict[str, object]) -> MirrorReport | None:
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.tools.fmirror.cli import bare, parser
    from pcircle.tools.fmirror.phases import called

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = parser().parse([*words_of(options), "--", *operands], bare)
    return called(args)
