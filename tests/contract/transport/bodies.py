"""The bodies of the ranks in the contract suite, which run on any transport.

A body is a generator: ``arrivals = yield timeout_s`` is a poll, its return value is the rank's
result (a value that JSON can represent). So the real transports drive it by polling, and the
simulated one drives the very same body from its scheduler, in virtual time.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
import zlib
from collections.abc import Generator
from typing import TypeAlias

from pcircle.transport.contract import Delivery, LostRank, Transport

Steps: TypeAlias = Generator[float | None, list[Delivery | LostRank], object]

# Prime, so that parts of a payload that change places, whatever their size, change its content.
PATTERN_BYTES = 1_000_003


def payload_of(source: int, dest: int, number: int, size_bytes: int) -> bytes:
    """Return the content of one message, unique and without immediate repetition."""
    seed = f"{source} {dest} {number}"
    pattern = random.Random(seed).randbytes(min(size_bytes, PATTERN_BYTES))
    return (pattern * (size_bytes // PATTERN_BYTES + 1))[:size_bytes]


def only_deliveries(arrivals: list[Delivery | LostRank]) -> list[Delivery]:
    deliveries = [arrival for arrival in arrivals if isinstance(arrival, Delivery)]
    assert len(deliveries) == len(arrivals), f"lost: {set(arrivals) - set(deliveries)}"
    assert all(type(delivery.payload) is bytes for delivery in deliveries)
    return deliveries


def receive(count: int) -> Generator[float | None, list[Delivery | LostRank], list[Delivery]]:
    """Poll until *count* messages have arrived."""
    received: list[Delivery] = []
    while len(received) < count:
        received += only_deliveries((yield None))
    assert len(received) == count
    return received


# -- delivery


def exchange(t: Transport, sizes_bytes: list[int]) -> Steps:
    """Send to every rank, oneself included, one message of each size, before the first poll.

    The result: the checksums of the messages from each source, in order of arrival.
    """
    for number, size_bytes in enumerate(sizes_bytes):
        for dest in range(t.size):
            t.send(dest, payload_of(t.rank, dest, number, size_bytes))
    received = yield from receive(t.size * len(sizes_bytes))
    sums: list[list[int]] = [[] for _ in range(t.size)]
    for source, payload in received:
        sums[source].append(zlib.crc32(payload))
    return sums


def checksums(size: int, rank: int, sizes_bytes: list[int]) -> list[list[int]]:
    """Return the expected result of ``exchange`` on *rank*."""
    return [
        [
            zlib.crc32(payload_of(source, rank, number, size_bytes))
            for number, size_bytes in enumerate(sizes_bytes)
        ]
        for source in range(size)
    ]


def interleave(t: Transport, count: int) -> Steps:
    """Send numbered messages to all while polling; alternate large and small ones.

    The result: the numbers from each source, in order of arrival.
    """
    numbers: list[list[int]] = [[] for _ in range(t.size)]
    arrived = 0
    for number in range(count):
        filler = bytes(300_000 if number % 7 == 3 else number % 50)
        for dest in range(t.size):
            t.send(dest, number.to_bytes(4, "little") + filler)
        if number % 3 == 0:
            for source, payload in only_deliveries((yield 0)):
                numbers[source].append(int.from_bytes(payload[:4], "little"))
                arrived += 1
    for source, payload in (yield from receive(count * t.size - arrived)):
        numbers[source].append(int.from_bytes(payload[:4], "little"))
    return numbers


def distracted(t: Transport) -> Steps:
    """Send long and short messages alternately from rank 0, which then stops polling for a while.

    The result of rank 1: the sizes in order of arrival.
    """
    sizes_bytes = [20_000_000, 1, 5_000_000, 2, 17_000_000, 3]
    if t.rank > 0:
        received = yield from receive(len(sizes_bytes))
        return [len(delivery.payload) for delivery in received]
    for size_bytes in sizes_bytes:
        t.send(1, bytes(size_bytes))
    time.sleep(0.3)
    yield 0
    return sizes_bytes


def nothing_more(t: Transport) -> Steps:
    """Send from all to all; a message around the ring then confirms that each has received all.

    The result: the number of later messages, which must be 0.
    """
    for dest in range(t.size):
        t.send(dest, b"once")
    received = yield from receive(t.size)
    assert sorted(received) == [(source, b"once") for source in range(t.size)]
    return len((yield 0.2))


def to_oneself(t: Transport) -> Steps:
    """Deliver messages to oneself by a poll, in order, without waiting for the timeout."""
    t.send(t.rank, b"first")
    t.send(t.rank, b"")
    first = yield None
    t.send(t.rank, b"third")
    return [payload.decode() for _, payload in only_deliveries(first + (yield None))]


def answer(t: Transport) -> Steps:
    """Send a request from rank 0 to each other rank in turn and wait for its answer; 30 times."""
    rounds = 30
    if t.rank == 0:
        for number in range(rounds):
            for dest in range(1, t.size):
                t.send(dest, b"%d" % number)
                (reply,) = yield from receive(1)
                assert reply == (dest, b"re: %d" % number)
    else:
        for _ in range(rounds):
            (question,) = yield from receive(1)
            t.send(question.source, b"re: " + question.payload)
    return rounds


def describe(t: Transport) -> Steps:
    """Return the rank's own number, size and nodes."""
    yield 0
    return [t.rank, t.size, list(t.nodes)]


