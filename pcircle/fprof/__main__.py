"""The command `fprof`, and `python -m pcircle.fprof`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fprof")

if __name__ == "__main__":
    sys.exit(main())
