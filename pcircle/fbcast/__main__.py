"""The command `fbcast`, and `python -m pcircle.fbcast`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fbcast")

if __name__ == "__main__":
    sys.exit(main())
