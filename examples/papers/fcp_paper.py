"""The numbers of Wang et al. 2016 (FCP, Cray User Group).

The numbers of figures 6 to 10 were read from the vector graphics in the paper's PDF. The height of
a bar is exact to 0.25 % of its axis (12 s in figure 6, 1.2 in 7, 1.7 in 8, 5 in 9, 10 in 10).
"""

from __future__ import annotations

from examples.papers.stated import Stated

__all__ = [
    "CHECKSUM_S",
    "CHUNK_BYTES",
    "CORES",
    "DEFAULT_STRIPES",
    "EACH_BYTES",
    "FILES",
    "FILE_BYTES",
    "LINK_BYTES_PER_S",
    "MIN_STRIPES_OVER",
    "MIXED_BYTES",
    "NODES",
    "NODES_S",
    "PROCESSES",
    "SMALL_SHARE",
    "SPEED_UP",
    "STRIPES",
    "STRIPES_OVER",
    "TABLE_S",
]

NODES: Stated[tuple[int, ...]] = Stated((1, 2, 4, 8), "section III-B")
STRIPES: Stated[tuple[int, ...]] = Stated((1, 4, 32, 512), "section III-B")
DEFAULT_STRIPES = Stated(4, "section III-A")
CORES = Stated(8, "section III")  # of a node
PROCESSES = Stated(8, "section III-B")  # of a node
LINK_BYTES_PER_S = Stated(6.75e9, "section III")  # of a node

FILES = Stated({"set 1": 1, "set 2": 1, "set 3": 1_000, "set 4": 100_000}, "section III-A")
EACH_BYTES = Stated({"set 1": 10**12, "set 2": 10**11, "set 3": 10**8}, "section III-A")
MIXED_BYTES = Stated((4 << 10, 100 * 10**6), "section III-A")  # the smallest and largest of set 4
SMALL_SHARE = Stated(0.85, "section II-C")  # of the files of Spider 2 are below 256 KiB

# Bytes of an object in memory.
FILE_BYTES = Stated(112, "section II-F")
CHUNK_BYTES = Stated(64, "section II-F")

# Seconds on one node, 8 processes, with the default of stripes.
TABLE_S = Stated(
    {
        "set 1": {"cp": 3556, "rsync": 7474, "dcp": 2871, "fcp": 1653},
        "set 2": {"cp": 193, "rsync": 545, "dcp": 203, "fcp": 123},
        "set 3": {"cp": 290, "rsync": 574, "dcp": 212, "fcp": 107},
        "set 4": {"cp": 436, "rsync": 321, "dcp": 76, "fcp": 84},
    },
    "table I, section III-A",
)

# Seconds by stripes, on 1, 2, 4 and 8 nodes. Figure 8 has no bar for 4 nodes and 512 stripes;
# figure 9 has no group for 512.
Bars = dict[int, tuple[float | None, ...]]
NODES_S: dict[str, Stated[Bars]] = {
    "set 1": Stated(
        {
            1: (3172, 2848, 2761, 2935),
            4: (1592, 1020, 920, 920),
            32: (1679, 846, 448, 311),
            512: (4726, 2388, 1256, 697),
        },
        "figure 6, section III-B",
    ),
    "set 2": Stated(
        {
            1: (230, 250, 265, 264),
            4: (143, 90, 92, 83),
            32: (155, 83, 52, 40),
            512: (463, 251, 136, 72),
        },
        "figure 7, section III-B",
    ),
    "set 3": Stated(
        {
            1: (118, 71, 31, 28),
            4: (118, 64, 35, 30),
            32: (125, 78, 38, 28),
            512: (602, 183, None, 50),
        },
        "figure 8, section III-B",
    ),
    "set 4": Stated(
        {
            1: (1726, 876, 388, 189),
            4: (1721, 831, 393, 194),
            32: (1791, 836, 403, 229),
        },
        "figure 9, section III-B",
    ),
}

SPEED_UP = Stated(6, "section III-B")  # of set 1 on 8 nodes, about
# Set 3: the time with 512 stripes over that with 32, on one node, and at best.
STRIPES_OVER = Stated(5, "section III-B")
MIN_STRIPES_OVER = Stated(2, "section III-B")

# Seconds without checksums, with, and with corrupted files.
CHECKSUM_S = Stated(
    {
        "set 1": (2082, 3340, 3649),
        "set 2": (144, 289, 309),
        "set 3": (103, 227, 227),
        "set 4": (227, 268, 268),
    },
    "figure 10, section III-C",
)
