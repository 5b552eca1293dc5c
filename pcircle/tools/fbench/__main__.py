"""The command `fbench`, and `python -m pcircle.tools.fbench`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("fbench")

if __name__ == "__main__":
    sys.exit(main())
