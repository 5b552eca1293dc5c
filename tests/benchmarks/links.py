"""Hosts whose links have a rate and a delay: a switch between network namespaces, in Python.

Each host has a device (tun) whose packets arrive at one process, which delivers each to its
receiver at the time at which a link of that rate and delay would. A host sends and receives at the
same time, one packet after another in each direction. Packets are large, so that this costs little;
a sender that exceeds the rate is not read from, and its kernel waits.

Many kernels lack the module netem, so it is not used.

``python -m tests.benchmarks.links RATE DELAY_MS NETWORK NAME...`` runs that process.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from tests.hosts import NETWORK, Hosts, _ip

MTU_BYTES = 60_000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_QUEUE_S = 0.03  # on a sender's link: beyond that its packets are not read yet
_DESTINATION = 19  # the last byte of the receiver's address in an IPv4 header


class SlowHosts(Hosts):
    """A number of hosts on links of a given rate and delay."""

    def __init__(self, folder: Path, number: int, rate_bytes_s: float, delay_s: float) -> None:
        super().__init__(folder, number)
        self._rate = rate_bytes_s
        self._delay_s = delay_s
        self._process: subprocess.Popen[bytes] | None = None

    def _connect(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        line = [sys.executable, "-m", "tests.benchmarks.links", str(self._rate)]
        line += [str(self._delay_s), NETWORK, *self.names]
        self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if self._process.stdout is None or self._process.stdout.readline() != b"ready\n":
            raise OSError("there are no devices (tun) for a switch here")
        for number, name in enumerate(self.names):
            _ip("-n", name, "addr", "add", f"{NETWORK}{number + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "mtu", str(MTU_BYTES), "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def enter(self, host: int) -> list[str]:
        """Return a prefix that runs a command on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def remove(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        super().remove()


def _device(namespace: str) -> int:
    """Open a tun device in a namespace; return its descriptor."""
    library = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    try:
        if library.setns(other, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TUN | _IFF_NO_PI))
    finally:
        library.setns(own, _CLONE_NEWNET)
        os.close(own)
        os.close(other)
    return fd


class _Switch:
    def __init__(self, fds: list[int], rate: float, delay_s: float) -> None:
        self._fds = fds
        self._rate = rate
        self._delay_s = delay_s
        self._out_s = [0.0] * len(fds)  # when the link from a host is free
        self._in_s = [0.0] * len(fds)
        # By receiver: packets in transit, in order of arrival.
        self._way: list[deque[tuple[float, bytes]]] = [deque() for _ in fds]

    def run(self) -> None:
        """Run for ever."""
        while True:
            now_s = time.monotonic()
            open_fds = [
                fd for fd, out_s in zip(self._fds, self._out_s, strict=True)
                if out_s - now_s < _QUEUE_S
            ]  # fmt: skip
            due_s = [way[0][0] for way in self._way if way]
            due_s += [out_s - _QUEUE_S for out_s in self._out_s if out_s - now_s >= _QUEUE_S]
            wait_s = max(0.0, min(due_s) - now_s) if due_s else None
            for fd in select.select(open_fds, [], [], wait_s)[0]:
                self._take(self._fds.index(fd))
            self._give()

    def _take(self, source: int) -> None:
        try:
            packet = os.read(self._fds[source], 1 << 16)
        except (BlockingIOError, OSError):
            return
        dest = packet[_DESTINATION] - 1 if packet[0] >> 4 == 4 else -1
        if not 0 <= dest < len(self._fds):
            return
        now_s = time.monotonic()
        takes_s = len(packet) / self._rate
        self._out_s[source] = max(now_s, self._out_s[source]) + takes_s
        # It is received while it is sent, unless other packets occupy the receiving link.
        begins_s = max(self._out_s[source] - takes_s, self._in_s[dest])
        self._in_s[dest] = begins_s + takes_s
        self._way[dest].append((self._in_s[dest] + self._delay_s, packet))

    def _give(self) -> None:
        now_s = time.monotonic()
        for dest, way in enumerate(self._way):
            while way and way[0][0] <= now_s:
                try:
                    os.write(self._fds[dest], way.popleft()[1])
                except OSError:
                    continue  # the host has gone, or its queue is full: TCP sends it again


def main(arguments: list[str]) -> int:
    """Run the switch of these hosts."""
    rate, delay_s, _, *names = arguments
    fds = [_device(name) for name in names]
    print("ready", flush=True)
    _Switch(fds, float(rate), float(delay_s)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
