"""Jobs drawn from seeds: everything that a run depends on, in one frozen value.

A family determines the kinds of faults; within it a seed draws the number of ranks, all settings of
the engine, the tree, the behaviour of the network, and the times and ranks of aborts, hangs and
kills. The same family and seed give the same run, step by step.
"""

from __future__ import annotations

from random import Random

import msgspec

from pcircle.circle import EngineSettings
from pcircle.testing.simulated_job import draw_nasty, draw_nodes, draw_settings, draw_slow
from pcircle.transport._sim import Conditions, Kill, Stall
from tests.sim.grove import Walk
from tests.sim.work import Forest

ABORT_CODES = (1, 4, 70, 130, 143)


class AbortAt(msgspec.Struct, frozen=True):
    """Rank `rank` aborts at `at_s`, or in its step number `step` if that is not 0."""

    rank: int
    code: int
    at_s: float = 0.0
    step: int = 0


class Case(msgspec.Struct, frozen=True):
    """One job in the simulator.

    `nodes` is the node of each rank. Reading a spilled segment back takes `fetch_s`; with 0 it
    happens in the same step. Every item whose number is a multiple of `notice_every` sends
    `notice_bytes` (0: none). With `codec` all messages pass through msgspec. A sync takes `sync_s`.

    Three flags are defects that the search must find: with `late_seals` a rank's epoch is raised
    after the sync, with `forgetful_joins` a result has the epoch of its own rank alone, and with
    `stale_syncs` a rank accepts a sync that was in progress when its epoch was sealed.

    With `walk` the items are those of the real walk, else those of a `Forest`. `limit_s` bounds the
    virtual time.
    """

    family: str
    seed: int
    nodes: tuple[int, ...]
    settings: EngineSettings
    forest: Forest
    conditions: Conditions
    aborts: tuple[AbortAt, ...] = ()
    seed_at_s: float = 0.0
    fetch_s: float = 0.0
    notice_every: int = 0
    notice_bytes: int = 1
    codec: bool = False
    sync_s: float = 0.0
    late_seals: bool = False
    forgetful_joins: bool = False
    stale_syncs: bool = False
    limit_s: float = 120.0
    walk: Walk | None = None

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.nodes)

    @property
    def replay(self) -> str:
        """Return the command that replays this case and prints each step."""
        return f"python -m tests.sim {self.family} {self.seed}"


def _ranks(rng: Random) -> int:
    return rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 11, 16, 24, 64))


def _forest(rng: Random, ranks: int) -> Forest:
    size = rng.choice((0, 1, 2, 5, 10, 20, 40, 80)) if ranks < 16 else rng.choice((0, 3, 60, 150))
    fan, even = rng.choice(((1, False), (2, False), (2, True), (4, False), (9, False), (99, True)))
    return Forest(
        salt=rng.getrandbits(48),
        size=size,
        seeds=rng.choice((1, 1, 2, 7)),
        fan=fan,
        even=even,
        item_s=rng.choice((0.0, 0.0001, 0.001, 0.01)),
        early=rng.choice((0.0, 0.5, 1.0)),
    )


def _aborts(rng: Random, ranks: int, last_s: float) -> tuple[AbortAt, ...]:
    aborts = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rank, code = rng.randrange(ranks), rng.choice(ABORT_CODES)
        if rng.random() < 0.6:
            aborts.append(AbortAt(rank, code, step=rng.choice((1, 2, rng.randint(3, 80)))))
        else:
            aborts.append(AbortAt(rank, code, at_s=last_s * rng.random() ** 2))
    return tuple(aborts)


FAMILIES = ("calm", "nasty", "ending", "abort", "kill", "stuck", "posts", "epochs", "quiet", "walk")