def reject(t: Transport) -> Steps:
    """Reject ranks after the last one and before the first one."""
    refused = 0
    for dest in (t.size, -1):
        try:
            t.send(dest, b"to nobody")
        except ValueError:
            refused += 1
    yield 0
    return refused


# -- waiting


def quiet(t: Transport) -> Steps:
    """Poll without events until the timeout; the result is empty."""
    arrivals = [(yield 0), (yield 0.01), (yield 0.0001), (yield 0)]
    return [len(arrived) for arrived in arrivals]


def lasting(t: Transport, timeout_s: float) -> Steps:
    """Return the duration of a poll without events, in seconds of this process."""
    began = time.monotonic()
    yield timeout_s
    return time.monotonic() - began


def sleepless(t: Transport) -> Steps:
    """Return how often the process went to sleep in 500 polls that must not wait."""
    yield 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    for _ in range(500):
        yield 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before


def idle(t: Transport, timeout_s: float) -> Steps:
    """Return the number of wake-ups in an idle poll, and the share of a processor that it takes."""
    yield 0.2  # let start-up finish, here and elsewhere
    before = resource.getrusage(resource.RUSAGE_SELF)
    began_s = time.monotonic()
    arrivals = yield timeout_s
    assert not arrivals
    took_s = time.monotonic() - began_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [(after.ru_nvcsw - before.ru_nvcsw) / took_s, used_s / took_s]


# -- waking (where there are threads and signals)


def woken_before(t: Transport) -> Steps:
    """End one poll by any number of earlier wake-ups, and no later poll."""
    for _ in range(5):
        t.wake()
    first = yield None
    began = time.monotonic()
    second = yield 0.05
    return [first, second, time.monotonic() - began >= 0.05]


def woken_by_thread(t: Transport) -> Steps:
    """End poll(None) from other threads, several times."""
    for pause_s in (0, 0.001, 0.02, 0.2):
        waker = threading.Timer(pause_s, t.wake)
        waker.start()
        assert (yield None) == []
        waker.join()
    return "woken"


def woken_by_signal(t: Transport) -> Steps:
    """End poll(None) by a signal handler, whether the signal comes before the wait or during it."""
    seen: list[int] = []

    def on_alarm(number: int, frame: object) -> None:
        seen.append(number)
        t.wake()

    former = signal.signal(signal.SIGALRM, on_alarm)
    for pause_s in (0.000_001, 0.000_1, 0.001, 0.1):
        before = len(seen)
        signal.setitimer(signal.ITIMER_REAL, pause_s)
        assert (yield None) == []
        while len(seen) == before:
            assert (yield None) == []
    signal.signal(signal.SIGALRM, former)
    return len(seen)


def woken_after_close(t: Transport) -> Steps:
    """Ignore a late wake-up, whatever file has reused the number of the descriptor."""
    yield 0
    t.close()
    t.close()
    read_fd, write_fd = os.pipe()
    t.wake()
    t.wake()
    os.set_blocking(read_fd, False)
    try:
        return len(os.read(read_fd, 10))
    except BlockingIOError:
        return 0
    finally:
        os.close(read_fd)
        os.close(write_fd)


