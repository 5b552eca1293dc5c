"""A dry run of a copy says what it cannot do, as the copy itself does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.conftest import Run
from tests.tools.fcp.running import without_rights

FCP = (sys.executable, "-m", "pcircle.tools.fcp", "-j1", "--json", "-")


def test_a_directory_that_cannot_be_opened_is_told_from_one_that_cannot_be_read(
    run: Run, tmp_path: Path
) -> None:
    """The dry run and the copy report that it could not be opened, and have scanned as many."""
    for name in ("open", "shut"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    os.chmod(tmp_path / "tree" / "shut", 0)
    prefix = without_rights("dac_override", "dac_read_search")
    found = []
    for option in (["--dry-run"], []):
        command = [*prefix, *FCP, *option, str(tmp_path / "tree"), str(tmp_path / "copy")]
        done = run(command)
        assert done.returncode == 1
        document = json.loads(done.stdout)
        (failure,) = document["failures"]
        found.append((failure["doing"], failure["error"], document["failed"]))
    assert found == [("open directory", "EACCES", 1)] * 2
