"""fmirror: make one tree what another is. `mirror` and `apply` are the command, for programs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.tools.fmirror.report import MirrorReport


def mirror(source: str | bytes, target: str | bytes, **options: object) -> MirrorReport | None:
    """Mirror as the command does, and print nothing; what `--json` would write.

    `options` are those of the command line, by name: ``mirror("data", "/backup/data",
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
    typed = parser().parse([*words_of(options), "--", *operands], bare)
    return called(typed)
