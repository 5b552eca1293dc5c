"""The file systems that the figures of PXFS are measured on: FUSE, with latencies and servers.

A file system of the tests (``tests/fusefs``) answers each request when a parallel file system of
the papers' kind would: after a latency, and when one of so many servers has had time for it, one
request after the other. Nothing is kept by the kernel, as the papers' clients keep nothing, and
writes to one file overlap.

`THESIS` is the network of Snyder 2013: one server, 105 MB/s (chapter 5 has 95 to 108), 0.3 ms
(chosen).
Its operations on names take what the thesis measured for synchronous ones: so these are put in,
and what is measured is what the asynchronous layer adds.

`servers` is the parallel file system of Yang et al. 2014, of which no latency is known. Latency,
time of a request and rate of a server are *fitted*: to the two ratios of reads in the paper's
evaluation, 20 for 64 KiB and 3 for 1 MiB, with 24 clients and 16 servers. A synchronous client
waits for latency and service, all asynchronous ones together keep every server busy. So 24 * 20 /
(latency + service) is 16 / service, and likewise for 1 MiB; with a request and 64 KiB that take the
same time, 4 ms each, the latency is 58 times as much. What comes out for writes, other numbers of
servers and more threads is not fitted.
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

# The requests of the kernel that an operation on names is put into.
_REQUESTS = {"create": "create", "open": "open", "close": "flush", "truncate": "setattr",
             "stat": "getattr", "remove": "unlink", "mkdir": "mkdir", "rmdir": "rmdir"}  # fmt: skip

THESIS = Rule(ops=_DATA, delay_s=0.0003, servers=1, bytes_per_s=105e6)
# Directories are looked at by the kernel on the way to a file, which takes no time.
NAMES = tuple(
    Rule(ops=(_REQUESTS[what],), path="*/[fd]*", delay_s=ms / 1000)
    for what, ms in SYNCHRONOUS_MS.value.items()
)

_REQUEST_S = 0.004
_BYTES_PER_S = 64 * KIB / _REQUEST_S
_LATENCY_S = 58 * _REQUEST_S
_FASTER = 50


def servers(number: int, block_bytes: int) -> Rule:
    """Return so many servers, which have the blocks of a file in turn."""
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
    """Return a rule for tests, which take a small part of the time."""
    return rule._replace(
        delay_s=rule.delay_s / _FASTER,
        busy_s=rule.busy_s / _FASTER,
        bytes_per_s=rule.bytes_per_s * _FASTER,
    )


@contextmanager
def mount(rules: Sequence[Rule], small: bool, attributes_s: float = 60.0) -> Iterator[bytes]:
    """Mount such a file system. Ends the program, with the reason, where that can't be done."""
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
    """The median, least and greatest of fbench's figures over rounds, by what they are of.

    In each round fbench measures blocking calls and the asynchronous layer next to each other.
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