# -- closing


def last_words(t: Transport, size_bytes: int) -> Steps:
    """Send from rank 0 to all and end at once; late readers still get everything."""
    if t.rank == 0:
        for dest in range(1, t.size):
            t.send(dest, payload_of(0, dest, 0, size_bytes))
        t.close()
        t.close()
        return None
    time.sleep(0.2)
    ((source, payload),) = yield from receive(1)
    # Rank 0 is not reported as lost either.
    assert only_deliveries((yield 0.2)) == []
    return [source, zlib.crc32(payload)]


def unheard(t: Transport) -> Steps:
    """Send large amounts from all to all without a receiver; the job ends nevertheless."""
    yield 0
    for dest in range(t.size):
        for number in range(20):
            t.send(dest, bytes(number))
        t.send(dest, bytes(3_000_000))
    return "ended"


def staggered(t: Transport) -> Steps:
    """End the ranks one after another, each by a message of the previous one; none is lost."""
    if t.rank > 0:
        yield from receive(1)
    t.send((t.rank + 1) % t.size, b"your turn")
    return "ended"


# -- killed ranks (where ranks are processes of this machine)


def witness(t: Transport, victim: int) -> Steps:
    """Kill *victim* after a send; the other ranks observe the loss and continue.

    The result: the events of the victim, its pid and that of this process, and the messages of the
    other ranks.
    """
    if t.rank == victim:
        for dest in range(t.size):
            t.send(dest, b"%d" % os.getpid())
        yield 0
        os.kill(os.getpid(), signal.SIGKILL)
    events: list[Delivery | LostRank] = []
    while not any(isinstance(event, LostRank) for event in events):
        events += yield None
    t.send(victim, b"are you there?")
    events += yield 0.2  # a second report would arrive now
    remaining = [rank for rank in range(t.size) if rank not in (victim, t.rank)]
    for dest in remaining:
        t.send(dest, b"alive")
    while sum(event[1] == b"alive" for event in events) < len(remaining):
        events += yield None
    of_victim = [event for event in events if event[0] == victim]
    assert len(of_victim) + len(remaining) == len(events)
    (said, lost) = of_victim
    assert isinstance(said, Delivery)
    assert isinstance(lost, LostRank)
    return [int(said.payload), lost.reason]


def cut_short(t: Transport, source: int, dest: int) -> Steps:
    """Kill *source* during large sends to *dest*, once it hears that one has arrived.

    Most messages are in transit then. The result of *dest*: the numbers of those that arrived, and
    the loss.
    """
    events: list[int | str] = []
    if t.rank == source:
        for number in range(40):
            t.send(dest, number.to_bytes(4, "little") + bytes(3_000_000))
        while not (yield None):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    while "lost" not in events:
        for arrival in (yield None):
            assert arrival[0] == source
            if isinstance(arrival, LostRank):
                events.append("lost")
            else:
                assert len(arrival.payload) == 3_000_004
                events.append(int.from_bytes(arrival.payload[:4], "little"))
                if len(events) == 1:
                    t.send(source, b"come")
    return events


def crowded(t: Transport, source: int, dest: int, total_bytes: int, gate: str) -> Steps:
    """Send much from *source* to a rank that polls only after it has seen the sends.

    The result: the number of bytes received, and the peak memory of this process by then.
    """
    size_bytes = 200_000
    came_bytes = 0
    if t.rank == source:
        payload = bytes(size_bytes)
        for _ in range(total_bytes // size_bytes):
            t.send(dest, payload)
        ends_s = time.monotonic() + 2.0
        while (left_s := ends_s - time.monotonic()) > 0:
            yield left_s
        with open(gate, "wb"):
            pass
    elif t.rank == dest:
        while not os.path.exists(gate):
            time.sleep(0.01)
        while came_bytes < total_bytes:
            came_bytes += sum(len(delivery.payload) for delivery in only_deliveries((yield None)))
        for rank in range(t.size):
            t.send(rank, b"all")
    yield from receive(1)
    return [came_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]
