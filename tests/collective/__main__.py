"""Search for broken promises: `python -m tests.collective FIRST SEEDS`; a seed is a bug report."""

from __future__ import annotations

import sys

from tests.collective.playing import play


def main(arguments: list[str]) -> int:
    """Play the given number of seeds; return 1 if one breaks a promise."""
    first, seeds = map(int, arguments)
    broken = killed = done = 0
    for seed in range(first, first + seeds):
        try:
            played = play(seed)
        except Exception as error:
            broken += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        else:
            killed += len(played.case.conditions.kills)
            done += len(played.asked)
    print(f"{seeds} seeds, {done} operations, {killed} ranks killed: {broken} seeds broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
