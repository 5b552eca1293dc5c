"""Create, remove and stat of a file in a parallel file system: three protocols, message by message.

`examples.papers.carns` computes its figures from this model. A file has an entry in its parent
directory (on server P), a metadata object (on server M) and one data object on each server.

- *client driven*: the client sends requests to each server itself, to the data servers
  concurrently;
- *collective* (Carns, Settlemyer, Ligon 2009): the client sends its request to one server, which
  sends it to the others by a tree;
- *pcircle*: the same tree in two phases. Servers prepare. When all have prepared, the coordinator
  records the decision by creating (or removing) the entry, and answers the client. Then it requests
  the other servers to commit.

Sources: the steps and the tree are the paper's (its sections on the operations and on collective
communication). Where the paper leaves details open, they are those of its public simulator (HECIOS,
configuration of April 2008, read for facts): recursive halving, sizes of messages, delays of
servers. Chosen by us: P is the first server and M the second, a name has 15 bytes, and everything
in the series pcircle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from examples.papers.network import CLIENT, Answer, Call, Conditions, Network, Process

PARENT = 1
NAME_BYTES = 15


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a server works before it answers, in ms: HECIOS' measurements on Adenine."""

    create_metadata_ms: float = 0.123
    create_object_ms: float = 0.354
    set_attributes_ms: float = 0.352
    create_entry_ms: float = 0.640
    get_attributes_ms: float = 0.068
    remove_entry_ms: float = 1.324
    remove_metadata_ms: float = 0.829  # in the collective the same as an object's
    remove_object_ms: float = 0.0
    create_directory_ms: float = 1.0
    read_directory_ms: float = 0.0

    def scaled(self, factor: float) -> Delays:
        """Return the delays of a machine on which all of them are *factor* times as long."""
        return Delays(**{name: factor * ms for name, ms in msgspec.structs.asdict(self).items()})


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster: its network and nodes, its servers' delays, and the client's time for a call."""

    conditions: Conditions
    delays: Delays = Delays()
    client_ms: float = 0.0


Plan = Callable[[Delays, int], Process]  # the client's process for a number of servers


class Outcome(msgspec.Struct, frozen=True):
    """One operation: when the client had its answer, when the network was idle, and the traffic."""

    client_ms: float
    quiet_ms: float
    messages: int
    payload_bytes: int


def perform(machine: Machine, plan: Plan, servers: int, random: Random | None = None) -> Outcome:
    """Run one operation of a client that is connected and knows its directory's attributes."""
    network = Network(machine.conditions, servers, random or Random(0))
    ends_ms: list[float] = []

    def process() -> Process:
        yield machine.client_ms
        yield from plan(machine.delays, servers)

    network.run(CLIENT, process(), lambda: ends_ms.append(network.now_ms))
    return Outcome(ends_ms[0], network.now_ms, network.messages, network.payload_bytes)


def metadata_server(servers: int) -> int:
    """Return the server that stores the metadata object: the second one, if there is one."""
    return min(2, servers)


def _all(servers: int) -> range:
    return range(1, servers + 1)


def ask(target: int, request_bytes: int, answer_bytes: int, delay_ms: float) -> Call:
    """Return a request that its target answers after a delay."""

    def process() -> Process:
        yield delay_ms

    return Call(target, request_bytes, answer_bytes, process)


# ---- client driven ----------------------------------------------------------------------------


def client_create(delays: Delays, servers: int) -> Process:
    meta = metadata_server(servers)
    yield [ask(meta, 32, 4, delays.create_metadata_ms)]
    yield [ask(server, 32, 4, delays.create_object_ms) for server in _all(servers)]
    yield [ask(meta, 96, 4, delays.set_attributes_ms)]
    yield [ask(PARENT, 33 + NAME_BYTES, 4, delays.create_entry_ms)]


def client_remove(delays: Delays, servers: int) -> Process:
    yield [ask(PARENT, 25 + NAME_BYTES, 4, delays.remove_entry_ms)]
    yield [ask(metadata_server(servers), 24, 4, delays.remove_metadata_ms)]
    yield [ask(server, 24, 4, delays.remove_object_ms) for server in _all(servers)]


def client_stat(delays: Delays, servers: int) -> Process:
    yield [ask(metadata_server(servers), 28, 12 + 8 * servers, delays.get_attributes_ms)]
    yield [ask(server, 28, 16, delays.get_attributes_ms) for server in _all(servers)]


# ---- the tree ---------------------------------------------------------------------------------


