"""The command to run next, for pasting into a shell: the original command, slightly changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from pcircle.core.names import show


def command(
    name: str,
    words: Sequence[str],
    *,
    add: str | None = None,
    drop: Collection[str] = (),
    drop_valued: Collection[str] = (),
) -> str:
    """Return the command line of a tool from its original `words`.

    The option `add` is added; the options in `drop`, and in `drop_valued` with their values, are
    removed.
    """
    end = words.index("--") if "--" in words else len(words)
    kept = []
    args = iter(words[:end])
    for word in args:
        if word in drop_valued:
            next(args, None)
        elif word not in drop and word.partition("=")[0] not in drop_valued:
            kept.append(word)
    if add is not None and add not in kept:
        kept.insert(0, add)
    return " ".join([name, *map(_quoted, [*kept, *words[end:]])])


def _quoted(word: str) -> str:
    """Quote a word for the shell, printable whatever it contains."""
    from shlex import quote

    shown = show(os.fsencode(word))
    if shown.replace(r"\\", "\\") == word:
        return quote(word)
    escaped = shown.replace("'", r"\'")
    return f"$'{escaped}'"
