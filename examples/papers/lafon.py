"""The figures of LaFon et al. 2012: ``python -m examples.papers.lafon fig1``.

LaFon, Misra and Bringhurst, "On distributed file tree walk of parallel file systems", SC12.

The models are in the modules ``lafon_tree`` (file systems), ``lafon_cost`` (costs),
``lafon_central`` (CP, CP+), ``lafon_steal`` (DRQS, DEQS, PA-DRQS, H-DRQS) and ``lafon_engine``
(pcircle's engine). ``lafon_real`` measures that engine with the paper's policies.
``docs/papers-lafon.rst`` compares the figures with the paper's results.
"""

from __future__ import annotations

import sys

from examples.papers import lafon_analysis as costs
from examples.papers import lafon_figures as figures
from examples.papers import lafon_searches as searches
from examples.papers.command import Figure, main
from examples.papers.lafon_real import HOSTS, REAL

FIGURES = (
    Figure("fig1", "bytes from rank to rank, centralised", 40, figures.pairs),
    Figure("fig3a", "time against cores", 140, figures.times),
    Figure("fig3b", "what H-DRQS spends its time on", 80, figures.breakdown),
    Figure("fig4", "messages and bytes against elements", 400, figures.messages),
    Figure("fig5", "bytes from rank to rank, centralised and distributed", 50, figures.heat),
    Figure("fig6", "how even the work is", 260, figures.balance),
    Figure("analysis", "the cost of a steal, and requests against ranks", 20, costs.analysis),
    Figure("hybrid", "the cost at which H-DRQS is ahead of DRQS", 120, searches.hybrid),
    Figure("pause", "a pause between requests, and PA-DRQS's messages", 90, searches.pause),
    Figure("overload", "one directory of a tenth of the files", 20, searches.overload),
)

if __name__ == "__main__":
    sys.exit(main("lafon", [*FIGURES, REAL, HOSTS]))
