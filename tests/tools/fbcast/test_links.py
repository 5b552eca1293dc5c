"""Broadcasts over links that have a rate and a delay, measured as in the benchmark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.benchmarks.links import SlowHosts
from tests.hosts import hosts_are_possible
from tests.tools.fcp.judge import differences
from tests.tools.fcp.trees import MIB, make_directory

from .test_hosts import build, run_on


@pytest.mark.mpi
def test_links_with_a_rate(place: bytes, tmp_path: Path) -> None:
    """The setup of the benchmark works, and each host sends the data at most once."""
    reason = hosts_are_possible() or ("" if Path("/dev/net/tun").exists() else "no /dev/net/tun")
    if reason or shutil.which("ip") is None:
        pytest.skip(reason)
    hosts = SlowHosts(tmp_path, 4, 20e6, 0.001)
    try:
        hosts.build()
        tree = build(place)
        folders = [make_directory(place, os.fsencode(name)) for name in hosts.names]
        before = hosts.sent_bytes()
        finished = run_on(hosts, (1, 1, 1, 1), place, tree, place + b"/{host}")
        sent = [now - then for now, then in zip(hosts.sent_bytes(), before, strict=True)]
        assert finished.code == 0, finished.said
        assert [differences(tree, folder + b"/tree") for folder in folders] == [[]] * 4
        assert all(5 * MIB < sent_bytes < 7 * MIB for sent_bytes in sent[:3]), sent
        assert sent[3] < MIB, sent
    finally:
        hosts.remove()
