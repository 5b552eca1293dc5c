"""Atomic collective operations: a set of ranks performs a change together, or none of them does.

`Member` implements the protocol of one rank, without network or clock. `Service` runs it on a
transport.
"""

from pcircle.collective.member import Member
from pcircle.collective.operation import (
    Answer,
    Directory,
    Op,
    Records,
    Refused,
    Request,
    Said,
    Store,
)
from pcircle.collective.service import Service

__all__ = [
    "Answer",
    "Directory",
    "Member",
    "Op",
    "Records",
    "Refused",
    "Request",
    "Said",
    "Service",
    "Store",
]
