"""The command `fcp`, and `python -m pcircle.tools.fcp`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("fcp")

if __name__ == "__main__":
    sys.exit(main())
