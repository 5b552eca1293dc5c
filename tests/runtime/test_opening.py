"""The data that rank 0 sends before the work does not grow with ranks or entries."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import Run

LARGEST_BYTES = 4096
NUMBERS = (10, 5000)  # of files in a tree, and of names in a list
TOOLS = {
    "fcp": ["{tree}", "{copy}"],
    "fcp --files-from": ["--files-from", "{list}", "{tree}", "{copy}"],
    "fcp --dry-run": ["--dry-run", "{tree}", "{copy}"],
    "fmirror": ["--dry-run", "{tree}", "{copy}"],
    "fsum": ["{tree}"],
    "fsum -o": ["-o", "{copy}", "{tree}"],
    "fsum --files-from": ["--files-from", "{list}", "{tree}"],
    "fprof": ["{tree}"],
    "ffind": ["{tree}", "-name", "x"],
    "fls": ["{tree}"],
    "fdiff": ["{tree}", "{tree}"],
    "fchmod": ["u+r", "{tree}"],
    "frm": ["-r", "--dry-run", "{tree}"],
}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return trees by their number of files, each with a list of them."""
    made = {}
    for number in NUMBERS:
        place = tmp_path_factory.mktemp(f"{number:05d}")
        (place / "tree").mkdir()
        names = [f"file-{name}" for name in range(number)]
        for name in names:
            (place / "tree" / name).touch()
        (place / "list").write_text("".join(f"{name}\n" for name in names))
        made[number] = place
    return made


@pytest.mark.parametrize("tool", TOOLS)
def test_a_plan_grows_with_neither_ranks_nor_entries(
    run: Run, tool: str, trees: dict[int, Path], tmp_path: Path
) -> None:
    sizes = {}
    for ranks, number in ((1, NUMBERS[0]), (9, NUMBERS[0]), (1, NUMBERS[1])):
        place = trees[number]
        copy = tmp_path / f"copy-{ranks}-{number:05d}"
        words = [
            word.format(tree=place / "tree", list=place / "list", copy=copy) for word in TOOLS[tool]
        ]
        start = [sys.executable, "-m", "tests.runtime.opening", tool.split()[0]]
        done = run([*start, f"-j{ranks}", *words])
        assert done.returncode == 0, done.stderr
        found = re.search(rb"plan of (\d+) bytes", done.stderr)
        assert found is not None
        sizes[ranks, number] = int(found[1])
    print(tool, sizes)
    # Larger numbers take another byte or two.
    assert max(sizes.values()) - min(sizes.values()) < 16, sizes
    assert max(sizes.values()) < LARGEST_BYTES, sizes