class Handed(msgspec.Struct, frozen=True, kw_only=True):
    """Work that a tree distributes: its duration on a server, and whether answers are gathered."""

    work_ms: Callable[[int], float]
    gathers: bool = False


def tree(members: Sequence[int], handed: Handed) -> Process:
    """Distribute work to all *members* by recursive halving, and wait until it is done.

    The member in the middle receives the work for all members behind it, and the same is repeated
    with the members before it. So the largest part is sent first, and both the depth and the number
    of children are logarithmic. A server waits for its children, then works, then answers.
    """
    calls = []
    while members:
        middle = len(members) // 2
        calls.append(_hand(members[middle], members[middle + 1 :], handed))
        members = members[:middle]
    yield calls


def _hand(server: int, below: Sequence[int], handed: Handed) -> Call:
    def process() -> Process:
        yield from tree(below, handed)
        yield handed.work_ms(server)

    list_bytes = 12 * len(below)
    return Call(server, 40 + list_bytes, 4 + list_bytes * handed.gathers, process)


def _everywhere(work_ms: float, *, gathers: bool = False) -> Handed:
    return Handed(work_ms=lambda server: work_ms, gathers=gathers)


def _request(target: int, servers: int, answer_bytes: int, process: Process) -> Call:
    return Call(target, 32 + 12 * servers, answer_bytes, lambda: process)


# ---- collective -------------------------------------------------------------------------------


def collective_create(delays: Delays, servers: int) -> Process:
    meta = metadata_server(servers)

    def coordinate() -> Process:
        yield [ask(meta, 32, 4, delays.create_metadata_ms)]
        yield from tree(_all(servers), _everywhere(delays.create_object_ms))
        yield [ask(meta, 104, 4, delays.set_attributes_ms)]
        yield delays.create_entry_ms

    yield [_request(PARENT, servers, 4, coordinate())]


def collective_remove(delays: Delays, servers: int) -> Process:
    def coordinate() -> Process:
        yield [ask(metadata_server(servers), 32, 4, delays.remove_object_ms)]
        yield from tree(_all(servers), _everywhere(delays.remove_object_ms))
        yield delays.remove_entry_ms

    yield [_request(PARENT, servers, 4, coordinate())]


def collective_stat(delays: Delays, servers: int) -> Process:
    def coordinate() -> Process:
        yield delays.get_attributes_ms
        yield from tree(_all(servers), _everywhere(delays.get_attributes_ms, gathers=True))

    yield [_request(metadata_server(servers), servers, 16 + 20 * servers, coordinate())]


# ---- pcircle: the tree in two phases ----------------------------------------------------------


def _two_phases(
    coordinator: int, servers: int, answer_bytes: int, prepare: Handed, record_ms: float
) -> Process:
    """Prepare with the tree, record, answer the client, then commit with the same tree."""

    def coordinate() -> Process:
        yield from tree(_all(servers), prepare)
        yield record_ms
        yield Answer()
        yield from tree(_all(servers), _everywhere(0.0))

    yield [_request(coordinator, servers, answer_bytes, coordinate())]


def pcircle_create(delays: Delays, servers: int) -> Process:
    """Create a file; its server prepares metadata together with its data object, in one tree."""
    meta_ms = delays.create_metadata_ms + delays.set_attributes_ms
    meta = metadata_server(servers)

    def work_ms(server: int) -> float:
        return delays.create_object_ms + meta_ms * (server == meta)

    return _two_phases(PARENT, servers, 4, Handed(work_ms=work_ms), delays.create_entry_ms)


def pcircle_remove(delays: Delays, servers: int) -> Process:
    prepare = _everywhere(delays.remove_object_ms)
    return _two_phases(PARENT, servers, 4, prepare, delays.remove_entry_ms)


def pcircle_stat(delays: Delays, servers: int) -> Process:
    """Look up a file; nothing is recorded, and the second phase releases the locks."""
    prepare = _everywhere(delays.get_attributes_ms, gathers=True)
    meta = metadata_server(servers)
    return _two_phases(meta, servers, 16 + 20 * servers, prepare, delays.get_attributes_ms)


CLIENT_DRIVEN, COLLECTIVE, PCIRCLE = PROTOCOLS = ("client driven", "collective", "pcircle")
PLANS: Mapping[str, Mapping[str, Plan]] = {
    "create": dict(zip(PROTOCOLS, (client_create, collective_create, pcircle_create), strict=True)),
    "remove": dict(zip(PROTOCOLS, (client_remove, collective_remove, pcircle_remove), strict=True)),
    "stat": dict(zip(PROTOCOLS, (client_stat, collective_stat, pcircle_stat), strict=True)),
}
