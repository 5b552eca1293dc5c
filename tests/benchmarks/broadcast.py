"""``python -m tests.benchmarks.broadcast``: fbcast to hosts on links with a rate and a delay.

The hosts are network namespaces, their network is `tests.benchmarks.links`. The transfer over one
link is a TCP connection that sends the same number of bytes from the first host to the second; a
serial copy is a sequence of such connections from the first host to each other host. All hosts
write to memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pcircle.cli.listing import render
from pcircle.core.units import format_rate, format_size, parse_size
from tests.benchmarks.links import SlowHosts
from tests.hosts import NETWORK, environment_of_ranks, hosts_are_possible

_PORT = 7077
_PIECE_BYTES = 1 << 20


def _receive(path: str) -> None:
    """Receive a transfer, on its second host."""
    with socket.create_server(("0.0.0.0", _PORT)) as server:
        print("ready", flush=True)
        connection = server.accept()[0]
        with connection, open(path, "wb") as file:
            while piece := connection.recv(_PIECE_BYTES):
                file.write(piece)
            connection.sendall(b"!")


def _send(path: str, address: str) -> None:
    """Send a transfer, on its first host."""
    with socket.create_connection((address, _PORT)) as connection, open(path, "rb") as file:
        connection.sendfile(file)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def _transfer(hosts: SlowHosts, source: Path, to: int, target: Path) -> float:
    """Return the seconds of one transfer from the first host."""
    module = [sys.executable, "-m", "tests.benchmarks.broadcast"]
    receive = [*hosts.enter(to), *module, "--receive", str(target)]
    with subprocess.Popen(receive, stdout=subprocess.PIPE) as receiver:
        if receiver.stdout is None or receiver.stdout.readline() != b"ready\n":
            raise OSError("the receiving host did not start")
        send = [*hosts.enter(0), *module, "--send", str(source), "--address", f"{NETWORK}{to + 1}"]
        begun_s = time.perf_counter()
        subprocess.run(send, check=True)
        return time.perf_counter() - begun_s


def _broadcast(hosts: SlowHosts, number: int, source: Path, place: Path) -> float:
    """Return the seconds of a broadcast, from the start of the launcher to its end."""
    for name in hosts.names:
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir()
    line = [*hosts.mpirun([1] * number), sys.executable, "-m", "pcircle.tools.fbcast"]
    line += ["--record-dir", str(place / "records"), str(source), str(place / "{host}")]
    begun_s = time.perf_counter()
    subprocess.run(line, check=True, env=environment_of_ranks(os.environ))
    took_s = time.perf_counter() - begun_s
    for name in hosts.names:
        subprocess.run(["cmp", source, place / name / source.name], check=True)
    return took_s


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--size", default="256M")
    parser.add_argument("--rate", default="25M", help="bytes per second of a link")
    parser.add_argument("--delay-ms", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serial", action="store_true", help="measure serial copying too")
    for name in ("--receive", "--send", "--address"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(args: argparse.Namespace, hosts: SlowHosts, place: Path) -> None:
    size, rate = int(parse_size(args.size)), parse_size(args.rate)
    source = place / "source"
    with open(source, "wb") as file:
        for _ in range(0, size, _PIECE_BYTES):
            file.write(os.urandom(_PIECE_BYTES))
    small = place / "small"
    small.write_bytes(b"")
    link_s, ours_s, start_s = [], [], []
    for _ in range(args.rounds):
        link_s.append(_transfer(hosts, source, 1, place / "received"))
        ours_s.append(_broadcast(hosts, args.hosts, source, place))
        start_s.append(_broadcast(hosts, args.hosts, small, place))
    one_s = median(link_s)
    rows = [["one link's transfer", f"{one_s:.2f} s", "1.00 x", ""]]

    def add(what: str, took_s: float, asked: str = "") -> None:
        rows.append([what, f"{took_s:.2f} s", f"{took_s / one_s:.2f} x", asked])

    add(f"fbcast to {args.hosts} hosts", median(ours_s), "1.4 x")
    add("of that, the start (an empty file)", median(start_s))
    if args.serial:
        receivers = range(1, args.hosts)
        add(
            "serial copying",
            sum(_transfer(hosts, source, to, place / "received") for to in receivers),
        )
    shown = f"{format_size(size)}, {format_rate(rate)} and {args.delay_ms:g} ms each link"
    print(f"{shown}; medians of {args.rounds}; {size / rate:.2f} s is what a link must take")
    print(render(rows, align="lrrr", header=["", "time", "", "asked"]))


def main() -> int:
    """Measure, and print the table."""
    args = _options()
    if args.receive:
        _receive(args.receive)
        return 0
    if args.send:
        _send(args.send, args.address)
        return 0
    if reason := hosts_are_possible():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="fbcast-", dir="/dev/shm") as folder:
        place = Path(folder)
        rate = float(parse_size(args.rate))
        hosts = SlowHosts(place, args.hosts, rate, args.delay_ms / 1000)
        try:
            hosts.build()
            _measure(args, hosts, place)
        finally:
            hosts.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
