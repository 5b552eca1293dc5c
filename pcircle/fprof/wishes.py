"""What is to be told of a profile, as far as it is not told anyway."""

from __future__ import annotations

import msgspec


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """`bins`: the name of a histogram of sizes, or its `edges`; `by`: dimensions; `top`: how long
    lists of the best are, 0 for none."""

    bins: str = ""
    edges: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    top: int = 0
    everything: bool = False

    def facets(self) -> set[str]:
        """What a walk has to add up for this; see `pcircle.fprof.collect.FACETS`."""
        if self.everything:
            from pcircle.fprof.collect import FACETS

            return set(FACETS)
        return {*self.by, *(("top",) if self.top else ())}
