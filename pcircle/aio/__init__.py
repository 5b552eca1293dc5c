"""File work off the main thread.

For now a small pool with futures; see `pcircle.aio.pool`.
"""

from __future__ import annotations

from pcircle.aio.pool import Future, Pool

__all__ = ["Future", "Pool"]
