"""A sink for results too long for messages and memory: names, digests, differences.

Each rank puts its records into a `SegmentWriter`, files of its own in a directory that all
ranks reach. When all work is done they are sorted, without passing through a
single process if they are long:

1. `Seal`, posted to every rank: it ends its part and sorts its index.
2. Samples of the parts' keys cut the whole into ranges of some 64 MiB
   (`segments.cut`). If that is one range, nothing more happens here.
3. A `Merge` for each range, an item that any rank may take: it reads that range
   of all parts and writes it, in order, to a file (`segments.merged`).

So merging is work like any other: it is stolen, it ends early when the job is
stopped, and the engine knows nothing of it. `result` then gives the whole as a
stream on rank 0, which can write to standard output or compute a checksum of all
records: it only copies bytes and compares no names.

Failures do not use the sink. They must be reported at once, on rank 0's standard
error, and their log must be usable after a kill at any moment; so they are sent as
notices, packed and acknowledged (`pcircle.circle.notices`).

Use in a task:

    seed:     return [Gather(tuple(items))]      instead of the items
    process:  if isinstance(item, SINK_ITEMS): return sink.process(item, context)
    join:     if isinstance(item, SINK_ITEMS): return sink.join(item, own, merged, context)
    anywhere: with sink.part() as part: part.add(path, text)

and its observer reads `result(place, ranks)`, then calls `remove(place, ranks)`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec

from pcircle.core.guards import require_type
from pcircle.runtime import Context
from pcircle.walk.items import SINK_ITEMS, Gather, Merge, Seal
from pcircle.walk.segments import (
    RANGE_BYTES,
    SegmentWriter,
    cut,
    merged,
    present,
    remove,
    result,
    write_range,
)

__all__ = [
    "SINK_ITEMS",
    "Gather",
    "Merge",
    "Seal",
    "SegmentWriter",
    "Sink",
    "SinkItem",
    "remove",
    "result",
]

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")  # result


SinkItem: TypeAlias = Gather[I] | Seal | Merge


class _Stage(msgspec.Struct, frozen=True):
    """The next stage of a `Gather`, and the result of the work itself."""

    waits: str
    result: object = None


class Sink(Generic[R]):
    """One rank's side of a sink. Many threads may use it; `part` belongs to one at a time.

    `place` is a file that rank 0 has made, and the prefix of all files of the sink: a rank that
    does not find it is on a node where that path leads elsewhere. `nothing` makes an empty result,
    `unwritable` the exception for files that cannot be written or read.
    """

    def __init__(
        self,
        place: bytes,
        rank: int,
        ranks: int,
        nothing: Callable[[], R],
        unwritable: Callable[[OSError], Exception],
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self._place = place
        self._rank = rank
        self._ranks = ranks
        self._nothing = nothing
        self._unwritable = unwritable
        self._range_bytes = range_bytes
        self._alone = threading.Lock()
        self._part: SegmentWriter | None = None

    @contextmanager
    def part(self) -> Iterator[SegmentWriter]:
        """Return this rank's part, for this thread alone."""
        with self._alone, self._careful():
            if self._part is None:
                os.stat(self._place)  # otherwise rank 0 would never see the part
                self._part = SegmentWriter(b"%b-%d" % (self._place, self._rank))
            yield self._part

    def seal(self) -> None:
        """End this rank's part."""
        with self._alone, self._careful():
            part, self._part = self._part, None
            if part is not None:
                part.close()

    @contextmanager
    def _careful(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(error) from error

    def process(self, item: SinkItem[Any], context: Context[Any]) -> Any:
        """Process an item of the sink."""
        if isinstance(item, Gather):
            context.spawn(item.items)
            return _Stage("work") if item.items else self._nothing()
        if isinstance(item, Seal):
            self.seal()
        else:
            with self._careful():
                texts = merged(present(self._place, self._ranks), item.low, item.high)
                write_range(self._place, item.number, texts, last=item.high is None)
        return self._nothing()

    def join(self, item: SinkItem[Any], own: Any, merged: R, context: Context[Any]) -> R:
        """Start the next stage: after all work, after all seals, and after all merges."""
        stage = require_type(_Stage, own)
        if stage.waits == "work":
            for rank in range(self._ranks):
                context.post(rank, [Seal()])
            return cast(R, _Stage("seals", merged))
        if stage.waits == "seals":
            with self._careful():
                cuts = cut(present(self._place, self._ranks), self._range_bytes)
            if cuts:
                ranges = enumerate(zip([b"", *cuts], [*cuts, None], strict=True))
                context.spawn([Merge(number, low, high) for number, (low, high) in ranges])
                return cast(R, _Stage("merges", stage.result))
        return cast(R, stage.result)