def _ending(case: Case, rng: Random) -> Case:
    """Draw jobs of very uneven items that are handed on, over links of very different speed.

    A detector fails if it misses work that is in transit to a rank, or at a rank whose report
    overtakes it on a faster link. So a few items are long, most take no time, items spawn while
    they run, and all items of a rank can be stolen.
    """
    replace = msgspec.structs.replace
    ranks = rng.choice((2, 3, 3, 4, 4, 5, 5, 8))
    small = rng.random() < 0.25
    forest = Forest(
        salt=rng.getrandbits(48),
        size=rng.choice((3, 8, 12) if small else (25, 40)),
        seeds=rng.choice((1, 2, 4, 16) if small else (1, 2)),
        fan=rng.choice((1, 3, 5) if small else (3, 5)),
        item_s=rng.choice((0.001, 0.005)),
        skew=rng.choice((1, 3)) if small else 3,
        early=rng.choice((0.0, 1.0)) if small else 1.0,
    )
    conditions = Conditions(
        near_s=1e-5,
        far_s=rng.choice((1e-5, 1e-3)),
        jitter=1.0,
        lame=rng.choice((0.1, 0.3)),
        lame_s=0.05,
        held=rng.choice(((), ("Work",), ("Work", "Down") if small else ("Work",))),
        held_s=rng.choice((0.05, 0.2)) if small else 0.005,
        step_s=rng.choice((1e-6, 1e-3)),
        slow=draw_slow(rng, ranks) if small else (),
    )
    settings = replace(
        case.settings,
        workers=1,
        ahead=rng.choice((0, 1)) if small else 0,
        share_limit=rng.choice((1, 2, 1024)) if small else rng.choice((2, 3)),
        tries=rng.choice((0, 2)),
    )
    return replace(
        case, nodes=draw_nodes(rng, ranks), settings=settings, forest=forest, conditions=conditions
    )


def _epochs(case: Case, rng: Random, busy_s: float) -> Case:
    """Draw rounds that are more frequent than syncs, or that happen only on request."""
    replace = msgspec.structs.replace
    holds = rng.choice((0.0, 0.1, 0.5, 1.0))
    period_s = rng.choice((0.0005, 0.005, 0.05, 1000.0 if holds else 0.01))
    aborts = _aborts(rng, case.ranks, busy_s) if rng.random() < 0.3 else ()
    return replace(
        case,
        forest=replace(case.forest, holds=holds, posts=rng.choice((0.0, 0.0, 0.5))),
        settings=replace(case.settings, epoch_period_s=period_s),
        sync_s=rng.choice((0.0, 0.001, 0.02, 0.2)),
        aborts=aborts,
        limit_s=600.0,  # for slow rounds, one per level of held items
    )


def _quiet(case: Case, rng: Random) -> Case:
    """Draw epochs that only held items request, with notices and no other timers.

    An event that the engine misses is then not compensated by the next one.
    """
    replace = msgspec.structs.replace
    settings = replace(case.settings, progress_period_s=None, epoch_period_s=1000.0)
    return replace(
        case,
        forest=replace(case.forest, holds=rng.choice((0.1, 0.5, 1.0))),
        settings=replace(settings, structured=True),
        notice_every=rng.choice((1, 1, 3)),
        sync_s=rng.choice((0.0, 0.001, 0.02, 0.2)),
        limit_s=600.0,
    )


def _walk(seed: int) -> Case:
    """Draw the real walk, with all faults of the other families."""
    rng = Random(f"walk of {seed}")
    replace = msgspec.structs.replace
    kind = rng.choice(("nasty", "abort", "abort", "abort", "epochs", "epochs", "kill", "stuck"))
    case = _draw(kind, seed)
    forest = replace(
        case.forest,
        size=rng.choice((case.forest.size, 100, 300)),
        fan=rng.choice((case.forest.fan, 20)),
        holds=0.0,
        posts=0.0,
    )
    busy_s = 0.01 + 4 * forest.item_s * forest.size / case.ranks
    aborts = case.aborts
    if rng.random() < 0.6:
        case = _epochs(case, rng, busy_s)
        period_s = rng.choice((0.0005, 0.005, 0.05))
        case = replace(case, settings=replace(case.settings, epoch_period_s=period_s))
    if kind == "abort":
        aborts = _aborts(rng, case.ranks, busy_s)
    settings = replace(case.settings, structured=True, final_deadline_s=40.0)
    walk = Walk(
        files=rng.choice((0.0, 0.5, 1.0, 1.0)),
        fails=rng.choice((0.0, 0.0, 0.1)),
        verified=rng.choice((0.0, 0.1, 0.5)),
        handed_back=rng.choice((0.0, 0.1, 0.5)),
        item_s=forest.item_s * rng.choice((0.0, 1.0, 5.0, 30.0)),
        block_names=rng.choice((3, 1000)),
        few_names=rng.choice((1, 4, 1000)),
        deaf_s=rng.choice((0.0, 0.0, 1.0)) * forest.item_s,
    )
    return replace(
        case, family="walk", seed=seed, forest=forest, settings=settings, aborts=aborts, walk=walk
    )


