"""The overview page lists every figure that a command makes, and each takes ten minutes at most."""

from __future__ import annotations

import re
import sys

import pytest

from examples.papers import carns, fcp, lafon, pxfs
from examples.papers.carns_real import REAL as CARNS_REAL
from examples.papers.lafon_real import HOSTS
from examples.papers.lafon_real import REAL as LAFON_REAL
from tests.conftest import ROOT, Run

PAPERS = {
    "carns": [*carns.FIGURES, CARNS_REAL],
    "lafon": [*lafon.FIGURES, LAFON_REAL, HOSTS],
    "fcp": fcp.FIGURES,
    "pxfs": pxfs.FIGURES,
}
MAX_S = 600.0


@pytest.mark.parametrize("paper", PAPERS)
def test_the_table_has_every_figure(paper: str) -> None:
    page = (ROOT / "docs" / "papers.rst").read_text(encoding="utf-8")
    listed = re.findall(rf"``{paper} (\w+)``", page)
    assert sorted(listed) == sorted(figure.name for figure in PAPERS[paper])
    assert max(figure.duration_s for figure in PAPERS[paper]) <= MAX_S


@pytest.mark.parametrize("paper", ["carns", "fcp", "lafon", "pxfs"])
def test_figures_are_made_without_pytest(run: Run, paper: str) -> None:
    """Only nodes that are network namespaces need the tools of the tests."""
    text = f"import sys; sys.modules['pytest'] = None; import examples.papers.{paper}"
    done = run([sys.executable, "-c", text], cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
