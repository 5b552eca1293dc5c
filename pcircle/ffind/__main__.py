"""The command `ffind`, and `python -m pcircle.ffind`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("ffind")

if __name__ == "__main__":
    sys.exit(main())
