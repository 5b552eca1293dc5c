"""The engine: work stealing over a tree of ranks, as a protocol without I/O.

`Engine` is the state machine of one rank, and the other modules implement its parts. The life of a
job is described in `pcircle.circle.engine`.
"""

from __future__ import annotations

from pcircle.circle.engine import Engine
from pcircle.circle.instructions import Activity, EngineSettings
from pcircle.circle.messages import FinalAccount, JoinRef, Message, Parcel, ProgressSums

__all__ = [
    "Activity",
    "Engine",
    "EngineSettings",
    "FinalAccount",
    "JoinRef",
    "Message",
    "Parcel",
    "ProgressSums",
]
