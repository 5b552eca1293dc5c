"""The numbers of Carns, Settlemyer and Ligon: speed-ups, and the method of measuring the prototype.

The text does not state the heights of bars and the points of curves.
"""

from __future__ import annotations

from examples.papers.stated import Stated

__all__ = [
    "DROPPED_SAMPLES",
    "MIN_SPREAD_MS",
    "MYRINET_GAIN_SERVERS",
    "MYRINET_LATENCY_MS",
    "MYRINET_SHARES",
    "MYRINET_SHARES_SERVERS",
    "OUTLIER_FACTOR",
    "SAMPLES",
    "SPEED_UPS",
    "SPEED_UPS_SERVERS",
    "TREE_SERVERS",
    "TREE_SPEED_UPS",
]

# With 1 Gb/s.
SPEED_UPS_SERVERS = Stated(50, "text on figures 9 to 11")
SPEED_UPS = {
    "create": Stated(1.44, "text on figure 9"),
    "remove": Stated(1.88, "text on figure 10"),
    "stat": Stated(1.93, "text on figure 11"),
}

# A point of the prototype has these samples, without the first ones and without outliers. An
# outlier is further from the quartiles than a multiple of their distance, which counts as at least
# MIN_SPREAD_MS.
SAMPLES = Stated(35, "runs of figures 12 to 17")
DROPPED_SAMPLES = Stated(2, "runs of figures 12 to 17")
OUTLIER_FACTOR = Stated(3, "runs of figures 12 to 17")
MIN_SPREAD_MS = Stated(0.005, "runs of figures 12 to 17")

# The collective's time as a fraction of the client-driven time.
MYRINET_LATENCY_MS = Stated(0.0067, "network of figures 15 to 17")  # of a message
MYRINET_SHARES_SERVERS = Stated(60, "text on figures 15 to 17")
MYRINET_GAIN_SERVERS = Stated(20, "text on figures 15 to 17")  # from which gains are visible
MYRINET_SHARES = {
    "create": Stated(0.65, "text on figure 15"),
    "remove": Stated(0.48, "text on figure 16"),
    "stat": Stated(0.39, "text on figure 17"),
}

TREE_SERVERS = Stated(74, "text on figure 18")
TREE_SPEED_UPS = {
    "unpack": Stated(1.49, "text on figure 18"),
    "list": Stated(1.75, "text on figure 18"),
    "remove": Stated(1.83, "text on figure 18"),
}
