"""The numbers of Wang et al. 2016 (FCP, Cray User Group): Table I and figures 6 to 10.

Those of figures 6 to 10 were read from the paper's PDF, whose plots are vector graphics: the height
of a bar is exact to 0.25 % of its axis (12 s in figure 6, 1.2 in 7, 1.7 in 8, 5 in 9, 10 in 10).
"""

from __future__ import annotations

__all__ = ["CHECKSUM_S", "DEFAULT_STRIPES", "NODES", "NODES_S", "STRIPES", "TABLE_S"]

# Table I (section III-A): seconds on one node, 8 processes, the default of 4 stripes.
TABLE_S = {
    "set 1": {"cp": 3556, "rsync": 7474, "dcp": 2871, "fcp": 1653},
    "set 2": {"cp": 193, "rsync": 545, "dcp": 203, "fcp": 123},
    "set 3": {"cp": 290, "rsync": 574, "dcp": 212, "fcp": 107},
    "set 4": {"cp": 436, "rsync": 321, "dcp": 76, "fcp": 84},
}

NODES = (1, 2, 4, 8)
STRIPES = (1, 4, 32, 512)
DEFAULT_STRIPES = 4

# Figures 6 to 9 (section III-B): seconds by set and stripes, on 1, 2, 4 and 8 nodes. Figure 8 has
# no bar for 4 nodes and 512 stripes; figure 9 has no group for 512.
NODES_S: dict[str, dict[int, tuple[float | None, ...]]] = {
    "set 1": {
        1: (3172, 2848, 2761, 2935),
        4: (1592, 1020, 920, 920),
        32: (1679, 846, 448, 311),
        512: (4726, 2388, 1256, 697),
    },
    "set 2": {
        1: (230, 250, 265, 264),
        4: (143, 90, 92, 83),
        32: (155, 83, 52, 40),
        512: (463, 251, 136, 72),
    },
    "set 3": {
        1: (118, 71, 31, 28),
        4: (118, 64, 35, 30),
        32: (125, 78, 38, 28),
        512: (602, 183, None, 50),
    },
    "set 4": {
        1: (1726, 876, 388, 189),
        4: (1721, 831, 393, 194),
        32: (1791, 836, 403, 229),
    },
}

# Figure 10 (section III-C): seconds without checksums, with, and with corrupted files.
CHECKSUM_S = {
    "set 1": (2082, 3340, 3649),
    "set 2": (144, 289, 309),
    "set 3": (103, 227, 227),
    "set 4": (227, 268, 268),
}
