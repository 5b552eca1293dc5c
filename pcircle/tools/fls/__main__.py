"""The command `fls`, and `python -m pcircle.tools.fls`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("fls")

if __name__ == "__main__":
    sys.exit(main())
