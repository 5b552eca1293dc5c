"""The command `fbcast`, and `python -m pcircle.tools.fbcast`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("fbcast")

if __name__ == "__main__":
    sys.exit(main())
