"""What the ranks of a broadcast say to each other, beside `pcircle.collective.messages`.

The first rank reads, and conducts; one rank of each node, the first one's included, is a *node*.
What goes to all nodes is a stream of bytes, cut into chunks. A stream that has to be sent again,
because a node is lost, has another `attempt`, so that what is still on its way is known as old.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from pcircle.collective.messages import Message as OfCollective

Verb: TypeAlias = Literal["copy", "remove", "check"]
Way: TypeAlias = Literal["chain", "exchange"]


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """What is to be done, as the first rank has decided.

    `job` marks this job's temporary names. `names` are to be in the directory `target` of each
    node, and are those of directories where `folders` says so. `records` is a directory that all
    nodes share, with a file `proof` in it while the job begins.
    """

    job: str
    verb: Verb
    target: bytes
    names: tuple[bytes, ...]
    folders: tuple[bool, ...] = ()
    records: bytes = b""
    proof: bytes = b""
    update: bool = False
    force: bool = False
    keep: bool = False
    sync: bool = False
    patience_s: float = 60.0


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """The reader to each node: look whether you can do this."""

    plan: Plan


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """A node to the reader: its name, and what is in the way, if anything.

    `completed`: an earlier job had decided to show the same names, and now they are shown here.
    `present`: all names are there; `exists` is why they are not to be replaced.
    """

    host: str
    problem: str = ""
    exists: str = ""
    completed: bool = False
    present: bool = False


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """The reader to each node: a stream will come to these, the reader first, in this way.

    It is of `files`, or of the list of them that `--update` compares.
    """

    attempt: int
    route: tuple[int, ...]
    way: Way
    files: bool = True


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of a stream, by its number from 0, with the digest of its bytes."""

    number: int
    data: bytes
    digest: bytes
    last: bool = False


class Parts(msgspec.Struct, frozen=True, array_like=True, tag="parts"):
    """Chunks on their way; `rest` are places of the route that the receiver has to reach."""

    attempt: int
    chunks: tuple[Chunk, ...]
    rest: tuple[int, ...] = ()


class Took(msgspec.Struct, frozen=True, array_like=True, tag="took"):
    """All chunks before this number are written, and sent on: room for more."""

    attempt: int
    below: int


class Staged(msgspec.Struct, frozen=True, array_like=True, tag="staged"):
    """A node to the reader: it has all of a stream, or can't; `said` is its answer to it."""

    attempt: int
    problem: str = ""
    said: bytes = b""


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """A node to the reader, from time to time."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """A rank to the reader: its process was asked to stop, with this exit code."""

    code: int


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """The reader to all ranks: it is over, with this exit code; what is not shown is removed."""

    code: int


Message: TypeAlias = (
    OfCollective | Begin | Ready | Start | Parts | Took | Staged | Alive | Stop | Finish
)
