"""The command `fbench`, and `python -m pcircle.fbench`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fbench")

if __name__ == "__main__":
    sys.exit(main())
