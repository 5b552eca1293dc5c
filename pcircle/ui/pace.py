"""How fast a job goes, and so how long it will take: rates over the last seconds."""

from __future__ import annotations

from collections import deque

from pcircle.ui.progress import ProgressView

_RATE_WINDOW_S = 10.0
_SURE_AFTER_S = 1.0


class Pace:
    """The last seconds of a job."""

    def __init__(self) -> None:
        self._window: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def view(
        self,
        elapsed_s: float,
        *,
        fraction: float,
        exact: bool,
        bytes_done: int,
        bytes_total: int | None,
        entries_done: int,
        stale_ranks: int,
        failed: int,
    ) -> ProgressView:
        """What is known at this moment, with rates; see `ProgressView`."""
        window = self._window
        window.append((elapsed_s, bytes_done, entries_done))
        while len(window) > 2 and elapsed_s - window[0][0] > _RATE_WINDOW_S:
            window.popleft()
        since_s, bytes_before, entries_before = window[0]
        span_s = max(elapsed_s - since_s, 1e-6)
        left_s = elapsed_s * (1 - fraction) / fraction if fraction > 0 else None
        return ProgressView(
            fraction=fraction,
            exact=exact,
            bytes_done=bytes_done,
            bytes_total=bytes_total,
            entries_done=entries_done,
            elapsed_s=elapsed_s,
            rate_bytes_s=(bytes_done - bytes_before) / span_s,
            rate_entries_s=(entries_done - entries_before) / span_s,
            remaining_s=left_s if elapsed_s > _SURE_AFTER_S else None,
            stale_ranks=stale_ranks,
            failed=failed,
        )
