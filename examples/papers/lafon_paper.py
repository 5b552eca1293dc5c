"""The numbers of LaFon, Misra and Bringhurst 2012, as far as the text on its figures states them.

The usual setup is 40 processes on 20 nodes; we do not know which section states it.
"""

from __future__ import annotations

from examples.papers.stated import Stated

__all__ = [
    "BUSIEST_BYTES",
    "BYTES_OVER_DISTRIBUTED",
    "CP_RANKS",
    "FS1",
    "FS3",
    "MESSAGES_OVER_DISTRIBUTED",
    "RANKS",
    "SHARE",
    "SLOW_CP_PROCESSES",
    "TIME_OVER_DISTRIBUTED",
]

# The numbers of elements in two file systems.
FS1 = Stated(6_500_000, "text on figures 1, 3(a), 4 and 5")
FS3 = Stated(110_000_000, "text on figures 4 and 6")

CP_RANKS = Stated(30, "text on figure 1")
BUSIEST_BYTES = Stated(1.6e9, "text on figure 1")  # of the busiest pair of ranks, in CP

# Minimum ratios of CP to each of the distributed algorithms.
TIME_OVER_DISTRIBUTED = Stated(3, "text on figure 3(a)")
MESSAGES_OVER_DISTRIBUTED = Stated(10, "text on figure 4")
BYTES_OVER_DISTRIBUTED = Stated(100, "text on figure 4")
SLOW_CP_PROCESSES = Stated(15, "text on figure 3(a)")  # up to these CP is off the scale

RANKS = Stated(20, "text on figure 6")
SHARE = Stated(0.05, "text on figure 6")  # the ideal part of a rank