def draw(family: str, seed: int) -> Case:
    """Return the case of a family (one of `FAMILIES`) and a seed."""
    if family == "walk":
        return _walk(seed)
    case = _draw(family, seed)
    # Drawn separately, so that the other values of a seed's case do not change.
    agains = Random(f"agains {family} {seed}").choice((0.0, 0.0, 0.3, 1.0))
    notice_bytes = Random(f"notices {family} {seed}").choice((1, 3000, 40_000))
    replace, sharing = msgspec.structs.replace, Random(f"sharing {family} {seed}")
    settings = replace(
        case.settings,
        combine_s=sharing.choice((0.0, 0.002, 0.05)),
    )
    forest = replace(case.forest, agains=agains)
    if case.aborts and case.notice_every and notice_bytes == 40_000:
        # One notice travels at a time, and an abort drops those not delivered by its deadline.
        case = replace(case, notice_every=max(case.notice_every, 10))
    return replace(case, forest=forest, notice_bytes=notice_bytes, settings=settings)


def _draw(family: str, seed: int) -> Case:
    rng = Random(f"{family} {seed}")
    ranks = _ranks(rng)
    if family in ("kill", "stuck"):
        ranks = max(2, ranks)
    forest = _forest(rng, ranks)
    case = Case(
        family=family,
        seed=seed,
        nodes=draw_nodes(rng, ranks),
        settings=draw_settings(rng, seed, ranks),
        forest=forest,
        conditions=Conditions() if family == "calm" else draw_nasty(rng, ranks),
        seed_at_s=rng.choice((0.0, 0.0, 0.003)),
        fetch_s=rng.choice((0.0, 0.0001, 0.01)),
        notice_every=rng.choice((0, 1, 3)),
        codec=rng.random() < 0.1,
    )
    busy_s = 0.01 + 2 * forest.item_s * forest.size / ranks
    replace = msgspec.structs.replace
    if family == "ending":
        return _ending(case, rng)
    if family not in ("calm", "nasty"):
        # Each level of the tree must have the patience for the worst delay, or the ranks below a
        # slow message are rightly reported as silent.
        case = replace(case, settings=replace(case.settings, final_deadline_s=40.0))
    if family == "posts":
        shares = {"posts": rng.choice((0.1, 0.5, 1.0)), "holds": rng.choice((0.1, 0.5, 1.0))}
        aborts = _aborts(rng, ranks, busy_s) if rng.random() < 0.3 else ()
        return replace(case, forest=replace(forest, **shares), aborts=aborts)
    if family == "epochs":
        return _epochs(case, rng, busy_s)
    if family == "quiet":
        return _quiet(case, rng)
    if family == "abort":
        return replace(case, aborts=_aborts(rng, ranks, busy_s))
    if family == "kill":
        kills = tuple(
            Kill(rng.randrange(ranks), busy_s * rng.random() ** 2)
            for _ in range(rng.choice((1, 1, 2)))
        )
        return replace(case, conditions=replace(case.conditions, kills=kills))
    if family == "stuck":
        stuck = Stall(rng.randrange(ranks), busy_s * rng.random() ** 2)
        other = (stuck.rank + rng.randrange(1, ranks)) % ranks
        abort = AbortAt(other, rng.choice(ABORT_CODES), at_s=stuck.from_s + 0.5)
        conditions = replace(case.conditions, stalls=(*case.conditions.stalls, stuck))
        return replace(case, conditions=conditions, aborts=(abort,))
    return case
