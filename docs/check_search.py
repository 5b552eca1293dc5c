"""Check that the search of the built site finds the right page first: tox -e docs.

    python docs/check_search.py build/docs

The scores are those of Sphinx's `searchtools.js`: 100 for an entry of the index and 15 for a title,
times the share of it that the query covers, which must be half. The words of pages score less.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

# Queries, and the page that must be found first.
EXPECTED = {
    "No space left": "troubleshooting",
    "No space left on device": "troubleshooting",
    "resume": "fcp",
    "--resume": "fcp",
    "--skip-same": "fcp",
    "skip-same": "fcp",
    "--error-log": "reference/logs",
    "--op-timeout": "common",
    "--protect": "fmirror",
    "the MPI library sees a world of": "troubleshooting",
}
_SCORE_ENTRY, _SCORE_TITLE = 100, 15


def results(
    index: dict[str, dict[str, list[list[object]]]], query: str
) -> Iterator[tuple[float, str]]:
    """Yield the scores and pages of titles and main index entries that a query matches."""
    wanted = query.lower().strip()
    pages: list[str] = index["docnames"]  # type: ignore[assignment]
    for table, score in (("indexentries", _SCORE_ENTRY), ("alltitles", _SCORE_TITLE)):
        for text, places in index[table].items():
            if wanted in text.lower() and len(wanted) >= len(text) / 2:
                for place in places:
                    if table == "alltitles" or place[2]:
                        yield round(score * len(wanted) / len(text)), pages[int(str(place[0]))]


def main(site: str) -> int:
    """Print the queries that find another page first; return the exit code."""
    text = (Path(site) / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    wrong = 0
    for query, page in EXPECTED.items():
        found = sorted(results(index, query), reverse=True)
        best = {name for score, name in found if score == found[0][0]}
        if best != {page}:
            print(f"{query!r} finds {sorted(best)}, not {page}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
