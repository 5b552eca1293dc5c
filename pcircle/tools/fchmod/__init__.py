"""fchmod, fchown, fchgrp: change modes and owners in parallel. Programs call `change`.

The new state of an entry (owner, mode, access control lists) is computed from its current state
without system calls. The package `state` then applies the new state with as few calls as possible,
and writes the old state as text for `--undo`. All names of a hard-linked file are sent to one rank,
which changes the file under the first name.

Entries are changed by name in batches only if no decision depends on their current state. Set-id
bits and `--from` require open descriptors, and so do all entries in a directory in which other
users may exchange names.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.tree_program import TreeReport


def change(*paths: str | bytes, **options: object) -> TreeReport | None:
    """Change entries without printing; return the report that `--json` would write.

    `options` are the options of fchmod's command line, by name: ``change("/data", mode="g+rwX",
    group="users", recursive=True, jobs=4)``. The result names the entries that could not be
    changed. Under MPI all ranks must call this function, but only the first rank receives a result.

    Raise UsageError if the arguments are invalid.
    """
    from pcircle.cli.shell import words_of
    from pcircle.core.encoding import text_of
    from pcircle.core.errors import UsageError
    from pcircle.tools.fchmod.cli import FCHMOD
    from pcircle.tools.fchmod.command import program_of

    operands = [path if isinstance(path, str) else text_of(path) for path in paths]
    args = FCHMOD.parser().parse([*words_of(options), "--", *operands], FCHMOD.bare)
    if operands and not _specifies_change(options):
        raise UsageError("one of mode, owner, group, acl and others must be given")
    args.verbose, args.stats, args.changes = 0, 0, False  # nothing is printed
    return program_of("fchmod", args).call()


def _specifies_change(options: dict[str, object]) -> bool:
    """Return whether an option specifies a change, so that the first PATH is not read as a MODE."""
    asked = {"mode", "files", "dirs", "owner", "group", "reference", "usermap", "groupmap"}
    asked |= {"acl", "acl_remove", "default_acl", "apply"}
    return any(options.get(name) not in (None, False) for name in asked)
