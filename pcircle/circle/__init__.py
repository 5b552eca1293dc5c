"""The circle: work stealing and one tree of ranks, as a protocol without I/O.

`Engine` is the state machine; everything else here is a part of it. See
`pcircle.circle.engine` for the life of a job.
"""

from __future__ import annotations

from pcircle.circle.engine import Engine
from pcircle.circle.messages import Account, JoinRef, Message, Parcel, Sums
from pcircle.circle.settings import Activity, Settings

__all__ = ["Account", "Activity", "Engine", "JoinRef", "Message", "Parcel", "Settings", "Sums"]
