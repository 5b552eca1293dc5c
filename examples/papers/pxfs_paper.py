"""The numbers of the papers on PXFS: Snyder 2013, a thesis, and Yang et al. 2014.

The sources are chapter 5 of the thesis, and the evaluation of the paper. We do not know the numbers
of their sections and tables.
"""

from __future__ import annotations

from examples.papers.stated import Stated

__all__ = [
    "ASYNCHRONOUS_MS",
    "BLOCKS",
    "BLOCK_BYTES",
    "CLIENTS",
    "FILES",
    "LARGE_FILE_BYTES",
    "LOST",
    "NFS",
    "SERVERS",
    "SUBMISSION_US",
    "SYNCHRONOUS_MS",
    "THROUGHPUT_BYTES_PER_S",
    "WORKLOADS",
]

_NAMES = "Snyder, chapter 5, operations on names"
_EVALUATION = "Yang et al., evaluation"

# Throughput of one client and one server.
THROUGHPUT_BYTES_PER_S = Stated((95e6, 108e6), "Snyder, chapter 5")
LARGE_FILE_BYTES = Stated(10**9, "Snyder, chapter 5, case 2")
# Loss of throughput due to computing, in %: synchronous read and write, asynchronous read, write.
LOST = Stated(
    {
        "512 KiB": (48.6, 48.3, 0.7, 0.9),
        "1024 KiB": (32.5, 31.7, 1.7, 1.6),
        "2048 KiB": (19.7, 19.8, 0.2, 21.2),
        "4096 KiB": (11.1, 12.2, 0.9, 0.7),
    },
    "Snyder, chapter 5, case 3",
)
SYNCHRONOUS_MS = Stated(
    {
        "create": 3.75, "open": 0.21, "close": 6.59, "truncate": 2.59, "stat": 0.93, "remove": 3.26,
        "mkdir": 3.39, "rmdir": 3.32,
    },
    _NAMES,
)  # fmt: skip
ASYNCHRONOUS_MS = Stated(
    {
        "create": 3.76, "open": 0.28, "close": 6.82, "truncate": 2.58, "stat": 1.11, "remove": 3.22,
        "mkdir": 3.19, "rmdir": 2.93,
    },
    _NAMES,
)  # fmt: skip
SUBMISSION_US = Stated(1.0, "Snyder, chapter 5")  # at most

# Asynchronous over synchronous, with one thread of each client.
WORKLOADS = Stated(
    {
        ("small", "write"): 10.0,
        ("small", "read"): 20.0,
        ("large", "write"): 4.0,
        ("large", "read"): 3.0,
    },
    f"{_EVALUATION}; 3 and 20 also in the abstract",
)
NFS = Stated((5, 10), f"{_EVALUATION}, and the abstract")  # asynchronous over one NFS server
CLIENTS = Stated(24, _EVALUATION)  # at most
SERVERS = Stated((2, 4, 8, 16), _EVALUATION)
BLOCK_BYTES = Stated({"small": 64 << 10, "large": 1 << 20}, _EVALUATION)
FILES = Stated(5, _EVALUATION)  # of each client
BLOCKS = Stated(100, _EVALUATION)  # of each file
