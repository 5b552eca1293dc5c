"""The file systems on which the figures of PXFS are measured: FUSE, with latencies and servers.

A file system of the tests (``tests/fusefs``) answers each request when a parallel file system like
those of the papers would. A request takes a latency, and then one of several servers handles it,
one request after the other. The kernel caches nothing, because the papers' clients cache nothing,
and writes to one file overlap.

`THESIS` is the network of Snyder 2013: one server, 105 MB/s (chapter 5 has 95 to 108), 0.3 ms
(chosen). Its operations on names take as long as the synchronous ones in the thesis. So these times
are inputs, and the measurement shows what the asynchronous layer adds.

`servers` is the parallel file system of Yang et al. 2014, of which no latency is known. The
latency, the time of a request and the rate of a server are *fitted* to the two ratios of reads in
the paper's evaluation: 20 for 64 KiB and 3 for 1 MiB, with 24 clients and 16 servers. A synchronous
client waits for latency and service; all asynchronous clients together keep every server busy. So
24 * 20 / (latency + service) is 16 / service, and likewise for 1 MiB. If a request and the transfer
of 64 KiB take 4 ms each, the latency is 58 times as long. The results for writes, other numbers of
servers and more threads are not fitted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from examples.papers.measured import scratch
from examples.papers.pxfs_paper import SYNCHRONOUS_MS
from tests.fusefs.mounting import missing, mounted
from tests.fusefs.passing import Caching
from tests.fusefs.rules import Rule

KIB, MIB = 1 << 10, 1 << 20
_DATA = ("read", "write")

# The kernel's request for each operation on names.
_REQUESTS = {"create": "create", "open": "open", "close": "flush", "truncate": "setattr",
             "stat": "getattr", "remove": "unlink", "mkdir": "mkdir", "rmdir": "rmdir"}  # fmt: skip

THESIS = Rule(ops=_DATA, delay_s=0.0003, servers=1, bytes_per_s=105e6)
# The kernel looks up directories on the way to a file; that takes no time here.
NAMES = tuple(
    Rule(ops=(_REQUESTS[what],), path="*/[fd]*", delay_s=ms / 1000)
    for what, ms in SYNCHRONOUS_MS.value.items()
)

_REQUEST_S = 0.004
_BYTES_PER_S = 64 * KIB / _REQUEST_S
_LATENCY_S = 58 * _REQUEST_S
_FASTER = 50


def servers(number: int, block_bytes: int) -> Rule:
    """Return a number of servers that have the blocks of a file in turn."""
    return Rule(
        ops=_DATA,
        delay_s=_LATENCY_S,
        servers=number,
        busy_s=_REQUEST_S,
        bytes_per_s=_BYTES_PER_S,
        stripe_bytes=block_bytes,
    )


Key = tuple[str, str, str]  # case, what and backend
Values = dict[Key, float]


def faster(rule: Rule) -> Rule:
    """Return a rule for the tests, which takes a small part of the time."""
    return rule._replace(
        delay_s=rule.delay_s / _FASTER,
        busy_s=rule.busy_s / _FASTER,
        bytes_per_s=rule.bytes_per_s * _FASTER,
    )


@contextmanager
def mount(rules: Sequence[Rule], small: bool, attributes_s: float = 60.0) -> Iterator[bytes]:
    """Mount such a file system; if that is impossible, exit with the reason."""
    reason = missing()
    if reason:
        sys.exit(f"no figure: {reason}")
    with tempfile.TemporaryDirectory(prefix="pcircle-pxfs-", dir=scratch()) as folder:
        place, backing = Path(folder, "mount"), Path(folder, "backing")
        place.mkdir()
        backing.mkdir()
        caching = Caching(direct=True, attributes_s=attributes_s, parallel=True)
        with mounted(os.fsencode(place), os.fsencode(backing), caching) as served:
            served.rules(*(map(faster, rules) if small else rules))
            yield served.path


def measured(place: bytes, options: Sequence[str], rounds: int) -> tuple[Values, Values, Values]:
    """Return the median, minimum and maximum of fbench's figures over rounds, by quantity.

    In each round fbench measures blocking calls and the asynchronous layer one after the other.
    """
    found: list[Values] = []
    command = [
        sys.executable,
        "-m",
        "pcircle.tools.fbench",
        "papers",
        "-q",
        "--json",
        "-",
        *options,
    ]
    for _ in range(rounds):
        done = subprocess.run([*command, place], check=True, stdout=subprocess.PIPE)
        figures = json.loads(done.stdout)["figures"]
        found.append({(f["case"], f["what"], f["backend"]): f["value"] for f in figures
                      if f["unit"] != "threads"})  # fmt: skip
    lists = {key: [each[key] for each in found] for key in found[0]}
    return (
        {key: median(values) for key, values in lists.items()},
        {key: min(values) for key, values in lists.items()},
        {key: max(values) for key, values in lists.items()},
    )
