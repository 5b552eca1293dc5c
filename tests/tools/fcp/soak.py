"""``python -m tests.tools.fcp.soak``: kill copies hundreds of times; print the results.

In every other round the source, with hard links, is edited all the time.

--kills N      stop after this many kills (default 300)
--seed S       the first round's seed (default 0); a failing round prints its own
--ranks        kill ranks of local jobs one by one; the jobs must survive
--launchers    local, mpi or all (default all where there is an mpirun)
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.mpi import find_mpirun
from tests.tools.fcp import kills


def main(arguments: Sequence[str] | None = None) -> int:
    """Play rounds; return 0 on success, otherwise 1 after printing the failing seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fcp.soak")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--launchers", choices=("local", "mpi", "all"), default="all")
    parser.add_argument("--ranks", action="store_true")
    args = parser.parse_args(arguments)
    launchers = {"local": kills.LOCAL, "mpi": kills.LAUNCHERS[-2:], "all": kills.LAUNCHERS}
    chosen = launchers[args.launchers]
    if args.launchers == "all" and not find_mpirun()[0]:
        print(f"without MPI: {find_mpirun()[1]}")
        chosen = kills.LOCAL
    room = kills.room()
    began_s = time.monotonic()
    rounds = killed = early = resumed = 0
    failed: list[int] = []
    try:
        sources = kills.build_sources(room)
        while killed < args.kills:
            seed = args.seed + rounds
            rounds += 1
            place = os.path.join(room, b"%d" % seed)
            os.mkdir(place)
            try:
                if args.ranks:
                    played = kills.play_lost(place, sources, seed, many=True)
                elif seed % 2:
                    played = kills.play_edited(place, seed, chosen)
                else:
                    played = kills.play(place, sources, seed, chosen)
            except AssertionError as error:
                failed.append(seed)
                killed += 1  # at least
                print(f"seed {seed} failed: {error}", flush=True)
            else:
                killed += played.kills
                early += played.early
                resumed += played.resumed
            kills.clear(place)
            if rounds % 10 == 0:
                print(f"{rounds} rounds, {killed} kills", flush=True)
    finally:
        kills.clear(room)
    print(
        f"{rounds} rounds, {killed} kills ({early} runs ended before theirs), "
        f"{resumed} entries not copied again, {len(failed)} rounds failed"
        f"{': seeds ' + ', '.join(map(str, failed)) if failed else ''}; "
        f"{time.monotonic() - began_s:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
