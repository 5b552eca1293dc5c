"""Write all generated files: `python -m docs.generate`.

Manual pages and completions go to share/, lists of options into the manuals of docs/, and the
page of exit codes, JSON Schemas and pictures into docs/.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.generate import (
    coming_from,
    completions,
    exit_codes,
    keywords,
    manpages,
    manuals,
    pictures,
    schemas,
)

ROOT = Path(__file__).resolve().parents[2]


def files() -> Iterator[tuple[Path, str]]:
    """Yield the path and the contents of each file."""
    yield from manuals.pages()
    for name, text in manpages.pages():
        yield ROOT / "share" / "man" / "man1" / name, text
    for name, text in [
        *coming_from.pages(),
        *completions.pages(),
        *exit_codes.pages(),
        *keywords.pages(),
        *schemas.pages(),
        *pictures.pages(),
    ]:
        yield ROOT / name, text


def main() -> None:
    """Write all files."""
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
