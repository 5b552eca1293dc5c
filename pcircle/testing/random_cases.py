"""Draw a random machine: engine settings, the placement of ranks, and network conditions.

The simulator draws these from a seed, for tasks (`pcircle.testing.check`) and for the engine's own
tests. The order of the draws defines the meaning of a seed and must not change.
"""

from __future__ import annotations

from itertools import product
from random import Random

from pcircle.circle import EngineSettings
from pcircle.transport._sim import Conditions, Stall

# All combinations of the engine's choices; a seed's position in them is its number.
POLICIES = tuple(
    product(
        ("random", "nearest"), ("random", "equal"), ("counters", "ring"), (True, False), (1, 2, 8)
    )
)


def draw_nodes(rng: Random, ranks: int) -> tuple[int, ...]:
    """Draw the node of each rank: in blocks, or round robin."""
    per_node = rng.choice((1, 2, 4, ranks))
    if rng.random() < 0.5:
        return tuple(rank // per_node for rank in range(ranks))
    count = -(-ranks // per_node)  # round robin, as some launchers place them
    return tuple(rank % count for rank in range(ranks))


def draw_settings(rng: Random, seed: int, ranks: int) -> EngineSettings:
    """Draw the engine's settings; `seed` selects the policies, cycling through all combinations."""
    victims, split, termination, structured, arity = POLICIES[seed % len(POLICIES)]
    return EngineSettings(
        workers=rng.choice((1, 1, 2, 3)),
        ahead=rng.choice((0, 1, 1, 2)),
        structured=structured,
        victims=victims,
        split=split,
        termination=termination,
        arity=max(arity, 1 if ranks <= 8 else 2),
        queue_high=rng.choice((4, 4, 5, 9, 16, 64, 2048)),
        share_limit=rng.choice((1, 2, 8, 1024)),
        tries=rng.choice((1, 3)),
        # Many ranks with many rounds fill all links, and everything waits behind them.
        progress_period_s=rng.choice((None, None, 0.005 if ranks <= 8 else 0.2, 0.2)),
    )


def draw_slow(rng: Random, ranks: int) -> tuple[tuple[int, float], ...]:
    """Draw a rank whose steps are slow, or none; see `Conditions.slow`."""
    if rng.random() < 0.7:
        return ()
    return ((rng.randrange(ranks), rng.choice((1e-4, 1e-3, 5e-3))),)


def _stalls(rng: Random, ranks: int, longest_s: float) -> tuple[Stall, ...]:
    stalls = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        begin_s = rng.random() * rng.choice((0.001, 0.02, 0.2))
        length_s = longest_s * rng.random()
        stalls.append(Stall(rng.randrange(ranks), begin_s, begin_s + length_s))
    return tuple(stalls)


def draw_nasty(rng: Random, ranks: int) -> Conditions:
    """Draw a network with uneven delays, bursts, and slow or temporarily stuck ranks."""
    return Conditions(
        near_s=rng.choice((1e-6, 1e-5, 1e-4)),
        far_s=rng.choice((1e-5, 1e-4, 1e-3)),
        jitter=rng.choice((0.0, 1.0, 10.0, 100.0)),
        tail=rng.choice((0.0, 0.02, 0.3)),
        tail_s=rng.choice((0.001, 0.01, 0.1)),
        burst=rng.choice((0.0, 0.0, 0.005)),
        burst_s=rng.choice((0.01, 0.3)),
        step_s=rng.choice((0.0, 1e-6, 1e-4)),
        start_s=rng.choice((0.0, 0.001, 0.05)),
        slow=draw_slow(rng, ranks),
        stalls=_stalls(rng, ranks, 0.3),
    )
