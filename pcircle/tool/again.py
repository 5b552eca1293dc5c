"""The command to run next, to be pasted into a shell: the one that was typed, a little changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from pcircle.ui.names import show


def command(
    name: str,
    words: Sequence[str],
    *,
    add: str | None = None,
    drop: Collection[str] = (),
    drop_valued: Collection[str] = (),
) -> str:
    """A tool's command of the `words` that were typed behind its name.

    With the option `add`, and without those to `drop`, of which some are followed by a value.
    """
    end = words.index("--") if "--" in words else len(words)
    kept = []
    typed = iter(words[:end])
    for word in typed:
        if word in drop_valued:
            next(typed, None)
        elif word not in drop and word.partition("=")[0] not in drop_valued:
            kept.append(word)
    if add is not None and add not in kept:
        kept.insert(0, add)
    return " ".join([name, *map(_quoted, [*kept, *words[end:]])])


def _quoted(word: str) -> str:
    """A word as a shell wants it, printable whatever is in it."""
    from shlex import quote

    shown = show(os.fsencode(word))
    if shown.replace(r"\\", "\\") == word:
        return quote(word)
    escaped = shown.replace("'", r"\'")
    return f"$'{escaped}'"
